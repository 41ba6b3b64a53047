package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// An endpoint is a client of the first revision.
type endpoint struct {
	*fixture
	*stream
	headers []string
}

func (f *fixture) endpoint(ctx context.Context, headers ...string) *endpoint {
	f.t.Helper()
	e := &endpoint{fixture: f, stream: f.stream(f.request(ctx, http.MethodGet, "",
		append(headers, "Accept: text/event-stream")...))}
	first := e.next()
	if first.Type != "endpoint" {
		f.t.Fatalf("SSE02: got %s %s first, want the endpoint", first.Type, first.Data)
	}
	base, _ := url.Parse("http://" + f.host + "/mcp")
	target, err := base.Parse(string(first.Data))
	if err != nil || target.Host != base.Host || target.Path != base.Path {
		f.t.Fatalf("SSE06: the endpoint is %s, %v", first.Data, err)
	}
	// Such clients say nothing in Accept, and have no header for the version or the session.
	e.headers = append(headers, "Query: "+target.RawQuery, "Accept: ")
	return e
}

func (e *endpoint) send(body string, headers ...string) answer {
	e.fixture.t.Helper()
	return e.do(http.MethodPost, body, override(e.headers, headers)...)
}

func (e *endpoint) initialize() {
	e.fixture.t.Helper()
	if got := e.send(initializeBody(november2024)); got.status != 202 || got.body != "" {
		e.fixture.t.Fatalf("got %d %s", got.status, got.body)
	}
	if m := e.next(); m.Type != "message" || !strings.Contains(string(m.Data), `"protocolVersion":"2024-11-05"`) ||
		m.HasID {
		e.fixture.t.Fatalf("SSE04: got %s %s", m.Type, m.Data)
	}
	e.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

func TestSSE_OldestTransport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, change := newChangingServer()
		mcp.AddTool(server, &mcp.Tool{Name: "add"}, func(_ context.Context, in struct{ A, B int }) (int,
			error) {
			return in.A + in.B, nil
		})
		f := start(t, server, nil)
		e := f.endpoint(t.Context())
		if got := e.send(callBody(1, "echo")); got.status != 400 {
			t.Errorf("LIFE01: a call before initialize got %d", got.status)
		}
		e.initialize()
		if got := e.send(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"A":1,"B":2}}}`); got.status != 202 {
			t.Errorf("got %d %s", got.status, got.body)
		}
		if m := e.next(); !strings.Contains(string(m.Data), `"id":2`) ||
			!strings.Contains(string(m.Data), `"text":"3"`) {
			t.Errorf("got %s, want the result", m.Data)
		}
		synctest.Wait()
		change()
		if m := e.next(); !isChange(m.Data) {
			t.Errorf("got %s, want the change", m.Data)
		}
		if got := e.send(initializeBody(november2024)); got.status != 202 {
			t.Errorf("got %d", got.status)
		}
		if m := e.next(); !strings.Contains(string(m.Data), `"error"`) {
			t.Errorf("a second initialize got %s, want an error", m.Data)
		}
		if got := e.send(`[{"jsonrpc":"2.0","id":3,"method":"ping"}]`); got.status != 202 {
			t.Errorf("a batch got %d", got.status)
		}
		if m := e.next(); !strings.Contains(string(m.Data), `"code":-32600`) {
			t.Errorf("T02: a batch got %s, want an error", m.Data)
		}
	})
}

func TestSSE_SessionEndsWithItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		ctx, cut := context.WithCancel(t.Context())
		e := f.endpoint(ctx)
		e.initialize()
		e.send(callBody(1, "wait"))
		<-core.started
		cut()
		if cause := <-core.causes; !errors.Is(cause, mcp.ErrDisconnected) {
			t.Errorf("the cause is %v, want ErrDisconnected", cause)
		}
		synctest.Wait()
		if got := e.send(callBody(2, "echo")); got.status != 404 {
			t.Errorf("got %d, want 404", got.status)
		}
	})
}

// A call that is accepted can be cancelled, however soon.
func TestCAN04_SSE_CancelThatFollowsAtOnceIsHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		e := f.endpoint(t.Context())
		e.initialize()
		post := func(body string) {
			w := httptest.NewRecorder()
			f.handler.ServeHTTP(w, f.request(t.Context(), http.MethodPost, body, e.headers...))
			if w.Code != 202 {
				t.Errorf("got %d %s", w.Code, w.Body)
			}
		}
		for id := range 100 {
			post(callBody(id, "wait"))
			post(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id))
		}
		synctest.Wait()
		if got := len(core.causes); got != 100 {
			t.Errorf("%d of 100 calls were cancelled", got)
		}
	})
}

func TestSSE_SessionsOfBothTransportsAreApart(t *testing.T) {
	f := start(t, newTestCore(), nil)
	old := f.endpoint(t.Context(), "Authorization: ann")
	old.initialize()
	newer := f.initialize(november2025, "Authorization: ann")
	id := strings.TrimPrefix(old.headers[1], "Query: sessionId=")
	for name, headers := range map[string][]string{
		"of HTTP+SSE, in the header":      {"Mcp-Session-Id: " + id, "Authorization: ann"},
		"of Streamable HTTP, in the path": {"Query: sessionId=" + newer.id, "Authorization: ann"},
		"SEC10 of someone else":           {"Query: sessionId=" + id, "Authorization: bob"},
		"unknown":                         {"Query: sessionId=nonsense", "Authorization: ann"},
	} {
		if got := f.do(http.MethodPost, callBody(1, "echo"), headers...); got.status != 404 {
			t.Errorf("%s: got %d %s, want 404", name, got.status, got.body)
		}
	}
}

func TestSSE_LimitsOfEndpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 1}})
		e := f.endpoint(t.Context())
		if got := f.do(http.MethodGet, ""); got.status != 503 {
			t.Errorf("a stream too many got %d", got.status)
		}
		begin := time.Now()
		e.ends()
		if got := time.Since(begin); got != 30*time.Second {
			t.Errorf("a stream that was never initialized ended after %v, want 30s", got)
		}
		f.endpoint(t.Context()).initialize()
	})
}

// A client that does not read blocks its own calls, and a change ends its stream.
func TestR72_UnreadEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		e := f.endpoint(t.Context())
		e.initialize()
		begin := time.Now()
		e.send(callBody(1, "flood"))
		if err := <-core.causes; !errors.Is(err, mcp.ErrClosed) {
			t.Errorf("the sender got %v, want ErrClosed", err)
		}
		if got := time.Since(begin); got != 30*time.Second {
			t.Errorf("the stream ended after %v, want 30s", got)
		}
	})
}

func TestVER08_ModernRequestAtAnEndpoint(t *testing.T) {
	f := start(t, newTestCore(), nil)
	e := f.endpoint(t.Context())
	body, headers := modernCall("tools/call", `"name":"echo"`, e.headers[0])
	if got := f.do(http.MethodPost, body, headers...); got.status != 200 || !strings.Contains(got.body, "resultType") {
		t.Errorf("got %d %s", got.status, got.body)
	}
}

func TestLHTTP28_GetOfLaterRevisionsNeedsASession(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, header := range []string{"MCP-Protocol-Version: " + november2025, "Last-Event-ID: " + fmt.Sprint(1)} {
		if got := f.do(http.MethodGet, "", header); got.status != 400 {
			t.Errorf("%s: got %d, want 400", header, got.status)
		}
	}
}
