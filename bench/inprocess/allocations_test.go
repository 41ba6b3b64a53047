package inprocess

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/patchbay"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// checkAllocations fails if one run of f allocates more than limit times. The
// limits are about 20% above the measured values: they detect a new copy or
// closure on the path of a call, not a change of the compiler.
func checkAllocations(t *testing.T, limit float64, f func()) {
	t.Helper()
	f() // fill pools and caches
	got := testing.AllocsPerRun(200, f)
	if got > limit {
		t.Errorf("%v allocations, want at most %v", got, limit)
	}
	t.Logf("%v allocations, at most %v", got, limit)
}

func TestServeMCPAllocations(t *testing.T) {
	s := patchbay.NewServer()
	m, err := jsonrpc.Decode(call.Message())
	if err != nil {
		t.Fatal(err)
	}
	checkAllocations(t, 8, func() {
		req, err := mcp.NewRequest(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ServeMCP(context.Background(), req); err != nil {
			t.Fatal(err)
		}
	})
}

func TestInMemoryClientAllocations(t *testing.T) {
	c, err := mcp.Connect(t.Context(), mcp.InMemory(patchbay.NewServer()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	checkAllocations(t, 25, func() {
		text, err := mcp.CallTool[string](t.Context(), c, echo.Tool, map[string]any{"message": "hello"})
		if err != nil || text != "hello" {
			t.Fatal(text, err)
		}
	})
}

// A responseWriter keeps the header and drops the body.
type responseWriter struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (w *responseWriter) Header() http.Header         { return w.header }
func (w *responseWriter) WriteHeader(status int)      { w.status = status }
func (w *responseWriter) Write(p []byte) (int, error) { return w.body.Write(p) }
func (w *responseWriter) Flush()                      {}

// post returns a function that sends one POST to the handler.
func post(t *testing.T, h http.Handler, header http.Header, body string) func() {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/mcp", nil)
	r.RemoteAddr = "127.0.0.1:1"
	r.Header = header
	w := &responseWriter{header: http.Header{}}
	text := strings.NewReader(body)
	r.ContentLength = int64(len(body))
	return func() {
		text.Reset(body)
		r.Body = io.NopCloser(text)
		clear(w.header)
		w.status = 0
		w.body.Reset()
		h.ServeHTTP(w, r)
		if w.status != 0 && w.status != http.StatusOK && w.status != http.StatusAccepted {
			t.Fatalf("status %d: %s", w.status, &w.body)
		}
	}
}

func httpHeader(more ...string) http.Header {
	h := http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Host": {"127.0.0.1"},
	}
	for i := 0; i < len(more); i += 2 {
		h.Set(more[i], more[i+1])
	}
	return h
}

func TestModernHTTPAllocations(t *testing.T) {
	h := mcphttp.NewHandler(patchbay.NewServer(), nil)
	defer h.Shutdown(context.Background())
	var message struct {
		Params struct {
			Meta map[string]json.RawMessage `json:"_meta"`
		} `json:"params"`
	}
	if err := json.Unmarshal(call.Message(), &message); err != nil {
		t.Fatal(err)
	}
	var version string
	if err := json.Unmarshal(message.Params.Meta["io.modelcontextprotocol/protocolVersion"], &version); err != nil {
		t.Fatal(err)
	}
	header := httpHeader("MCP-Protocol-Version", version, "Mcp-Method", "tools/call", "Mcp-Name", echo.Tool)
	checkAllocations(t, 14, post(t, h, header, string(call.Message())))
}

func TestSessionHTTPAllocations(t *testing.T) {
	h := mcphttp.NewHandler(patchbay.NewServer(), nil)
	defer h.Shutdown(context.Background())
	const version = "2025-11-25"
	open := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + version +
		`","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
	w := httptest.NewRecorder()
	r := httptest.NewRequest(http.MethodPost, "http://127.0.0.1/mcp", strings.NewReader(open))
	r.Header = httpHeader()
	h.ServeHTTP(w, r)
	session := w.Header().Get("Mcp-Session-Id")
	if session == "" {
		t.Fatalf("no session: %d %s", w.Code, w.Body)
	}
	header := httpHeader("MCP-Protocol-Version", version, "Mcp-Session-Id", session)
	post(t, h, header, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)()
	ids := 1
	serve := func() {
		ids++
		id, _ := json.Marshal(ids)
		post(t, h, header, `{"jsonrpc":"2.0","id":`+string(id)+
			`,"method":"tools/call","params":{"name":"`+echo.Tool+`","arguments":{"message":"hello"}}}`)()
	}
	// The limit includes what the test itself allocates for each request, about 16.
	checkAllocations(t, 38, serve)
}
