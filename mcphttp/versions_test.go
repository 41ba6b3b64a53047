package mcphttp_test

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A recordingHandler records the HTTP requests to a handler.
type recordingHandler struct {
	next http.Handler

	mu       sync.Mutex // guards the field below
	requests []recordedRequest
}

// A recordedRequest has the JSON-RPC method and the revision of the header MCP-Protocol-Version.
type recordedRequest struct{ verb, method, revision string }

func (h *recordingHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	r.Body = io.NopCloser(strings.NewReader(string(body)))
	var m struct{ Method string }
	_ = json.Unmarshal(body, &m)
	h.mu.Lock()
	h.requests = append(h.requests, recordedRequest{r.Method, m.Method, r.Header.Get("MCP-Protocol-Version")})
	h.mu.Unlock()
	h.next.ServeHTTP(w, r)
}

// methods returns the JSON-RPC methods of all POST requests.
func (h *recordingHandler) methods() (methods []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range h.requests {
		if r.verb == http.MethodPost {
			methods = append(methods, r.method)
		}
	}
	return methods
}

// serveRecorded serves a handler and returns its URL.
func serveRecorded(t *testing.T, next http.Handler) (h *recordingHandler, url string) {
	t.Helper()
	h = &recordingHandler{next: next}
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	return h, server.URL
}

// newVersionHandler returns the handler of a server with one tool.
func newVersionHandler(t *testing.T) *mcphttp.Handler {
	t.Helper()
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "x"}, func(ctx context.Context, _ struct{}) (string, error) {
		return mcp.RequestFrom(ctx).Revision(), nil
	})
	handler := mcphttp.NewHandler(s, nil)
	t.Cleanup(func() { _ = handler.Shutdown(context.Background()) })
	return handler
}

// Clients of all revisions use one URL at the same time. Requests of sessions have the header of
// their revision, and the end of the client ends its session.
//
// Requirement: LIFE-14, LIFE-24, VER-07
func TestRevisionsShareAnEndpoint(t *testing.T) {
	h, url := serveRecorded(t, newVersionHandler(t))
	var clients []*mcp.Client
	for _, revision := range mcptest.Revisions() {
		if revision == "2024-11-05" {
			continue // has another transport
		}
		c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(url, nil), &mcp.ClientOptions{Revision: revision})
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	for range 2 {
		for _, c := range clients {
			got, err := mcp.CallTool[string](t.Context(), c, "x", nil)
			if err != nil || got != c.Revision() {
				t.Errorf("client of %s: the server served the revision %q, error %v", c.Revision(), got, err)
			}
		}
	}
	for _, c := range clients {
		h.mu.Lock()
		h.requests = nil
		h.mu.Unlock()
		if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		for _, r := range h.requests {
			if want := c.Revision(); r.revision != want && want != "2025-03-26" {
				t.Errorf("%s: %s %s has the MCP-Protocol-Version %q", want, r.verb, r.method, r.revision)
			}
		}
		deleted := slices.ContainsFunc(h.requests, func(r recordedRequest) bool { return r.verb == http.MethodDelete })
		h.mu.Unlock()
		if isSession := c.Revision() != mcptest.Modern; deleted != isSession {
			t.Errorf("%s: session deleted %t, want %t", c.Revision(), deleted, isSession)
		}
	}
}

// The first request of a client is a modern one. If its status is 400, the body decides: after a
// modern error the client does not fall back, after any other body it sends initialize. It does not
// probe again.
//
// Requirement: VER-15, VER-16, VER-17, VER-18
func TestBodyOfBadRequestDecides(t *testing.T) {
	for name, test := range map[string]struct {
		body, want string
		fails      bool
	}{
		"empty":           {``, "server/discover initialize notifications/initialized tools/call tools/call", false},
		"text":            {`Bad Request`, "server/discover initialize notifications/initialized tools/call tools/call", false},
		"another error":   {`{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"no session"}}`, "server/discover initialize notifications/initialized tools/call tools/call", false},
		"no revision":     {`{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"?","data":{"supported":["2031-01-01"],"requested":"2026-07-28"}}}`, "server/discover", true},
		"header mismatch": {`{"jsonrpc":"2.0","id":1,"error":{"code":-32020,"message":"?"}}`, "server/discover", true},
	} {
		t.Run(name, func(t *testing.T) {
			sessions := newVersionHandler(t)
			h, url := serveRecorded(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("MCP-Protocol-Version") != mcptest.Modern {
					sessions.ServeHTTP(w, r)
					return
				}
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, test.body)
			}))
			c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(url, nil),
				&mcp.ClientOptions{Logger: slog.New(slog.DiscardHandler)})
			if (err != nil) != test.fails {
				t.Errorf("Connect: %v, want an error: %t", err, test.fails)
			}
			if err == nil {
				for range 2 {
					if _, err := c.CallTool(t.Context(), "x", nil); err != nil {
						t.Error(err)
					}
				}
				defer c.Close()
			}
			h.mu.Lock() // the client may be opening its stream
			first := h.requests[0].revision
			h.mu.Unlock()
			if first != mcptest.Modern {
				t.Errorf("the first request has the revision %q, want %s", first, mcptest.Modern)
			}
			if got := strings.Join(h.methods(), " "); got != test.want {
				t.Errorf("the server got %s, want %s", got, test.want)
			}
		})
	}
}
