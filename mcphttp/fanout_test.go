package mcphttp_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A streamClient is an http.ResponseWriter that counts changes. After stopReading its writes block.
type streamClient struct {
	header http.Header

	mu     sync.Mutex // guards the fields below
	events int
	done   bool     // the handler has returned
	conn   net.Conn // a pipe that is not read; nil for a client that reads
}

func (l *streamClient) Header() http.Header { return l.header }
func (l *streamClient) WriteHeader(int)     {}
func (l *streamClient) Flush()              {}

func (l *streamClient) SetReadDeadline(time.Time) error { return nil }

func (l *streamClient) SetWriteDeadline(t time.Time) error {
	if conn := l.blockedConn(); conn != nil {
		return conn.SetWriteDeadline(t)
	}
	return nil
}

func (l *streamClient) blockedConn() net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn
}

// stopReading has every later write block until its deadline.
func (l *streamClient) stopReading() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn, _ = net.Pipe()
}

func (l *streamClient) Write(p []byte) (int, error) {
	if conn := l.blockedConn(); conn != nil {
		return conn.Write(p)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes.Contains(p, []byte("list_changed")) {
		l.events++
	}
	return len(p), nil
}

// takeChanges returns the number of changes since the last call.
func (l *streamClient) takeChanges() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := l.events
	l.events = 0
	return n
}

func (l *streamClient) isDone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// A fanout is a server whose list of tools changes, with the clients of its streams.
type fanout struct {
	t         *testing.T
	server    *mcp.Server
	handler   *mcphttp.Handler
	tool      *mcp.Registration[mcp.Tool]
	listeners []*streamClient
	serving   sync.WaitGroup
	cancel    context.CancelFunc
	ctx       context.Context
}

func newFanout(t *testing.T) *fanout {
	f := &fanout{t: t, server: mcp.NewServer("test", "1", &mcp.ServerOptions{Logger: discardLogger})}
	f.tool = mcp.AddTool(f.server, &mcp.Tool{Name: "tool"},
		func(context.Context, struct{}) (string, error) { return "", nil })
	f.handler = mcphttp.NewHandler(f.server, &mcphttp.Options{Logger: discardLogger, KeepAlive: time.Hour})
	f.ctx, f.cancel = context.WithCancel(t.Context())
	return f
}

// close disconnects all clients.
func (f *fanout) close() {
	f.cancel()
	f.serving.Wait()
}

// request returns a request in memory.
func (f *fanout) request(method, body string, headers ...string) *http.Request {
	r := httptest.NewRequestWithContext(f.ctx, method, "http://localhost:8765/mcp", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	return r
}

// listen opens a stream of either era.
func (f *fanout) listen(version string) *streamClient {
	l := &streamClient{header: http.Header{}}
	r := f.request(http.MethodPost,
		fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{`+
			`"notifications":{"toolsListChanged":true},"_meta":{`+
			`"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
			`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},`+
			`"io.modelcontextprotocol/clientCapabilities":{}}}}`, len(f.listeners)),
		"Mcp-Protocol-Version: "+version, "Mcp-Method: subscriptions/listen")
	if version != modern {
		r = f.request(http.MethodGet, "", "Mcp-Session-Id: "+f.session(version), "Mcp-Protocol-Version: "+version)
	}
	f.serving.Go(func() {
		f.handler.ServeHTTP(l, r)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.done = true
	})
	f.listeners = append(f.listeners, l)
	return l
}

// session opens a session.
func (f *fanout) session(version string) (id string) {
	w := httptest.NewRecorder()
	f.handler.ServeHTTP(w, f.request(http.MethodPost,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+
			`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`))
	id = w.Header().Get("Mcp-Session-Id")
	f.handler.ServeHTTP(httptest.NewRecorder(),
		f.request(http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, "Mcp-Session-Id: "+id))
	return id
}

// change changes the list, and waits until all clients that read are notified.
func (f *fanout) change() {
	f.tool.Update(func(t *mcp.Tool) { t.Description = "changed" })
	time.Sleep(time.Second)
	synctest.Wait()
}

// A client that does not read blocks neither other clients, nor other requests, nor the goroutine
// that makes the change.
func TestChanges_ClientThatDoesNotReadBlocksNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFanout(t)
		defer f.close()
		for i := range 100 {
			l := f.listen([]string{modern, november2025}[i%2])
			synctest.Wait()
			if i < 10 {
				l.stopReading()
			}
		}
		for round := range 5 {
			f.change()
			for i, l := range f.listeners {
				if got := l.takeChanges(); (got == 1) != (i >= 10) {
					t.Errorf("change %d: client %d received %d changes, want 1 if it reads", round, i, got)
				}
			}
			mcp.AddTool(f.server, &mcp.Tool{Name: fmt.Sprint("more", round)},
				func(context.Context, struct{}) (string, error) { return "", nil })
			f.listen(modern)
			f.listen(november2025)
			synctest.Wait()
		}
	})
}
