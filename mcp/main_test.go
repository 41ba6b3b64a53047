package mcp_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// object is a JSON object.
type object = map[string]any

// newServer returns a server that logs to the test. The options may be nil.
func newServer(t testing.TB, opts *mcp.ServerOptions) *mcp.Server {
	t.Helper()
	var o mcp.ServerOptions
	if opts != nil {
		o = *opts
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	return mcp.NewServer("test", "1", &o)
}

// addTool registers a tool that takes no arguments and returns text.
// oneProcess omits the sessions of several processes, for tests of state that each process has.
func oneProcess(all []mcptest.Combination) []mcptest.Combination {
	return slices.DeleteFunc(all, func(on mcptest.Combination) bool {
		return on.Transport == mcptest.Replicas && !on.Modern()
	})
}

func addTool(s *mcp.Server, name string, f func(ctx context.Context) (string, error)) *mcp.Registration[mcp.Tool] {
	return mcp.AddTool(s, &mcp.Tool{Name: name}, func(ctx context.Context, _ struct{}) (string, error) { return f(ctx) })
}

type toolResult struct {
	Content []struct {
		Type, Text string
	}
	StructuredContent json.RawMessage
	IsError           bool
}

// text returns the text of the first content block.
func (r toolResult) text() string {
	if len(r.Content) == 0 {
		return ""
	}
	return r.Content[0].Text
}

func callTool(t *testing.T, c *mcptest.Client, name string, args map[string]any) toolResult {
	t.Helper()
	params := object{"name": name}
	if args != nil {
		params["arguments"] = args
	}
	return decode[toolResult](t, c.Call("tools/call", params))
}

func decode[T any](t *testing.T, raw json.RawMessage) (v T) {
	t.Helper()
	if err := json.Unmarshal(raw, &v); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	return v
}

// wantCode checks for a protocol error with the given code.
func wantCode(t *testing.T, what string, err *mcp.Error, code int) {
	t.Helper()
	if err == nil || err.Code != code {
		t.Errorf("%s: got %v, want an error of code %d", what, err, code)
	}
}
