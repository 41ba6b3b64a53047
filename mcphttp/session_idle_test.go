package mcphttp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A session that nobody uses costs less than 1 KB and no goroutine. What it takes from its client is bounded elsewhere.
func TestCostOfAnIdleSession(t *testing.T) {
	const sessions, bytesEach = 2000, 1 << 10
	server := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: quiet})
	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(_ context.Context, in struct{ Message string }) (string, error) {
		return in.Message, nil
	})
	h := mcphttp.NewHandler(server, &mcphttp.Options{Logger: quiet})
	f := &fixture{t: t, host: "localhost:8765"}
	post := func(body string, headers ...string) http.Header {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, f.request(t.Context(), http.MethodPost, body, headers...))
		if w.Code >= http.StatusBadRequest {
			t.Fatal(w.Code, w.Body)
		}
		return w.Header()
	}
	use := func() {
		id := post(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25",` +
			`"capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`).Get("Mcp-Session-Id")
		post(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id: "+id)
		post(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, "Mcp-Session-Id: "+id)
	}
	use() // what all sessions have in common
	before, goroutines := inUse(), runtime.NumGoroutine()
	for range sessions {
		use()
	}
	each := (inUse() - before) / sessions
	t.Logf("%d bytes for each idle session", each)
	if more := runtime.NumGoroutine() - goroutines; each > bytesEach || more > 0 {
		t.Errorf("%d sessions cost %d bytes each and %d goroutines, want at most %d bytes and none", sessions, each, more, bytesEach)
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// inUse returns the bytes of the heap that are in use.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
