package host_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// TestDocHost runs the code of the package comment.
func TestDocHost(t *testing.T) {
	ctx := t.Context()
	file, err := config.Parse([]byte(`{"mcpServers": {}}`))
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Open(ctx, file, nil)
	client, err := mcp.Connect(ctx, mcp.InMemory(h.For(&policy.Caller{})), nil)
	if err != nil {
		t.Fatal(err)
	}
	tools, err := mcp.Collect(client.Tools(ctx))
	if len(tools) != 0 || err != nil || client.Close() != nil || h.Close() != nil {
		t.Errorf("got %d tools, %v, want none of a configuration without servers", len(tools), err)
	}
}
