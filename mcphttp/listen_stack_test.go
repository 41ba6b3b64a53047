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

// stackOfAStream gives the bytes of stack that an open stream holds.
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
