package mcphttp_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func TestLimits_OfMessages(t *testing.T) {
	f := start(t, newTestCore(), nil)
	nested := func(depth int) string { return strings.Repeat("[", depth) + strings.Repeat("]", depth) }
	keys := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, `,"k%d":0`, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	with := func(id, member string) string {
		body, _ := modernCall("tools/call", `"name":"echo","x":`+member)
		return strings.Replace(body, `"id":1`, `"id":`+id, 1)
	}
	_, headers := modernCall("tools/call", `"name":"echo"`)
	session := f.initialize(november2025)
	for _, test := range []struct {
		name, body string
		code       int
		id         string
	}{
		{"depth", with(`7`, nested(62)), 0, `7`},
		{"depth, one more", with(`7`, nested(63)), mcp.CodeInvalidRequest, `7`},
		{"keys", with(`7`, keys(10_000)), 0, `7`},
		{"keys, one more", with(`7`, keys(10_001)), mcp.CodeInvalidRequest, `7`},
		{"id", with(`"`+strings.Repeat("i", 256)+`"`, `0`), 0, `"` + strings.Repeat("i", 256) + `"`},
		{"id, one more", with(`"`+strings.Repeat("i", 257)+`"`, `0`), mcp.CodeInvalidRequest, ``},
		{"digits", with(strings.Repeat("9", 20), `0`), 0, strings.Repeat("9", 20)},
		{"digits, one more", with(strings.Repeat("9", 21), `0`), mcp.CodeInvalidRequest, ``},
	} {
		for era, headers := range map[string][]string{"modern": headers, "session": session.headers} {
			body := test.body
			if era == "session" {
				body = body[:strings.Index(body, `,"_meta"`)] + "}}"
			}
			got := f.do(http.MethodPost, body, headers...)
			status := http.StatusOK
			if test.code != 0 {
				status = http.StatusBadRequest
			}
			hasID := strings.Contains(got.body, `"id":`+test.id+`,`) && test.id != "" || test.id == "" &&
				!strings.Contains(got.body, `"id":`)
			if got.status != status || got.code() != test.code || !hasID {
				t.Errorf("%s, %s: got %d %.300s, want %d, code %d and id %q", test.name, era, got.status, got.body,
					status, test.code, test.id)
			}
		}
	}
}

func TestLimits_OfCallsInFlightPerSession(t *testing.T) {
	const limit = 256
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		core.started, core.causes = make(chan struct{}, 2*limit), make(chan error, 2*limit)
		f := start(t, core, nil)
		s := f.initialize(november2025)
		done := make(chan response, limit)
		for id := range limit {
			go func() { done <- s.send(callBody(id+1, "stubborn")) }()
		}
		synctest.Wait()
		busy := func() {
			t.Helper()
			got := s.send(callBody(1000, "echo"))
			if got.status != 429 || got.code() != mcp.CodeBusy || got.header.Get("Retry-After") != "1" ||
				!strings.Contains(got.body, `"retryAfterMs":1000`) {
				t.Errorf("got %d %s, want 429 with Retry-After 1", got.status, got.body)
			}
		}
		busy()
		s.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		busy() // a cancelled call counts until its handler returns
		if got := f.initialize(november2025).send(callBody(1, "echo")); got.status != 200 {
			t.Errorf("another session: got %d %s, want 200", got.status, got.body)
		}
		if got := f.modern("tools/call", `"name":"echo"`); got.status != 200 {
			t.Errorf("modern call: got %d %s, want 200", got.status, got.body)
		}
		core.proceed <- struct{}{}
		<-done
		if got := s.send(callBody(1000, "echo")); got.status != 200 {
			t.Errorf("after a call has ended: got %d %s, want 200", got.status, got.body)
		}
		for range limit - 1 {
			core.proceed <- struct{}{}
			<-done
		}
	})
}

// A call over the limit of the server has status 503, one over the limit of the client status 429.
func TestLimits_OfCallsInFlightPerServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := mcp.NewServer("s", "1", &mcp.ServerOptions{MaxInFlight: 2, Logger: discardLogger})
		proceed := make(chan struct{})
		mcp.AddTool(server, &mcp.Tool{Name: "wait"}, func(context.Context, struct{}) (string, error) {
			<-proceed
			return "", nil
		})
		f := start(t, server, nil)
		s := f.initialize(november2025)
		done := make(chan response, 2)
		for range 2 {
			go func() { done <- f.modern("tools/call", `"name":"wait"`) }()
		}
		synctest.Wait()
		for era, got := range map[string]response{"modern": f.modern("tools/call", `"name":"wait"`),
			"session": s.send(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"wait"}}`)} {
			if got.status != 503 || got.code() != mcp.CodeBusy || got.header.Get("Retry-After") != "1" {
				t.Errorf("%s: got %d %s, want 503", era, got.status, got.body)
			}
		}
		for range 2 {
			proceed <- struct{}{}
			<-done
		}
	})
}

func TestLimits_OfSessionsPerPrincipal(t *testing.T) {
	for name, open := range map[string]func(f *fixture, subject string) response{
		"Streamable HTTP": func(f *fixture, subject string) response {
			return f.do(http.MethodPost, initializeBody(november2025), "Authorization: "+subject)
		},
		"HTTP+SSE": func(f *fixture, subject string) response {
			resp := f.open(f.request(f.t.Context(), http.MethodGet, "", "Authorization: "+subject))
			return response{status: resp.StatusCode, header: resp.Header}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, newTestCore(), nil)
				for n := range 64 {
					if got := open(f, "ann"); got.status != 200 {
						t.Fatalf("session %d: got %d %s, want 200", n, got.status, got.body)
					}
				}
				if got := open(f, "ann"); got.status != 429 || got.header.Get("Retry-After") == "" {
					t.Errorf("session 65: got %d %s, want 429", got.status, got.body)
				}
				if got := open(f, "bob"); got.status != 200 {
					t.Errorf("another principal: got %d %s, want 200", got.status, got.body)
				}
			})
		})
	}
}

func TestLimits_OfSessionsInAll(t *testing.T) {
	f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 2}})
	f.openSSE(t.Context())
	f.openSSE(t.Context(), "Authorization: ann")
	for method, body := range map[string]string{http.MethodGet: "", http.MethodPost: initializeBody(november2025)} {
		if got := f.do(method, body); got.status != 503 || got.header.Get("Retry-After") == "" ||
			got.code() != mcp.CodeBusy {
			t.Errorf("%s: got %d %s, want 503", method, got.status, got.body)
		}
	}
}

func TestLimits_OfSessionTimes(t *testing.T) {
	for _, limit := range []struct {
		name       string
		opts       mcphttp.SessionOptions
		idle, init time.Duration
	}{
		{"default", mcphttp.SessionOptions{}, 30 * time.Minute, 30 * time.Second},
		{"option", mcphttp.SessionOptions{IdleTimeout: time.Minute, InitTimeout: 2 * time.Second}, time.Minute,
			2 * time.Second},
	} {
		t.Run(limit.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := start(t, newTestCore(), &mcphttp.Options{Sessions: limit.opts})
				// One timer serves all sessions, so a session may expire a little later.
				late := min(limit.idle, limit.init)/4 + time.Millisecond
				status := func(id string) int {
					return f.do(http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"ping"}`,
						"Mcp-Session-Id: "+id).status
				}
				open := func() string {
					return f.do(http.MethodPost,
						initializeBody(november2025)).header.Get("Mcp-Session-Id")
				}

				unused, used, active := open(), open(), open()
				time.Sleep(limit.init - time.Millisecond)
				if got := status(used); got != 200 {
					t.Errorf("session used before InitTimeout: got %d, want 200", got)
				}
				status(active)
				time.Sleep(time.Millisecond + late)
				if got := status(unused); got != 404 {
					t.Errorf("session not used before InitTimeout: got %d, want 404", got)
				}
				time.Sleep(limit.idle - late - 2*time.Millisecond)
				if got := status(active); got != 200 {
					t.Errorf("session used before IdleTimeout: got %d, want 200", got)
				}
				time.Sleep(2*time.Millisecond + late)
				if got := status(used); got != 404 {
					t.Errorf("idle session: got %d, want 404", got)
				}

				begin, c := time.Now(), f.openSSE(t.Context())
				c.expectEnd()
				if got := time.Since(begin); got != limit.init {
					t.Errorf("stream without initialize was open for %v, want %v", got, limit.init)
				}
				c = f.initializedSSE(t.Context())
				pinged := make(chan struct{})
				go func() {
					defer close(pinged)
					time.Sleep(2 * limit.idle)
					c.post(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
				}()
				if got := c.next(); string(got.Data) != `{"jsonrpc":"2.0","id":1,"result":{}}` {
					t.Errorf("session with an open stream: got %s, want the response to ping", got.Data)
				}
				<-pinged
			})
		})
	}
}
