package mcp_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// The server stops reading requests from a client that does not read its responses, in a session too.
func TestUnreadResponsesAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger()})
		mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(context.Context, struct{}) (string, error) { return strings.Repeat("y", 4000), nil })
		near, far := net.Pipe()
		served := make(chan error, 1)
		go func() { served <- s.Run(t.Context(), mcp.NewStreamConn(near, near, nil)) }()
		io.WriteString(far, `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`+"\n")
		if _, err := far.Read(make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
		var sent atomic.Int64
		go func() {
			for id := 2; ; id++ {
				if _, err := fmt.Fprintf(far, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo"}}`+"\n", id); err != nil {
					return
				}
				sent.Add(1)
			}
		}()
		synctest.Wait()
		if n := sent.Load(); n > 1000 {
			t.Errorf("server read %d requests of a client that does not read, want at most 1000", n)
		}
		far.Close()
		<-served
	})
}

// Params set by middleware are validated like those of a client.
func TestArgumentsSetByMiddlewareAreValidated(t *testing.T) {
	var params string
	s := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger(), Middleware: []mcp.Middleware{func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method == "tools/call" {
				req.Params = []byte(`{"name":"echo","arguments":` + params + `}`)
			}
			return next.ServeMCP(ctx, req)
		})
	}}})
	type in struct {
		Message string `json:"message"`
		N       int    `json:"n,omitzero"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, in in) (string, error) { return in.Message, nil })
	c, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	call := func(arguments string) (*mcp.CallToolResult, error) {
		params = arguments
		return c.CallTool(t.Context(), "echo", map[string]any{"message": "m"})
	}
	if res, err := call(`{"message":"other"}`); err != nil || res.Text() != "other" {
		t.Errorf("got %v, %v, want \"other\"", res, err)
	}
	for _, bad := range []string{
		`{"message":"x","message":"y"}`, "{\"message\":\"x\xff\"}", `{"message":"x" "n":5}`, `{"message":"x","n":05}`,
		`{"message":"x",}`, "{\"message\":\"a\nb\"}", `{"message";"x"}`,
	} {
		if res, err := call(bad); err == nil && !res.IsError {
			t.Errorf("%s: got %s, want an error", bad, res.Text())
		}
	}
}
