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

// A hostileMessage is one of those that every transport refuses alike; see ../mcp/testdata/hostile.txt.
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

// A wire is a client of one kind: it posts on one connection.
type rawClient struct {
	*rawConn
	name     string
	headers  []string
	target   string
	echoBody func(id int) string // a request for the tool "echo"
	events   *stream             // where the answers are; nil for the response itself
}

// post posts a body and returns the response.
func (w *rawClient) post(body string, headers ...string) response {
	w.t.Helper()
	lines := append([]string{"POST " + w.target + " HTTP/1.1", "Host: localhost:8765", "Content-Type: application/json",
		"Accept: application/json, text/event-stream", "Content-Length: " + strconv.Itoa(len(body))}, w.headers...)
	w.write(strings.Join(append(lines, headers...), "\r\n") + "\r\n\r\n" + body)
	return w.readResponse()
}

// works makes sure that the connection, and what belongs to it, still does what it should.
func (w *rawClient) checkCall() {
	w.t.Helper()
	got := w.post(w.echoBody(77))
	text := got.body
	if w.events != nil && got.status == http.StatusAccepted {
		got.status, text = 200, string(w.events.next().Data)
	}
	if got.status != 200 || !strings.Contains(text, `"id":77,"result"`) || !strings.Contains(text, `"text":"hi"`) {
		w.t.Fatalf("%s: a good call got %d %.300s", w.name, got.status, text)
	}
}

// wires are a client of each kind.
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
	oldest := f.initializedSSE(f.t.Context())
	return append(all, &rawClient{rawConn: f.raw(), name: november2024, target: "/mcp?" + oldest.query, echoBody: plain,
		events: oldest.stream})
}

func TestR7_1_5_OneBadMessageCostsOneError(t *testing.T) {
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

func TestR7_1_5_BatchesOutOfPlace(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, w := range f.rawClients() {
		for _, batch := range []string{`[]`, `[`, `[` + callBody(1, "echo"), "[" + strings.Repeat(`{},`, 100) + `{}]`,
			`[` + initializeBody(march2025) + `]`} {
			if got := w.post(batch); got.status/100 != 4 && w.name != november2024 || got.status/100 == 5 {
				t.Errorf("%s: %.50s: got %d %.200s", w.name, batch, got.status, got.body)
			}
		}
		if w.name != november2024 {
			w.checkCall()
		}
	}
}

func TestR7_1_5_StrayMessages(t *testing.T) {
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
					want = 400 // no such kind of message, or another method than in the header
				}
				if got := w.post(message); got.status != want || want == 202 && got.body != "" {
					t.Errorf("%s: %s: got %d %s, want %d", w.name, message, got.status, got.body, want)
				}
			}
		}
		w.checkCall()
	}
}

func TestR7_1_6_PanicIsNotDisclosed(t *testing.T) {
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
			t.Errorf("%s: got %d %s", w.name, got.status, got.body)
		}
		w.checkCall()
	}
}

func TestR7_3_12_ManyPings(t *testing.T) {
	const pings = 1000
	f := start(t, newTestCore(), nil)
	for _, w := range f.rawClients() {
		if w.name == "modern" {
			continue // it has none
		}
		for n := range pings {
			id := strconv.Itoa(n)
			got := w.post(`{"jsonrpc":"2.0","id":` + id + `,"method":"ping"}`)
			if w.events != nil {
				got.body = string(w.events.next().Data)
			}
			if got.body != `{"jsonrpc":"2.0","id":`+id+`,"result":{}}` {
				t.Fatalf("%s: ping %d: got %d %s", w.name, n, got.status, got.body)
			}
		}
		w.checkCall()
	}
}

// burstNotes messages and burstProgress notes of progress are what a call sends next to its result.
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

func TestR7_3_6_BurstArrivesWholeAndInOrder(t *testing.T) {
	f := start(t, newBurstServer(), nil)
	body, headers := modernCall("tools/call", `"name":"burst"`)
	body = strings.Replace(body, `"_meta":{`,
		`"_meta":{"progressToken":"p","io.modelcontextprotocol/logLevel":"debug",`, 1)
	plain := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"burst","_meta":{"progressToken":"p"}}}`
	oldest := f.initializedSSE(t.Context())
	for name, open := range map[string]func() *stream{
		"modern":     func() *stream { return f.stream(f.request(t.Context(), http.MethodPost, body, headers...)) },
		november2025: func() *stream { return f.stream(f.initialize(november2025).post(t.Context(), plain)) },
		march2025:    func() *stream { return f.stream(f.initialize(march2025).post(t.Context(), plain)) },
		november2024: func() *stream { oldest.post(plain); return oldest.stream },
	} {
		t.Run(name, func(t *testing.T) { readBurst(t, open()) })
	}
}

// wholeBurst reads all that the tool "burst" sends.
func readBurst(t *testing.T, events *stream) {
	t.Helper()
	notes, progress := 0, 0
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
		case len(e.Data) == 0: // it is there for its id
		case m.Method == "notifications/message":
			if m.Params.Data != strconv.Itoa(notes) {
				t.Fatalf("message %s comes as number %d", m.Params.Data, notes)
			}
			notes++
		case m.Method == "notifications/progress":
			if progress++; m.Params.Progress != progress {
				t.Fatalf("progress %d comes as number %d", m.Params.Progress, progress)
			}
		default:
			if notes != burstMessages || progress != burstProgress || !strings.Contains(string(m.Result), "burst") {
				t.Errorf("%s comes after %d messages and %d notes of progress", e.Data, notes, progress)
			}
			return
		}
	}
}

// A witness counts what is let through to it.
type requestCounter struct {
	*testCore
	served atomic.Int64
}

func (w *requestCounter) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	w.served.Add(1)
	return w.testCore.ServeMCP(ctx, req)
}

// attempts are a request of every kind, complete but for what the test adds.
func (f *fixture) requestsOfEveryKind(session *testSession, oldest *sseClient) map[string]*http.Request {
	ctx := f.t.Context()
	body, headers := modernCall("tools/call", `"name":"echo"`)
	query := "Query: " + oldest.query
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

// What a web page of another site can make a browser send gets nowhere, whatever it is, and changes nothing.
func TestR7_3_1_PagesOfOtherSites(t *testing.T) {
	attacks := map[string]func(r *http.Request){}
	for _, host := range []string{"evil.example", "evil.example:8765", "localhost.evil.example:8765",
		"127.0.0.1.evil.example", "localhost@evil.example",
		"evil.example#localhost", "0.0.0.0:8765", "192.168.1.5:8765", "[::ffff:7f00:1]x", "localhost:8765:1", "ⅼocalhost:8765", "loca\u212Ahost", "2130706433", "0177.0.0.1"} {
		attacks["Host "+host] = func(r *http.Request) { r.Host = host }
	}
	for _, origin := range []string{"http://evil.example", "https://evil.example", "null", "http://localhost:1234",
		"http://localhost:8765.evil.example",
		"http://localhost:8765/", "http://LOCALHOST:8765", "file://", "chrome-extension://abcdef", "localhost:8765", "http://127.0.0.1:8765", "http://localhost:8765, http://evil.example", ""} {
		attacks["Origin "+origin] = func(r *http.Request) { r.Header["Origin"] = []string{origin} }
	}
	for _, site := range []string{"cross-site", "same-site", "Same-Origin", ""} {
		attacks["Sec-Fetch-Site "+site] = func(r *http.Request) { r.Header["Sec-Fetch-Site"] = []string{site} }
	}
	core := &requestCounter{testCore: newTestCore()}
	f := start(t, core, &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 3}})
	session, oldest := f.initialize(november2025), f.initializedSSE(t.Context())
	before := core.served.Load()
	for name, attack := range attacks {
		for kind, r := range f.requestsOfEveryKind(session, oldest) {
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
					t.Errorf("%s with %s: the answer has the header %s", kind, name, header)
				}
			}
		}
	}
	if got := core.served.Load() - before; got != 0 {
		t.Errorf("%d requests were served", got)
	}
	// The session is still there, and none was opened beside it.
	if got := session.send(callBody(1, "echo")); got.status != 200 {
		t.Errorf("the session got %d %s", got.status, got.body)
	}
	f.initialize(november2025)
	oldest.post(callBody(2, "echo"))
	if got := string(oldest.next().Data); !strings.Contains(got, `"id":2,"result"`) {
		t.Errorf("the stream has %s", got)
	}
}

// What browsers send across sites without asking first is not read.
func TestR7_3_1_SimpleRequests(t *testing.T) {
	core := &requestCounter{testCore: newTestCore()}
	f := start(t, core, nil)
	oldest := f.initializedSSE(t.Context())
	session := f.initialize(november2025)
	before := core.served.Load()
	for _, media := range []string{"", "text/plain", "application/x-www-form-urlencoded",
		"multipart/form-data; boundary=x", "text/plain; application/json",
		"application/jsonx", "application/json, text/plain", "application/json; charset=utf-16", "application/ld+json", "APPLICATION", ";", "application/json;;charset"} {
		for kind, r := range f.requestsOfEveryKind(session, oldest) {
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
		t.Errorf("%d requests were served", got)
	}
}

func TestR7_3_2_HeadersThatStandTwice(t *testing.T) {
	core := &requestCounter{testCore: newTestCore()}
	f := start(t, core, &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 2}})
	session, oldest := f.initialize(november2025), f.initializedSSE(t.Context())
	before := core.served.Load()
	for name, value := range map[string]string{
		"Mcp-Session-Id": session.id, "Mcp-Protocol-Version": november2025, "Mcp-Method": "tools/call", "Mcp-Name": "echo", "Mcp-Param-Region": "x",
		"Mcp-Param-x": "x", "Authorization": "ann", "Last-Event-Id": "x", "Content-Type": "application/json", "Origin": "http://localhost:8765", "Content-Encoding": "identity",
	} {
		for _, second := range []string{value, "other", ""} {
			for kind, r := range f.requestsOfEveryKind(session, oldest) {
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
		t.Errorf("two hosts: got %d", got.status)
	}
	if got := core.served.Load() - before; got != 0 {
		t.Errorf("%d requests were served", got)
	}
	if got := session.send(callBody(1, "echo")); got.status != 200 {
		t.Errorf("the session got %d %s", got.status, got.body)
	}
}

// To everyone but its principal a session does not exist: not even the words differ.
func TestR7_3_3_SessionsOfOthersDoNotExist(t *testing.T) {
	for _, owner := range []string{"ann", ""} {
		t.Run("of "+owner, func(t *testing.T) {
			core := newTestCore()
			f := start(t, core, nil)
			as := func(who string) (headers []string) {
				if who != "" {
					headers = []string{"Authorization: " + who}
				}
				return headers
			}
			s := f.initialize(november2025, as(owner)...)
			oldest := f.initializedSSE(t.Context(), as(owner)...)
			asking := f.stream(s.post(t.Context(), callBody(1, "ask")))
			first := asking.next().ID
			var question struct{ ID, Method string }
			if json.Unmarshal(asking.next().Data, &question); question.Method != "elicitation/create" {
				t.Fatalf("no question, but %s", question.Method)
			}
			answers := `{"jsonrpc":"2.0","id":"` + question.ID +
				`","result":{"action":"accept","content":{"name":"%s"}}}`
			foreign, unknown := "Mcp-Session-Id: "+s.id, "Mcp-Session-Id: "+strings.Repeat("A", len(s.id))
			for _, who := range []string{"bob", "ANN", "an", "anna", "test", ""} {
				if who == owner {
					continue
				}
				attempt := func(method, body string, headers ...string) (got, none response) {
					headers = append(headers, as(who)...)
					return f.do(method, body, append(headers, foreign)...), f.do(method, body,
						append(headers, unknown)...)
				}
				for what, attempt := range map[string]func() (response, response){
					"call": func() (response, response) { return attempt(http.MethodPost, callBody(2, "echo")) },
					"ping": func() (response, response) {
						return attempt(http.MethodPost,
							`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
					},
					"cancellation": func() (response, response) {
						return attempt(http.MethodPost,
							`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
					},
					"answer": func() (response, response) {
						return attempt(http.MethodPost,
							fmt.Sprintf(answers, who))
					},
					"stream": func() (response, response) { return attempt(http.MethodGet, "") },
					"resumption": func() (response, response) {
						return attempt(http.MethodGet, "",
							"Last-Event-ID: "+first)
					},
					"end": func() (response, response) { return attempt(http.MethodDelete, "") },
				} {
					got, none := attempt()
					if got.status != 404 || none.status != 404 || got.body != none.body ||
						len(got.header) != len(none.header) {
						t.Errorf("%s of %q: got %d %s, want what an unknown session gets: %d %s", what, who,
							got.status, got.body, none.status, none.body)
					}
				}
				for _, body := range []string{callBody(2, "echo"), initializeBody(november2024),
					fmt.Sprintf(answers, who)} {
					if got := f.do(http.MethodPost, body,
						append(as(who), "Query: "+oldest.query)...); got.status != 404 {
						t.Errorf("HTTP+SSE: %.60s of %q: got %d %s", body, who, got.status, got.body)
					}
				}
			}
			// An answer counts on the session that was asked, and on no other one of the same principal.
			other := f.initialize(november2025, as(owner)...)
			if got := other.send(fmt.Sprintf(answers, "another session")); got.status != 202 {
				t.Errorf("an answer to nothing: got %d %s", got.status, got.body)
			}
			oldest.post(fmt.Sprintf(answers, "another session"))
			if got := s.send(fmt.Sprintf(answers, "the owner")); got.status != 202 {
				t.Errorf("the answer got %d %s", got.status, got.body)
			}
			if got := string(asking.next().Data); !strings.Contains(got, "the owner") ||
				strings.Contains(got, "another") {
				t.Errorf("the call was answered %s", got)
			}
			asking.expectEnd()
			if got := s.send(callBody(2, "echo")); got.status != 200 {
				t.Errorf("the owner got %d %s", got.status, got.body)
			}
		})
	}
}

// An answer counts once.
func TestR7_3_13_SecondAnswersAreDropped(t *testing.T) {
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
		t.Errorf("the call was answered %s", got)
	}
	asking.expectEnd()
}

func TestR7_3_5_SecondStreamOfASession(t *testing.T) {
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
				t.Errorf("a second stream: got %d %s, want 409", got.status, got.body)
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

// No answer of any kind holds what only the server's own log is for.
func TestR7_1_6_ErrorsSayNoMoreThanTheyShould(t *testing.T) {
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
			t.Errorf("%s: got %s", uri, got.body)
		}
	}
}
