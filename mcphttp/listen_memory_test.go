package mcphttp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A quietWriter says when the first event of a stream has left, and keeps nothing.
type quietWriter struct {
	header http.Header
	once   sync.Once
	opened func()
}

func (w *quietWriter) Header() http.Header         { return w.header }
func (w *quietWriter) WriteHeader(int)             {}
func (w *quietWriter) Write(p []byte) (int, error) { return io.Discard.Write(p) }
func (w *quietWriter) Flush()                      { w.once.Do(w.opened) }

// A client that listens may do so for days, so what the handler keeps for it must be little: no buffers.
func TestListenKeepsNoBuffers(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector's own memory counts as well")
	}
	const (
		listens = 500
		most    = 5000 // bytes of the heap for each, with the request that the test makes; a buffer has 4,096
	)
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "", nil })
	h := mcphttp.NewHandler(s, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var opened, ended sync.WaitGroup
	heap := func() float64 {
		runtime.GC()
		runtime.GC() // what was pooled is dropped by the second
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	listen := func() {
		r := httptest.NewRequestWithContext(ctx, http.MethodPost, "http://localhost/mcp", strings.NewReader(
			`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{`+
				`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Accept", "application/json, text/event-stream")
		r.Header.Set("MCP-Protocol-Version", "2026-07-28")
		r.Header.Set("Mcp-Method", "subscriptions/listen")
		opened.Add(1)
		ended.Go(func() { h.ServeHTTP(&quietWriter{header: http.Header{}, opened: opened.Done}, r) })
	}
	listen()
	opened.Wait()
	before := heap()
	for range listens {
		listen()
	}
	opened.Wait()
	each := (heap() - before) / listens
	cancel()
	ended.Wait()
	if each > most {
		t.Errorf("a client that listens holds %.0f bytes, want at most %d", each, most)
	}
}
