//go:build !race

package mcp_test

import (
	"context"
	"io"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// What one call costs a client and a server together, both in this process. A call in memory: 3 are the arguments of the
// test, 5 the server's, and of the client's 5 each is something that its caller, a middleware or a handler may keep: the
// context, the request and its params, the answer, the result and what it is made of.
func TestAllocationsOfACall(t *testing.T) {
	const memory = 13
	call := echoCaller(t, func(s *mcp.Server) mcp.Transport { return mcp.InMemory(s) })
	if got := testing.AllocsPerRun(500, call); got > memory {
		t.Errorf("a call in memory costs %v allocations, want at most %d", got, memory)
	}
}

// What a call costs a client on a stream, whose Conn costs nothing here: 4 are the test's arguments and its answer, 8 the
// id, the message and the waiting for its answer, the other 4 the context, the request and its params, and the result.
func TestAllocationsOfAClientsCallOnAStream(t *testing.T) {
	const stream = 16
	call := echoCaller(t, func(*mcp.Server) mcp.Transport { return mcp.OverConn(cannedConn{make(chan *jsonrpc.Message, 1)}) })
	if got := testing.AllocsPerRun(500, call); got > stream {
		t.Errorf("a call on a stream costs %v allocations, want at most %d", got, stream)
	}
}

// A cannedConn is to a server that answers everything alike.
type cannedConn struct{ answers chan *jsonrpc.Message }

var (
	cannedDiscovery = []byte(`{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}`)
	cannedResult    = []byte(`{"resultType":"complete","content":[{"type":"text","text":"hello world"}]}`)
)

func (c cannedConn) Read(ctx context.Context) (*jsonrpc.Message, error) {
	m, ok := <-c.answers
	if !ok {
		return nil, io.EOF
	}
	return m, nil
}

func (c cannedConn) Write(_ context.Context, m *jsonrpc.Message) error {
	result := cannedResult
	if m.Method == "server/discover" {
		result = cannedDiscovery
	}
	c.answers <- jsonrpc.NewResponse(m.ID, result)
	return nil
}

func (c cannedConn) Close() error {
	close(c.answers)
	return nil
}

// echoCaller returns a function that calls a tool of a server.
func echoCaller(t *testing.T, to func(s *mcp.Server) mcp.Transport) func() {
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: quiet()})
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, in struct {
		Message string `json:"message"`
	}) (string, error) {
		return in.Message, nil
	})
	c, err := mcp.Connect(t.Context(), to(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func() {
		if got, err := mcp.Call[string](t.Context(), c, "echo", map[string]any{"message": "hello world"}); err != nil || got != "hello world" {
			t.Errorf("echo gave %q, %v", got, err)
		}
	}
}
