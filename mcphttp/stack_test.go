package mcphttp_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A client that listens costs no more stack than a handler of net/http that waits for the end of its request: a stack is
// halved by the garbage collector only if less than a quarter of it is in use.
func TestListenTakesTheStackOfABareHandler(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector has larger frames")
	}
	const most = 4 << 10 // bytes for each more than the bare one; the next size of a stack is 8 KiB larger
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "t"}, func(context.Context, struct{}) (string, error) { return "", nil })
	bare := stackOfAStream(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	if got := stackOfAStream(t, mcphttp.NewHandler(s, nil)); got > bare+most {
		t.Errorf("a client that listens takes %.0f bytes of stack, one of a bare handler %.0f", got, bare)
	}
}

// stackOfAStream returns the bytes of stack that an open stream holds.
func stackOfAStream(t *testing.T, h http.Handler) float64 {
	const streams = 200
	server := httptest.NewServer(h)
	defer server.Close()
	addr := server.Listener.Addr().String()
	body := `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},"_meta":{` +
		`"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
	listen := func() net.Conn {
		conn, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"+
			"MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: subscriptions/listen\r\nContent-Length: %d\r\n\r\n%s", addr, len(body), body)
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", answer, err)
		}
		if _, err := answer.Body.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	stacks := func() float64 {
		for range 3 {
			runtime.GC()
		}
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.StackInuse)
	}
	conns := []net.Conn{listen()}
	before := stacks()
	for range streams {
		conns = append(conns, listen())
	}
	each := (stacks() - before) / streams
	for _, conn := range conns {
		_ = conn.Close()
	}
	return each
}

// A call needs no larger stack than one to a bare handler. Each garbage collection halves the stacks of connections that
// wait and use less than a quarter of theirs; to grow one again costs as much as half a call.
func TestACallTakesTheStackOfABareHandler(t *testing.T) {
	if raceDetector {
		t.Skip("the race detector has larger frames")
	}
	const most = 2 << 10 // bytes for each more than the bare one; the next size of a stack is 8 KiB larger
	bare := stackOfACall(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		_, _ = io.WriteString(w, "{}")
	}), sessionBody, nil)
	h := mcphttp.NewHandler(echoServer(0), nil)
	for name, got := range map[string]float64{
		"of the modern era": stackOfACall(t, h, modernBody, modernHeader()),
		"of a session":      stackOfACall(t, h, sessionBody, sessionHeader(t, h)),
	} {
		if got > bare+most {
			t.Errorf("a call %s takes %.0f bytes of stack, one of a bare handler %.0f", name, got, bare)
		}
	}
}

// stackOfACall returns the bytes of stack that a connection holds on which one call was made.
func stackOfACall(t *testing.T, h http.Handler, body string, header http.Header) float64 {
	const conns = 200
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // stacks stay as they were needed
	server := httptest.NewServer(h)
	defer server.Close()
	call := func() net.Conn {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		r := httptest.NewRequest(http.MethodPost, server.URL, strings.NewReader(body))
		r.Header = header
		if err := r.Write(conn); err != nil {
			t.Fatal(err)
		}
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%v, %v", answer, err)
		}
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	stacks := func() float64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.StackInuse)
	}
	open := []net.Conn{call()}
	before := stacks()
	for range conns {
		open = append(open, call())
	}
	each := (stacks() - before) / conns
	for _, conn := range open {
		_ = conn.Close()
	}
	return each
}
