package host_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// BenchmarkCallThroughView calls a tool of a server in memory through a view, with the default limits,
// but for a rate that a loop without pauses does not reach.
func BenchmarkCallThroughView(b *testing.B) {
	server := mcp.NewServer("s", "1", nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo"}, func(context.Context, struct{}) (string, error) { return "x", nil })
	f, err := config.Parse([]byte(`{"mcpServers": {"s": {"url": "https://s.example/mcp"}},
		"patchbay": {"limits": {"perCaller": "900000000/s"}}}`))
	if err != nil {
		b.Fatal(err)
	}
	h, err := host.Open(b.Context(), f, &host.Options{Logger: noLog,
		Dial: func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(server), nil }})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = h.Close() }()
	c, err := mcp.Connect(b.Context(), mcp.InMemory(h.For(&policy.Caller{Principal: &mcp.Principal{Subject: "ann"}})), nil)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	call := func() {
		if res, err := c.CallTool(b.Context(), "s__echo", nil); err != nil || res.IsError {
			b.Fatal(res, err)
		}
	}
	call()
	b.ReportAllocs()
	for b.Loop() {
		call()
	}
}
