package mcphttp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func initializeBody(version string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":%q,`+
		`"capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}}`, version)
}

// A testSession is a client that has a session.
type testSession struct {
	*fixture
	headers []string
	id      string
}

func (f *fixture) initialize(version string, headers ...string) *testSession {
	f.t.Helper()
	got := f.do(http.MethodPost, initializeBody(version), headers...)
	s := &testSession{fixture: f, id: got.header.Get("Mcp-Session-Id")}
	if got.status != 200 || s.id == "" || !strings.Contains(got.body, `"protocolVersion":"`+version+`"`) {
		f.t.Fatalf("initialize: got %d %s %s", got.status, got.header, got.body)
	}
	s.headers = append([]string{"Mcp-Session-Id: " + s.id}, headers...)
	if version > march2025 {
		s.headers = append(s.headers, "MCP-Protocol-Version: "+version)
	}
	if got := s.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`); got.status != 202 {
		f.t.Fatalf("initialized: got %d %s", got.status, got.body)
	}
	return s
}

func (s *testSession) send(body string, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodPost, body, override(s.headers, headers)...)
}

// override returns the headers of base and extra; those of extra take the place of those of base.
func override(base, extra []string) []string {
	var all []string
	for _, h := range base {
		name, _, _ := strings.Cut(h, ":")
		if !slices.ContainsFunc(extra, func(e string) bool { return strings.HasPrefix(e, name+":") }) {
			all = append(all, h)
		}
	}
	return append(all, extra...)
}

func callBody(id int, tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{"message":"hi"}}}`, id, tool)
}

func (s *testSession) post(ctx context.Context, body string) *http.Request {
	return s.request(ctx, http.MethodPost, body, s.headers...)
}

func (s *testSession) get(ctx context.Context, headers ...string) *http.Request {
	return s.request(ctx, http.MethodGet, "", append(s.headers, headers...)...)
}

func TestLHTTP_RequestIsAnsweredInEveryRevision(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, version := range []string{november2024, march2025, june2025, november2025} {
		t.Run(version, func(t *testing.T) {
			s := f.initialize(version)
			got := s.send(callBody(7, "echo"))
			if got.status != 200 || got.header.Get("Content-Type") != "application/json" ||
				got.body != `{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"hi"}]}}` {
				t.Errorf("got %d %s %s", got.status, got.header, got.body)
			}
			if got := s.send(`{"jsonrpc":"2.0","id":8,"method":"no/such"}`); got.status != 200 ||
				got.code() != mcp.CodeMethodNotFound {
				t.Errorf("an unknown method: got %d %s, want 200 with the error", got.status, got.body)
			}
			if got := s.send(`{"jsonrpc":"2.0","id":9,"method":"ping"}`); got.body != `{"jsonrpc":"2.0","id":9,"result":{}}` {
				t.Errorf("ping: got %s", got.body)
			}
		})
	}
}

func TestLHTTP25_SessionID(t *testing.T) {
	f := start(t, newTestCore(), nil)
	a, b := f.initialize(november2025).id, f.initialize(november2025).id
	if a == b || len(a) < 22 || strings.ContainsFunc(a, func(c rune) bool { return c < 0x21 || c > 0x7e }) {
		t.Errorf("got %q and %q, want different ids of 128 bits in visible ASCII", a, b)
	}
}

func TestLHTTP28_29_31_SessionHeader(t *testing.T) {
	f := start(t, newTestCore(), nil)
	ann := f.initialize(november2025, "Authorization: ann")
	const version = "MCP-Protocol-Version: " + november2025
	for _, test := range []struct {
		name    string
		headers []string
		status  int
	}{
		{"LHTTP28 none", []string{version}, 400},
		{"unknown", []string{version, "Mcp-Session-Id: nonsense"}, 404},
		{"SEC10 of someone else", []string{version, "Mcp-Session-Id: " + ann.id, "Authorization: bob"}, 404},
		{"SEC10 of someone, anonymously", []string{version, "Mcp-Session-Id: " + ann.id}, 404},
		{"LHTTP35 an unsupported version", []string{"MCP-Protocol-Version: 1999-01-01", "Mcp-Session-Id: " + ann.id,
			"Authorization: ann"}, 400},
		{"LHTTP35 not a version", []string{"MCP-Protocol-Version: x", "Mcp-Session-Id: " + ann.id,
			"Authorization: ann"}, 400},
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			t.Run(test.name+"/"+method, func(t *testing.T) {
				body := ""
				if method == http.MethodPost {
					body = callBody(1, "echo")
				}
				got := f.do(method, body, test.headers...)
				if got.status != test.status || got.code() == 0 {
					t.Errorf("got %d %s, want %d with an error", got.status, got.body, test.status)
				}
			})
		}
	}
	if got := ann.send(callBody(1, "echo")); got.status != 200 {
		t.Fatalf("the owner got %d %s", got.status, got.body)
	}
	if got := ann.send(callBody(2, "echo"), "MCP-Protocol-Version: "); got.status != 200 {
		t.Errorf("LHTTP34: without a version header: got %d %s", got.status, got.body)
	}
	if got := ann.send(callBody(3, "echo"), "MCP-Protocol-Version: "+june2025); got.status != 200 {
		t.Errorf("LHTTP33: another version than the session's, which only should not be: got %d %s", got.status,
			got.body)
	}
	if got := f.do(http.MethodDelete, "", ann.headers...); got.status != 204 {
		t.Errorf("LHTTP31: DELETE got %d %s", got.status, got.body)
	}
	for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
		body := ""
		if method == http.MethodPost {
			body = callBody(1, "echo")
		}
		if got := f.do(method, body, ann.headers...); got.status != 404 {
			t.Errorf("LHTTP29: %s after the end got %d", method, got.status)
		}
	}
}

func TestMHTTP11_OtherMethodsOfAModernClient(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		got := f.do(method, "", "MCP-Protocol-Version: "+modern)
		if got.status != 405 || got.header.Get("Allow") != "POST, OPTIONS" {
			t.Errorf("%s: got %d, Allow %q", method, got.status, got.header.Get("Allow"))
		}
	}
	for _, method := range []string{http.MethodPut, http.MethodHead, http.MethodPatch} {
		got := f.do(method, "")
		if got.status != 405 || got.header.Get("Allow") != "POST, GET, DELETE, OPTIONS" {
			t.Errorf("%s: got %d, Allow %q", method, got.status, got.header.Get("Allow"))
		}
	}
}

func TestVER08_ErasShareAnEndpoint(t *testing.T) {
	f := start(t, newTestCore(), nil)
	s := f.initialize(november2025)
	body, headers := modernCall("tools/call", `"name":"echo"`)
	if got := s.do(http.MethodPost, body, append(s.headers[:1:1], headers...)...); !strings.Contains(got.body,
		`"resultType"`) {
		t.Errorf("a modern request with a session header: got %s", got.body)
	}
	if got := s.send(callBody(1, "echo")); strings.Contains(got.body, `"resultType"`) {
		t.Errorf("a request of the session: got %s", got.body)
	}
}

func TestLHTTP_FailedInitialize(t *testing.T) {
	f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 1}})
	got := f.do(http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":1}}`)
	if got.code() != mcp.CodeInvalidParams || got.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("got %d %s %s", got.status, got.header, got.body)
	}
	f.initialize(november2025) // the failed one took no room
}

func TestR72_SessionQuota(t *testing.T) {
	f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 4, MaxPerPrincipal: 2}})
	for i, test := range []struct {
		who    string
		status int
	}{{"ann", 200}, {"ann", 200}, {"ann", 429}, {"", 200}, {"", 200}, {"", 503}, {"bob", 503}} {
		got := f.do(http.MethodPost, initializeBody(november2025), "Authorization: "+test.who)
		if got.status != test.status || test.status != 200 && got.header.Get("Retry-After") == "" {
			t.Errorf("session %d of %q: got %d %s", i, test.who, got.status, got.body)
		}
		if i == 1 {
			id := got.header.Get("Mcp-Session-Id")
			defer func() {
				f.do(http.MethodDelete, "", "Mcp-Session-Id: "+id, "Authorization: ann")
				if got := f.do(http.MethodPost, initializeBody(november2025), "Authorization: ann"); got.status != 200 {
					t.Errorf("after one has ended: got %d", got.status)
				}
			}()
		}
	}
}

func TestR72_IdleSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		status := func(s *testSession) int { return s.send(`{"jsonrpc":"2.0","id":1,"method":"ping"}`).status }

		unused := f.do(http.MethodPost, initializeBody(november2025)).header.Get("Mcp-Session-Id")
		used, busy, streaming := f.initialize(november2025), f.initialize(november2025), f.initialize(november2025)
		done := make(chan answer)
		go func() { done <- busy.send(callBody(1, "wait")) }()
		<-core.started
		open := f.stream(streaming.get(t.Context()))
		go io.Copy(io.Discard, open.resp.Body) // comments, until the end

		time.Sleep(25 * time.Minute)
		if got := f.do(http.MethodPost, callBody(1, "echo"), "Mcp-Session-Id: "+unused).status; got != 404 {
			t.Errorf("a session that was never used: got %d", got)
		}
		if got := status(used); got != 200 {
			t.Errorf("a session that was idle for 25 minutes: got %d", got)
		}
		time.Sleep(35 * time.Minute)
		if got := status(used); got != 404 {
			t.Errorf("a session that was idle for 35 minutes: got %d", got)
		}
		core.proceed <- struct{}{}
		if got := <-done; got.status != 200 {
			t.Errorf("a call of an hour: got %d", got.status)
		}
		if got := status(streaming); got != 200 {
			t.Errorf("a session with a stream open: got %d", got)
		}
	})
}

// A question that is never answered holds its session for a limited time, whether or not its client is still there.
func TestR72_UnansweredQuestionFreesItsSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 1}})
		s := f.initialize(november2025)
		ctx, cut := context.WithCancel(t.Context())
		f.stream(s.post(ctx, callBody(1, "ask"))).next()
		cut()
		time.Sleep(39 * time.Minute)
		if got := f.do(http.MethodPost, initializeBody(november2025)); got.status != 503 {
			t.Errorf("a session too many got %d", got.status)
		}
		time.Sleep(2 * time.Minute)
		f.initialize(november2025)
	})
}

func TestShutdownWhileInitializing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, proceed := make(chan struct{}), make(chan struct{})
		f := start(t, mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) {
			close(asked)
			<-proceed
			return mcp.RawResult(`{"supportedVersions":["2026-07-28"],"capabilities":{}}`), nil
		}), nil)
		done := make(chan answer)
		go func() { done <- f.do(http.MethodPost, initializeBody(november2025)) }()
		<-asked
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := f.handler.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want DeadlineExceeded", err)
		}
		close(proceed)
		if got := <-done; got.code() != mcp.CodeInvalidRequest || got.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("got %d %s %s, want an error and no session", got.status, got.header, got.body)
		}
	})
}

func TestRPC15_Batches(t *testing.T) {
	f := start(t, newTestCore(), nil)
	s := f.initialize(march2025)
	requests := "[" + callBody(1, "echo") + `,{"jsonrpc":"2.0","method":"notifications/x"},` + callBody(2, "echo") + "]"
	got := s.send(requests)
	var replies []struct{ ID int }
	if err := json.Unmarshal([]byte(got.body), &replies); err != nil || got.status != 200 || len(replies) != 2 {
		t.Errorf("got %d %s, want both answers", got.status, got.body)
	}
	for _, test := range []struct {
		name, body string
		status     int
	}{
		{"HTTP12 notifications only", `[{"jsonrpc":"2.0","method":"notifications/x"}]`, 202},
		{"RPC17 initialize within", "[" + initializeBody(march2025) + "]", 400},
		{"empty", "[]", 400},
	} {
		if got := s.send(test.body); got.status != test.status {
			t.Errorf("%s: got %d %s", test.name, got.status, got.body)
		}
	}
	for _, version := range []string{november2024, june2025, november2025} {
		if got := f.initialize(version).send(requests); got.status != 400 || got.code() != mcp.CodeInvalidRequest {
			t.Errorf("T02: %s: got %d %s, want 400", version, got.status, got.body)
		}
	}
	if got := f.do(http.MethodPost, requests); got.status != 400 {
		t.Errorf("without a session: got %d", got.status)
	}
	if got := f.do(http.MethodPost, "["+initializeBody(march2025)+"]"); got.status != 400 {
		t.Errorf("RPC17: without a session: got %d", got.status)
	}
}

func TestELI_QuestionTravelsOnTheRequestsStream(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, version := range []string{june2025, november2025} {
		s := f.initialize(version)
		events := f.stream(s.post(t.Context(), callBody(3, "ask")))
		e := events.next()
		if version == november2025 {
			if len(e.Data) != 0 || !e.HasID {
				t.Errorf("LHTTP03: got %q first, want an empty event with an id", e.Data)
			}
			e = events.next()
		}
		var question struct {
			ID     json.RawMessage
			Method string
		}
		if err := json.Unmarshal(e.Data, &question); err != nil || question.Method != "elicitation/create" || !e.HasID {
			t.Fatalf("%s: got %s, want the question", version, e.Data)
		}
		reply := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"name":"Eve"}}}`,
			question.ID)
		other := f.initialize(version)
		if got := other.send(reply); got.status != 202 {
			t.Errorf("an answer on another session: got %d", got.status)
		}
		if got := s.send(reply); got.status != 202 || got.body != "" {
			t.Errorf("HTTP12: the answer: got %d %q", got.status, got.body)
		}
		if e := events.next(); !strings.Contains(string(e.Data), "Eve") || !strings.Contains(string(e.Data), `"id":3`) {
			t.Errorf("got %s, want the result", e.Data)
		}
		events.ends()
	}
}

func TestCAN04_CancelledRequestIsNotAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.initialize(november2025)
		done := make(chan answer)
		go func() { done <- s.send(callBody(5, "wait")) }()
		<-core.started
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5,"reason":"bored"}}`)
		if cause := <-core.causes; !errors.Is(cause, mcp.ErrCancelled) {
			t.Errorf("the cause is %v, want ErrCancelled", cause)
		}
		if got := <-done; got.status != 200 || got.body != "" || got.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("got %d %s %q, want an empty stream", got.status, got.header, got.body)
		}
	})
}

// The connection is lost in the middle of a call. The call goes on, and the client gets the rest, once.
func TestLHTTP08_20_DisconnectDoesNotCancelAndStreamsResume(t *testing.T) {
	for _, finishFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("call over before the client is back: ", finishFirst), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core := newTestCore()
				f := start(t, core, nil)
				s := f.initialize(november2025)
				ctx, cut := context.WithCancel(t.Context())
				before := f.stream(s.post(ctx, callBody(4, "notifywait")))
				primer := before.next()
				seen := before.next()
				<-core.started
				cut()
				synctest.Wait()
				if finishFirst {
					core.proceed <- struct{}{}
					synctest.Wait()
				}
				after := f.stream(s.get(t.Context(), "Last-Event-ID: "+seen.ID))
				if !finishFirst {
					core.proceed <- struct{}{}
				}
				e := after.next()
				if !strings.Contains(string(e.Data), `"id":4`) || !strings.Contains(string(e.Data), "done") {
					t.Errorf("got %s, want the result", e.Data)
				}
				after.ends()

				again := f.stream(s.get(t.Context(), "Last-Event-ID: "+primer.ID))
				if e := again.next(); string(e.Data) != string(seen.Data) || e.ID != seen.ID {
					t.Errorf("got %s %s, want the event that was seen before: %s", e.ID, e.Data, seen.ID)
				}
				again.next()
				again.ends()
			})
		})
	}
}

func TestR734_ForeignEventsAreNotReplayed(t *testing.T) {
	f := start(t, newTestCore(), nil)
	ann := f.initialize(november2025, "Authorization: ann")
	id := f.stream(ann.post(t.Context(), callBody(1, "notify"))).next().ID
	if got := f.open(ann.get(t.Context(), "Last-Event-ID: "+id)); got.StatusCode != 200 {
		t.Fatalf("the owner got %d", got.StatusCode)
	}
	flipped := func(i int) string {
		b := []byte(id)
		b[i] ^= 1
		return string(b)
	}
	for name, lastEvent := range map[string]string{
		"LHTTP22 of another session": id,
		"made up":                    "cAAAAAAAAAAAAAAAAAAAAAAAAAA-1",
		"malformed":                  "1",
		"empty":                      " ",
		"kind changed":               "s" + id[1:],
		"never sent":                 id[:len(id)-1] + "99",
		"one bit changed":            flipped(5),
	} {
		for who, s := range map[string]*testSession{
			"same principal":  f.initialize(november2025, "Authorization: ann"),
			"other principal": f.initialize(november2025, "Authorization: bob"),
			"owner":           ann,
		} {
			if who == "owner" && lastEvent == id {
				continue
			}
			got := f.do(http.MethodGet, "", append(s.headers, "Last-Event-ID: "+lastEvent)...)
			if got.status != 404 || !strings.Contains(got.body, mcphttp.ErrEventUnknown) {
				t.Errorf("%s, %s: got %d %s, want 404", name, who, got.status, got.body)
			}
		}
	}
}

func TestLHTTP05_07_PollingClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.initialize(november2025)
		first := f.stream(s.post(t.Context(), callBody(6, "poll")))
		primer := first.next()
		if len(primer.Data) != 0 || !primer.HasID {
			t.Fatalf("got %q first, want an empty event with an id", primer.Data)
		}
		first.ends()
		if retry, ok := first.Retry(); !ok || retry != 100*time.Millisecond {
			t.Errorf("LHTTP05: got retry %v", retry)
		}
		if err := <-core.polled; err != nil {
			t.Error(err)
		}
		<-core.started
		second := f.stream(s.get(t.Context(), "Last-Event-ID: "+primer.ID))
		core.proceed <- struct{}{}
		if e := second.next(); !strings.Contains(string(e.Data), "polled") {
			t.Errorf("got %s, want the result", e.Data)
		}
		second.ends()
	})
}

func TestT34_35_OlderRevisionsAreNotPrimedNorPolled(t *testing.T) {
	core := newTestCore()
	f := start(t, core, nil)
	for _, version := range []string{march2025, june2025} {
		s := f.initialize(version)
		events := f.stream(s.post(t.Context(), callBody(1, "notify")))
		if e := events.next(); len(e.Data) == 0 || !e.HasID {
			t.Errorf("%s: got an event %q with id %t first, want a message with an id", version, e.Data, e.HasID)
		}
		core.proceed <- struct{}{}
		if got := s.send(callBody(2, "poll")); got.status != 200 || !strings.Contains(got.body, "polled") {
			t.Errorf("%s: got %d %s", version, got.status, got.body)
		}
		if err := <-core.polled; !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: CloseStream gave %v, want ErrUnsupported", version, err)
		}
		<-core.started
	}
	core.proceed <- struct{}{}
	if got := f.modern("tools/call", `"name":"poll"`); got.status != 200 {
		t.Errorf("modern: got %d %s", got.status, got.body)
	}
	if err := <-core.polled; !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("modern: CloseStream gave %v, want ErrUnsupported", err)
	}
}

func TestLHTTP16_ConcurrentStreams(t *testing.T) {
	f := start(t, newTestCore(), nil)
	s := f.initialize(november2025)
	ids := map[string]bool{}
	for n := range 3 {
		events := f.stream(s.post(t.Context(), callBody(n, "notify")))
		for range 4 { // primer, two notifications, result
			e := events.next()
			if ids[e.ID] {
				t.Errorf("LHTTP18: id %s stands twice", e.ID)
			}
			ids[e.ID] = true
		}
		events.ends()
	}
}

func TestR72_CallsInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, &mcphttp.Options{Sessions: mcphttp.SessionOptions{MaxInFlight: 2}})
		s := f.initialize(november2025)
		done := make(chan answer)
		for id := range 2 {
			go func() { done <- s.send(callBody(id+1, "wait")) }()
		}
		<-core.started
		<-core.started
		if got := s.send(callBody(3, "wait")); got.status != 429 || got.code() != mcp.CodeBusy ||
			got.header.Get("Retry-After") != "1" {
			t.Errorf("got %d %s, want 429", got.status, got.body)
		}
		for range 2 {
			core.proceed <- struct{}{}
			<-done
		}
	})
}

// A client that does not read holds its call back, for the write timeout at most. Then the call goes on without it.
func TestR72_UnreadSessionStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		s := f.initialize(november2025)
		conn, err := f.listener.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go s.post(t.Context(), callBody(1, "notifywait")).Write(conn)
		begin := time.Now()
		<-core.started
		if got := time.Since(begin); got != 30*time.Second {
			t.Errorf("the call was held back for %v, want 30s", got)
		}
		core.proceed <- struct{}{}
	})
}

// An idle session has no goroutine, and the default of Max is 10,000 sessions.
func TestIdleSessionsHaveNoGoroutines(t *testing.T) {
	const n = 10_000
	f := start(t, newTestCore(), nil)
	f.initialize(november2025)
	before := runtime.NumGoroutine()
	for range n - 1 {
		resp, err := f.client.Do(f.request(t.Context(), http.MethodPost, initializeBody(november2025)))
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
	if more := runtime.NumGoroutine() - before; more > 10 {
		t.Errorf("%d sessions have %d goroutines", n, more)
	}
	if got := f.do(http.MethodPost, initializeBody(november2025)); got.status != 503 {
		t.Errorf("session 10,001: got %d", got.status)
	}
}
