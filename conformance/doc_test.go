package conformance_test

import (
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// The tests of this file run the code of doc comments that name a reference server. npx finds the
// package in node_modules.

func TestDocClient(t *testing.T) {
	needNode(t)
	ctx := t.Context()
	err := func() error {
		c, err := mcp.Connect(ctx, mcp.Command("npx", "-y", "@modelcontextprotocol/server-everything"), nil)
		if err != nil {
			return err
		}
		defer c.Close()
		tools, err := mcp.Collect(c.Tools(ctx))
		text, err := mcp.CallTool[string](ctx, c, "get-sum", map[string]any{"a": 1, "b": 2})
		if len(tools) == 0 || !strings.Contains(text, "3") {
			t.Errorf("got %d tools, %q", len(tools), text)
		}
		return err
	}()
	if err != nil {
		t.Error(err)
	}
}

func TestDocCommand(t *testing.T) {
	needNode(t)
	const token = "secret"
	ctx := t.Context()
	server := mcp.Command("npx", "-y", "@modelcontextprotocol/server-everything")
	server.Env = []string{"EXAMPLE_TOKEN=" + token}
	client, err := mcp.Connect(ctx, server, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if text, err := mcp.CallTool[string](ctx, client, "get-env", nil); err != nil || !strings.Contains(text, token) {
		t.Errorf("got %s, %v", text, err)
	}
}
