package mcphttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A hostileMessage is a message that every transport refuses with the same error; see
// ../mcp/testdata/hostile.txt.
type hostileMessage struct {
	name, id, text string
	code           int
}

func hostileMessages(t testing.TB) (all []hostileMessage) {
	t.Helper()
	file, err := os.ReadFile("../mcp/testdata/hostile.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 4 {
			continue
		}
		m := hostileMessage{name: fields[0], id: strings.TrimPrefix(fields[2], "-")}
		var bad error
		if m.text, err = strconv.Unquote(fields[3]); err != nil {
			bad = err
		}
		if m.code, err = strconv.Atoi(strings.Trim(fields[1], "()")); err != nil {
			bad = err
		}
		if bad != nil {
			t.Fatalf("%q: %v", line, bad)
		}
		all = append(all, m)
	}
	return all
}

// A rawClient is a client of one revision that posts on one connection.
type rawClient struct {
	*rawConn
	name     string
	headers  []string
	target   string
	echoBody func(id int) string // a call of the tool "echo"
	events   *stream             // stream of the responses; nil if they are HTTP responses
}

// post posts a body and returns the response.
func (w *rawClient) post(body string, headers ...string) response {
	w.t.Helper()
	lines := append([]string{"POST " + w.target + " HTTP/1.1", "Host: localhost:8765", "Content-Type: application/json",
		"Accept: application/json, text/event-stream", "Content-Length: " + strconv.Itoa(len(body))}, w.headers...)
	w.write(strings.Join(append(lines, headers...), "\r\n") + "\r\n\r\n" + body)
	return w.readResponse()
}

// checkCall checks that a call on the connection succeeds.
func (w *rawClient) checkCall() {
	w.t.Helper()
	got := w.post(w.echoBody(77))
	text := got.body
	if w.events != nil && got.status == http.StatusAccepted {
		got.status, text = 200, string(w.events.next().Data)
	}
	if got.status != 200 || !strings.Contains(text, `"id":77,"result"`) || !strings.Contains(text, `"text":"hi"`) {
		w.t.Fatalf("%s: call of echo: got %d %.300s, want its result", w.name, got.status, text)
	}
}

// rawClients returns a client of each revision.
func (f *fixture) rawClients() (all []*rawClient) {
	f.t.Helper()
	_, modernHeaders := modernCall("tools/call", `"name":"echo"`)
	all = append(all, &rawClient{rawConn: f.raw(), name: "modern", target: "/mcp", headers: modernHeaders,
		echoBody: func(id int) string {
			body, _ := modernCall("tools/call", `"name":"echo","arguments":{"message":"hi"}`)
			return strings.Replace(body, `"id":1`, `"id":`+strconv.Itoa(id), 1)
		}})
	plain := func(id int) string { return callBody(id, "echo") }
	for _, version := range streamableRevisions {
		all = append(all, &rawClient{rawConn: f.raw(), name: version, target: "/mcp",
			headers: f.initialize(version).headers, echoBody: plain})
	}
	sse := f.initializedSSE(f.t.Context())
	return append(all, &rawClient{rawConn: f.raw(), name: november2024, target: "/mcp?" + sse.query, echoBody: plain,
		events: sse.stream})
}

// Requirement: SSE-07, HTTP-13
func TestInvalidMessageDoesNotEndTheConnection(t *testing.T) {
	messages := hostileMessages(t)
	f := start(t, newTestCore(), nil)
	for _, w := range f.rawClients() {
		t.Run(w.name, func(t *testing.T) {
			w.t = t
			for _, m := range messages {
				got := w.post(m.text)
				var body struct{ ID json.RawMessage }
				json.Unmarshal([]byte(got.body), &body)
				if got.status != 400 || got.code() != m.code || string(body.ID) != m.id ||
					got.header.Get("Content-Type") != "application/json" {
					t.Errorf("%s: got %d %s, want 400 with code %d and id %q", m.name, got.status, got.body, m.code,
						m.id)
				}
				w.checkCall() // on the same connection
			}
		})
	}
}

func TestInvalidBatchesAreRefused(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, w := range f.rawClients() {
		for _, batch := range []string{`[]`, `[`, `[` + callBody(1, "echo"), "[" + strings.Repeat(`{},`, 100) + `{}]`,
			`[` + initializeBody(march2025) + `]`} {
			if got := w.post(batch); got.status/100 != 4 && w.name != november2024 || got.status/100 == 5 {
				t.Errorf("%s: %.50s: got %d %.200s, want 4xx", w.name, batch, got.status, got.body)
			}
		}
		if w.name != november2024 {
			w.checkCall()
		}
	}
}

func TestMessagesWithoutAMatchingRequestAreAccepted(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, w := range f.rawClients() {
		modern := w.name == "modern"
		for _, id := range []string{`1`, `"x"`, `99999999999999999999`} {
			for _, message := range []string{
				`{"jsonrpc":"2.0","id":` + id + `,"result":{"action":"accept","content":{}}}`,
				`{"jsonrpc":"2.0","id":` + id + `,"error":{"code":-1,"message":"no"}}`,
				`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`,
				`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":` + id +
					`,"progress":"x"}}`,
				`{"jsonrpc":"2.0","method":"notifications/no-such","params":[]}`,
				`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"panic"}}`,
			} {
				want := 202
				if modern && !strings.Contains(message, `"method":"tools/call"`) {
					want = 400 // a response, or a method that differs from the header
				}
				if got := w.post(message); got.status != want || want == 202 && got.body != "" {
					t.Errorf("%s: %s: got %d %s, want %d", w.name, message, got.status, got.body, want)
				}
			}
		}
		w.checkCall()
	}
}

func TestPanicIsNotDisclosed(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, w := range f.rawClients() {
		body := strings.NewReplacer(`"echo"`, `"panic"`).Replace(w.echoBody(1))
		headers := w.headers
		if w.name == "modern" {
			_, w.headers = modernCall("tools/call", `"name":"panic"`)
		}
		got := w.post(body)
		w.headers = headers
		if w.events != nil {
			got.body = string(w.events.next().Data)
		}
		if got.code() != mcp.CodeInternalError || strings.Contains(got.body, "purpose") ||
			strings.Contains(got.body, "goroutine") {
			t.Errorf("%s: got %d %s, want an internal error without details", w.name, got.status, got.body)
		}
		w.checkCall()
	}
}

func TestManyPingsHaveResponses(t *testing.T) {
	const pings = 1000
	f := start(t, newTestCore(), nil)
	for _, w := range f.rawClients() {
		if w.name == "modern" {
			continue // it has no ping
		}
		for n := range pings {
			id := strconv.Itoa(n)
			got := w.post(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
			if w.events != nil {
				got.body = string(w.events.next().Data)
			}
			if got.body != `{"jsonrpc":"2.0","id":`+id+`,"result":{}}` {
				t.Fatalf("%s: ping %d: got %d %s, want a result", w.name, n, got.status, got.body)
			}
		}
		w.checkCall()
	}
}

// The number of log messages and of progress notifications that the tool "burst" sends.
const burstMessages, burstProgress = 3000, 500

func newBurstServer() *mcp.Server {
	server := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
	mcp.AddTool(server, &mcp.Tool{Name: "burst"}, func(ctx context.Context, _ struct{}) (string, error) {
		for n := range burstMessages {
			mcp.Logger(ctx).Info(strconv.Itoa(n))
			if n < burstProgress {
				mcp.Progress(ctx, float64(n+1), burstProgress, "")
			}
		}
		return "burst", nil
	})
	return server
}

// Requirement: HTTP-16
func TestBurstOfNotificationsIsCompleteAndInOrder(t *testing.T) {
	f := start(t, newBurstServer(), nil)
	body, headers := modernCall("tools/call", `"name":"burst"`)
	body = strings.Replace(body, `"_meta":{`,
		`"_meta":{"progressToken":"p","io.modelcontextprotocol/logLevel":"debug",`, 1)
	plain := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"burst","_meta":{"progressToken":"p"}}}`
	sse := f.initializedSSE(t.Context())
	for name, open := range map[string]func() *stream{
		"modern":     func() *stream { return f.stream(f.request(t.Context(), http.MethodPost, body, headers...)) },
		november2025: func() *stream { return f.stream(f.initialize(november2025).post(t.Context(), plain)) },
		june2025:     func() *stream { return f.stream(f.initialize(june2025).post(t.Context(), plain)) },
		march2025:    func() *stream { return f.stream(f.initialize(march2025).post(t.Context(), plain)) },
		november2024: func() *stream { sse.post(plain); return sse.stream },
	} {
		t.Run(name, func(t *testing.T) { readBurst(t, open()) })
	}
}

// readBurst checks everything that the tool "burst" sends, in its order.
func readBurst(t *testing.T, events *stream) {
	t.Helper()
	logged, progress := 0, 0
	for {
		e := events.next()
		var m struct {
			Method string
			Params struct {
				Data     string
				Progress int
			}
			Result json.RawMessage
		}
		if err := json.Unmarshal(e.Data, &m); err != nil && len(e.Data) > 0 {
			t.Fatalf("%v: %s", err, e.Data)
		}
		switch {
		case len(e.Data) == 0: // the event has only an id
		case m.Method == "notifications/message":
			if m.Params.Data != strconv.Itoa(logged) {
				t.Fatalf("got message %s, want %d", m.Params.Data, logged)
			}
			logged++
		case m.Method == "notifications/progress":
			if progress++; m.Params.Progress != progress {
				t.Fatalf("got progress %d, want %d", m.Params.Progress, progress)
			}
		default:
			if logged != burstMessages || progress != burstProgress || !strings.Contains(string(m.Result), "burst") {
				t.Errorf("got %s after %d messages and %d of progress, want the result after %d and %d", e.Data, logged,
					progress, burstMessages, burstProgress)
			}
			return
		}
	}
}

// A requestCounter counts the requests that the handler receives.
type requestCounter struct {
	*testCore
	served atomic.Int64
}

func (w *requestCounter) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	w.served.Add(1)
	return w.testCore.ServeMCP(ctx, req)
}

// requestsOfEveryKind returns a valid request of every kind.
func (f *fixture) requestsOfEveryKind(session *testSession, sse *sseClient) map[string]*http.Request {
	ctx := f.t.Context()
	body, headers := modernCall("tools/call", `"name":"echo"`)
	query := "Query: " + sse.query
	return map[string]*http.Request{
		"modern call":       f.request(ctx, http.MethodPost, body, headers...),
		"initialize":        f.request(ctx, http.MethodPost, initializeBody(november2025)),
		"call of a session": session.post(ctx, callBody(1, "echo")),
		"notification": session.post(ctx,
			`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`),
		"GET of a session":       session.get(ctx),
		"DELETE of a session":    f.request(ctx, http.MethodDelete, "", session.headers...),
		"OPTIONS":                f.request(ctx, http.MethodOptions, "", "Access-Control-Request-Method: POST"),
		"PUT":                    f.request(ctx, http.MethodPut, body, headers...),
		"GET of HTTP+SSE":        f.request(ctx, http.MethodGet, ""),
		"POST of HTTP+SSE":       f.request(ctx, http.MethodPost, callBody(1, "echo"), query),
		"OPTIONS of HTTP+SSE":    f.request(ctx, http.MethodOptions, "", query),
		"initialize of HTTP+SSE": f.request(ctx, http.MethodPost, initializeBody(november2024), query),
	}
}

// Requests that a browser sends for a page of another site have no effect.
//
// Requirement: HTTP-01, HTTP-02, SSE-05
func TestCrossSiteRequestsAreRefused(t *testing.T) {
	attacks := map[string]func(r *http.Request){}
	for _, host := range []string{"evil.example", "evil.example:8765", "localhost.evil.example:8765",
		"127.0.0.1.evil.example", "localhost@evil.example",
		"evil.example#localhost", "0.0.0.0:8765", "192.168.1.5:8765", "[::ffff:7f00:1]x", "localhost:8765:1",
		"ⅼocalhost:8765", "loca\u212Ahost", "2130706433", "0177.0.0.1"} {
		attacks["Host "+host] = func(r *http.Request) { r.Host = host }
	}
	for _, origin := range []string{"http://evil.example", "https://evil.example", "null", "http://localhost:1234",
		"http://localhost:8765.evil.example",
		"http://localhost:8765/", "http://LOCALHOST:8765", "file://", "chrome-extension://abcdef", "localhost:8765",
		"http://127.0.0.1:8765", "http://localhost:8765, http://evil.example", ""} {
		attacks["Origin "+origin] = func(r *http.Request) { r.Header["Origin"] = []string{origin} }
	}
	for _, site := range []string{"cross-site", "same-site", "Same-Origin", ""} {
		attacks["Sec-Fetch-Site "+site] = func(r *http.Request) { r.Header["Sec-Fetch-Site"] = []string{site} }
	}
	core := &requestCounter{testCore: newTestCore()}
	f := start(t, core, &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 3}})
	session, sse := f.initialize(november2025), f.initializedSSE(t.Context())
	before := core.served.Load()
	for name, attack := range attacks {
		for kind, r := range f.requestsOfEveryKind(session, sse) {
			attack(r)
			resp, err := f.client.Do(r)
			if err != nil {
				t.Errorf("%s with %s: %v", kind, name, err)
				continue
			}
			body, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
			resp.Body.Close()
			// net/http itself refuses a Host that is invalid.
			if resp.StatusCode != 403 && resp.StatusCode != 400 || resp.StatusCode == 400 &&
				!strings.HasPrefix(name, "Host") {
				t.Errorf("%s with %s: got %d %s, want 403", kind, name, resp.StatusCode, body)
			}
			for header := range resp.Header {
				if strings.HasPrefix(header, "Access-Control-") || header == "Mcp-Session-Id" {
					t.Errorf("%s with %s: the response has header %s", kind, name, header)
				}
			}
		}
	}
	if got := core.served.Load() - before; got != 0 {
		t.Errorf("the handler received %d requests, want none", got)
	}
	// The session still exists, and no other was opened.
	if got := session.send(callBody(1, "echo")); got.status != 200 {
		t.Errorf("call of the session: got %d %s, want 200", got.status, got.body)
	}
	f.initialize(november2025)
	sse.post(callBody(2, "echo"))
	if got := string(sse.next().Data); !strings.Contains(got, `"id":2,"result"`) {
		t.Errorf("stream of HTTP+SSE: got %s, want the result", got)
	}
}

// Browsers send requests with these media types to other sites without a CORS preflight.
func TestCrossSiteMediaTypesAreRefused(t *testing.T) {
	core := &requestCounter{testCore: newTestCore()}
	f := start(t, core, nil)
	sse := f.initializedSSE(t.Context())
	session := f.initialize(november2025)
	before := core.served.Load()
	for _, media := range []string{"", "text/plain", "application/x-www-form-urlencoded",
		"multipart/form-data; boundary=x", "text/plain; application/json",
		"application/jsonx", "application/json, text/plain", "application/json; charset=utf-16",
		"application/ld+json", "APPLICATION", ";", "application/json;;charset"} {
		for kind, r := range f.requestsOfEveryKind(session, sse) {
			if r.Method != http.MethodPost {
				continue
			}
			r.Header["Content-Type"] = []string{media}
			if media == "" {
				r.Header.Del("Content-Type")
			}
			resp := f.open(r)
			if resp.StatusCode != http.StatusUnsupportedMediaType {
				t.Errorf("%s as %q: got %d, want 415", kind, media, resp.StatusCode)
			}
		}
	}
	if got := core.served.Load() - before; got != 0 {
		t.Errorf("the handler received %d requests, want none", got)
	}
}

func TestRepeatedHeadersAreRefused(t *testing.T) {
	core := &requestCounter{testCore: newTestCore()}
	f := start(t, core, &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 4}})
	session, sse := f.initialize(november2025), f.initializedSSE(t.Context())
	before := core.served.Load()
	for name, value := range map[string]string{
		"Mcp-Session-Id": session.id, "Mcp-Protocol-Version": november2025, "Mcp-Method": "tools/call",
		"Mcp-Name": "echo", "Mcp-Param-Region": "x", "Mcp-Param-x": "x", "Authorization": "ann", "Last-Event-Id": "x",
		"Content-Type": "application/json", "Origin": "http://localhost:8765", "Content-Encoding": "identity",
	} {
		for _, second := range []string{value, "other", ""} {
			for kind, r := range f.requestsOfEveryKind(session, sse) {
				r.Header[http.CanonicalHeaderKey(name)] = []string{value, second}
				resp := f.open(r)
				if resp.StatusCode != http.StatusBadRequest {
					t.Errorf("%s with %s twice (%q): got %d, want 400", kind, name, second, resp.StatusCode)
				}
			}
		}
	}
	conn := f.raw()
	conn.write("POST /mcp HTTP/1.1\r\nHost: localhost:8765\r\nHost: localhost:8765\r\nContent-Length: 0\r\n\r\n")
	if got := conn.readResponse(); got.status != 400 {
		t.Errorf("two Host headers: got %d, want 400", got.status)
	}
	if got := core.served.Load() - before; got != 0 {
		t.Errorf("the handler received %d requests, want none", got)
	}
	if got := session.send(callBody(1, "echo")); got.status != 200 {
		t.Errorf("call of the session: got %d %s, want 200", got.status, got.body)
	}
}

// Other principals get the same responses for a session as for an unknown one.
//
// Requirement: SEC-10
func TestSessionsOfOtherPrincipalsAreUnknown(t *testing.T) {
	for _, owner := range []string{"ann", ""} {
		forEach(t, streamableRevisions, func(t *testing.T, version string) {
			core := newTestCore()
			f := start(t, core, nil)
			as := func(subject string) (headers []string) {
				if subject != "" {
					headers = []string{"Authorization: " + subject}
				}
				return headers
			}
			s := f.initialize(version, as(owner)...)
			sse := f.initializedSSE(t.Context(), as(owner)...)
			asking := f.stream(s.post(t.Context(), callBody(1, "sample")))
			first := asking.next()
			event := first
			if version == november2025 { // the first event has only an id
				event = asking.next()
			}
			var question struct{ ID, Method string }
			if json.Unmarshal(event.Data, &question); question.Method != "sampling/createMessage" {
				t.Fatalf("got %q, want sampling/createMessage", question.Method)
			}
			reply := `{"jsonrpc":"2.0","id":"` + question.ID +
				`","result":{"role":"assistant","model":"m","content":{"type":"text","text":"%s"}}}`
			foreign, unknown := "Mcp-Session-Id: "+s.id, "Mcp-Session-Id: "+strings.Repeat("A", len(s.id))
			for _, subject := range []string{"bob", "ANN", "an", "anna", "test", ""} {
				if subject == owner {
					continue
				}
				attempt := func(method, body string, headers ...string) (got, want response) {
					headers = append(headers, as(subject)...)
					return f.do(method, body, append(headers, foreign)...), f.do(method, body,
						append(headers, unknown)...)
				}
				for what, attempt := range map[string]func() (got, want response){
					"call": func() (got, want response) { return attempt(http.MethodPost, callBody(2, "echo")) },
					"ping": func() (got, want response) {
						return attempt(http.MethodPost,
							`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
					},
					"cancellation": func() (got, want response) {
						return attempt(http.MethodPost,
							`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
					},
					"response": func() (got, want response) {
						return attempt(http.MethodPost,
							fmt.Sprintf(reply, subject))
					},
					"stream": func() (got, want response) { return attempt(http.MethodGet, "") },
					"resumption": func() (got, want response) {
						return attempt(http.MethodGet, "",
							"Last-Event-ID: "+first.ID)
					},
					"end": func() (got, want response) { return attempt(http.MethodDelete, "") },
				} {
					got, want := attempt()
					if got.status != 404 || want.status != 404 || got.body != want.body ||
						len(got.header) != len(want.header) {
						t.Errorf("%s of %q: got %d %s, want as for an unknown session: %d %s", what, subject,
							got.status, got.body, want.status, want.body)
					}
				}
				for _, body := range []string{callBody(2, "echo"), initializeBody(november2024),
					fmt.Sprintf(reply, subject)} {
					if got := f.do(http.MethodPost, body,
						append(as(subject), "Query: "+sse.query)...); got.status != 404 {
						t.Errorf("HTTP+SSE: %.60s of %q: got %d %s, want 404", body, subject, got.status, got.body)
					}
				}
			}
			// A response counts only on the session that received the question.
			other := f.initialize(version, as(owner)...)
			if got := other.send(fmt.Sprintf(reply, "another session")); got.status != 202 {
				t.Errorf("response on another session: got %d %s, want 202", got.status, got.body)
			}
			sse.post(fmt.Sprintf(reply, "another session"))
			if got := s.send(fmt.Sprintf(reply, "the owner")); got.status != 202 {
				t.Errorf("response: got %d %s, want 202", got.status, got.body)
			}
			if got := string(asking.next().Data); !strings.Contains(got, "the owner") ||
				strings.Contains(got, "another") {
				t.Errorf("got %s, want the result with the owner's response", got)
			}
			asking.expectEnd()
			if got := s.send(callBody(2, "echo")); got.status != 200 {
				t.Errorf("call of the owner: got %d %s, want 200", got.status, got.body)
			}
		})
	}
}

func TestOnlyTheFirstResponseToAQuestionCounts(t *testing.T) {
	f := start(t, newTestCore(), nil)
	s := f.initialize(november2025)
	asking := f.stream(s.post(t.Context(), callBody(1, "ask")))
	asking.next()
	var question struct{ ID string }
	json.Unmarshal(asking.next().Data, &question)
	for _, name := range []string{"first", "second", "third"} {
		s.send(`{"jsonrpc":"2.0","id":"` + question.ID + `","result":{"action":"accept","content":{"name":"` + name +
			`"}}}`)
	}
	if got := string(asking.next().Data); !strings.Contains(got, "first") {
		t.Errorf("got %s, want the first response", got)
	}
	asking.expectEnd()
}

func TestStandaloneStream_SecondOneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
		mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(context.Context, struct{}) (string, error) { return "", nil })
		f := start(t, server, nil)
		s := f.initialize(november2025)
		first := f.stream(s.get(t.Context()))
		events := make(chan sse.Event, 10)
		go func() {
			for {
				e, err := first.Next()
				if err != nil {
					close(events)
					return
				}
				events <- e
			}
		}()
		for range 3 {
			if got := f.do(http.MethodGet, "", s.headers...); got.status != http.StatusConflict {
				t.Errorf("second stream: got %d %s, want 409", got.status, got.body)
			}
		}
		synctest.Wait()
		mcp.AddTool(server, &mcp.Tool{Name: "new"}, func(context.Context, struct{}) (string, error) { return "", nil })
		for e := range events {
			if strings.Contains(string(e.Data), "notifications/tools/list_changed") {
				break
			}
		}
	})
}

func TestErrorsOfHandlersAreNotDisclosed(t *testing.T) {
	server := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
	mcp.AddResource(server, &mcp.Resource{URI: "mem:broken", Name: "broken"},
		func(context.Context, string) (string, error) {
			_, err := os.ReadFile("/secret/token")
			return "", err
		})
	mcp.AddResource(server, &mcp.Resource{URI: "mem:down", Name: "down"},
		func(context.Context, string) (string, error) {
			return "", fmt.Errorf("dial postgres://user:secret@db: refused")
		})
	f := start(t, server, nil)
	for _, uri := range []string{"mem:broken", "mem:down"} {
		got := f.modern("resources/read", `"uri":"`+uri+`"`)
		if got.code() == 0 || strings.Contains(got.body, "secret") {
			t.Errorf("%s: got %s, want an error without details", uri, got.body)
		}
	}
}
