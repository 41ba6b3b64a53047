package mcphttp_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// initializedSSE checks the events of the stream up to the response to initialize.
//
// Requirement: SSE-01, SSE-02, SSE-04
func TestResponsesComeOnTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, change := newChangingServer()
		mcp.AddTool(server, &mcp.Tool{Name: "add"}, func(_ context.Context, in struct{ A, B int }) (int, error) {
			return in.A + in.B, nil
		})
		f := start(t, server, nil)
		c := f.initializedSSE(t.Context())
		c.post(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"add","arguments":{"A":1,"B":2}}}`)
		if m := c.next(); m.Type != "message" || !strings.Contains(string(m.Data), `"id":2`) ||
			!strings.Contains(string(m.Data), `"text":"3"`) {
			t.Errorf("got %s %s, want the result", m.Type, m.Data)
		}
		synctest.Wait()
		change()
		if m := c.next(); !isChange(m.Data) {
			t.Errorf("got %s, want %s", m.Data, changed)
		}
	})
}

func TestSSE_InvalidMessages(t *testing.T) {
	f := start(t, newTestCore(), nil)
	if got := f.openSSE(t.Context()).send(callBody(1, "echo")); got.status != 400 {
		t.Errorf("call before initialize: got %d, want 400", got.status)
	}
	c := f.initializedSSE(t.Context())
	c.post(initializeBody(november2024))
	if m := c.next(); !strings.Contains(string(m.Data), `"error"`) {
		t.Errorf("second initialize: got %s, want an error", m.Data)
	}
	c.post(`[{"jsonrpc":"2.0","id":3,"method":"ping"}]`)
	if m := c.next(); !strings.Contains(string(m.Data), `"code":-32600`) {
		t.Errorf("batch: got %s, want code -32600", m.Data)
	}
}

func TestSSE_SessionEndsWithItsStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		ctx, disconnect := context.WithCancel(t.Context())
		c := f.initializedSSE(ctx)
		c.post(callBody(1, "wait"))
		<-core.started
		disconnect()
		if cause := <-core.causes; !errors.Is(cause, mcp.ErrDisconnected) {
			t.Errorf("cause of the call's end: got %v, want ErrDisconnected", cause)
		}
		synctest.Wait()
		if got := c.send(callBody(2, "echo")); got.status != 404 {
			t.Errorf("POST after the stream: got %d, want 404", got.status)
		}
	})
}

// Requirement: CAN-04
func TestSSECallCanBeCancelledAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		c := f.initializedSSE(t.Context())
		post := func(body string) {
			w := httptest.NewRecorder()
			f.handler.ServeHTTP(w, f.request(t.Context(), http.MethodPost, body, "Query: "+c.query))
			if w.Code != 202 {
				t.Errorf("got %d %s, want 202", w.Code, w.Body)
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

func TestSSE_SessionBelongsToItsTransportAndPrincipal(t *testing.T) {
	f := start(t, newTestCore(), nil)
	id := strings.TrimPrefix(f.initializedSSE(t.Context(), "Authorization: ann").query, "sessionId=")
	streamable := f.initialize(november2025, "Authorization: ann")
	for _, test := range []struct {
		name    string
		headers []string
	}{
		{"id of HTTP+SSE in the header", []string{"Mcp-Session-Id: " + id, "Authorization: ann"}},
		{"id of Streamable HTTP in the query", []string{"Query: sessionId=" + streamable.id, "Authorization: ann"}},
		{"another principal", []string{"Query: sessionId=" + id, "Authorization: bob"}}, // Requirement: SEC-10
		{"unknown id", []string{"Query: sessionId=nonsense", "Authorization: ann"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := f.do(http.MethodPost, callBody(1, "echo"), test.headers...); got.status != 404 {
				t.Errorf("got %d %s, want 404", got.status, got.body)
			}
		})
	}
}

func TestSSE_UninitializedStreamEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 1}})
		c := f.openSSE(t.Context())
		if got := f.do(http.MethodGet, ""); got.status != 503 {
			t.Errorf("second stream: got %d, want 503", got.status)
		}
		begin := time.Now()
		c.expectEnd()
		if got := time.Since(begin); got != 30*time.Second {
			t.Errorf("the stream ended after %v, want 30s", got)
		}
		f.initializedSSE(t.Context())
	})
}

// A client that does not read its stream blocks its own calls until the write timeout.
func TestSSE_UnreadStreamEndsAfterTheWriteTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f := start(t, core, nil)
		c := f.initializedSSE(t.Context())
		begin := time.Now()
		c.post(callBody(1, "endless"))
		if err := <-core.causes; !errors.Is(err, mcp.ErrClosed) {
			t.Errorf("Notify: got %v, want ErrClosed", err)
		}
		if got := time.Since(begin); got != 30*time.Second {
			t.Errorf("the stream ended after %v, want 30s", got)
		}
	})
}

// Requirement: VER-08
func TestModernRequestAtAnSSEEndpoint(t *testing.T) {
	f := start(t, newTestCore(), nil)
	c := f.initializedSSE(t.Context())
	body, headers := modernCall("tools/call", `"name":"echo"`, "Query: "+c.query)
	if got := f.do(http.MethodPost, body, headers...); got.status != 200 || !strings.Contains(got.body, "resultType") {
		t.Errorf("got %d %s, want 200 and a modern result", got.status, got.body)
	}
}

// A GET without a session is one of HTTP+SSE, unless it resumes a stream.
//
// Requirement: LHTTP-28
func TestResumptionNeedsASession(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, revision := range []string{"", june2025, november2025} {
		got := f.do(http.MethodGet, "", "Last-Event-ID: 1", "MCP-Protocol-Version: "+revision)
		if got.status != 400 {
			t.Errorf("revision %q: got %d, want 400", revision, got.status)
		}
	}
}

// Some clients of HTTP+SSE name a later revision in every request.
//
// Requirement: SSE-01
func TestGetThatNamesARevision(t *testing.T) {
	forEach(t, sessionRevisions, func(t *testing.T, revision string) {
		f := start(t, newTestCore(), nil)
		c := f.initializedSSE(t.Context(), "MCP-Protocol-Version: "+revision)
		time.Sleep(10 * time.Second) // beyond the time to initialize
		c.post(callBody(2, "echo"))
		if got := c.next(); !strings.Contains(string(got.Data), `"id":2,"result"`) {
			t.Errorf("got %s, want the result", got.Data)
		}
	})
}

// A client of Streamable HTTP may open its stream before it has a session. The end of that stream is
// an error, after which the client opens the stream of its session.
func TestSSE_StreamThatNamesARevisionAndIsNotInitializedIsCutOff(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, revision string) {
		f := start(t, newTestCore(), nil)
		begin, c := time.Now(), f.openSSE(t.Context(), "MCP-Protocol-Version: "+revision)
		if _, err := c.Next(); err == nil || errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("got %v, want a broken stream", err)
		}
		if got := time.Since(begin); got != 5*time.Second {
			t.Errorf("the stream ended after %v, want 5s", got)
		}
	})
}

// A client that asks for the revision of the server first gets an error on the stream, and can then
// send initialize.
func TestSSE_DiscoverBeforeInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := start(t, newTestCore(), nil)
		c := f.openSSE(t.Context())
		discover, _ := modernCall("server/discover", "")
		plain := `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`
		for _, body := range []string{discover, plain} {
			c.post(body)
			if got := c.next(); got.Type != "message" || !strings.Contains(string(got.Data), `"code":-32601`) ||
				!strings.Contains(string(got.Data), `"id":1`) {
				t.Errorf("%s: got %s, want code -32601", body, got.Data)
			}
		}
		c.post(initializeBody(november2024))
		if got := c.next(); !strings.Contains(string(got.Data), `"protocolVersion"`) {
			t.Errorf("initialize: got %s, want the result", got.Data)
		}
		c.post(discover)
		if got := c.next(); !strings.Contains(string(got.Data), `"code":-32601`) {
			t.Errorf("after initialize: got %s, want code -32601", got.Data)
		}
	})
}
