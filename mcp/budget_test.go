//go:build !race

package mcp_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// What one call costs a client and a server together, both in this process. A call in memory: 3 are the arguments of the
// test, 7 the server's, and of the client's 12 each is something that its caller, a middleware or a handler may keep: the
// context with its end, the request and its params, the answer, the result and what it is made of.
func TestAllocationsOfACall(t *testing.T) {
	const memory = 22
	call := echoCaller(t, func(s *mcp.Server) mcp.Transport { return mcp.InMemory(s) })
	if got := testing.AllocsPerRun(500, call); got > memory {
		t.Errorf("a call in memory costs %v allocations, want at most %d", got, memory)
	}
}

// echoCaller gives a function that calls a tool of a server.
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
