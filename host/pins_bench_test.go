package host_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// BenchmarkInitializeFromPins measures the first connection of a client to a new host with 20 servers,
// none of which is started.
func BenchmarkInitializeFromPins(b *testing.B) {
	state := &state.Memory{}
	servers := map[string]mcp.Handler{}
	entries := map[string]any{}
	for n := range 20 {
		name := fmt.Sprint("s", n)
		s := newServer(name)
		for i := range 20 {
			mcp.AddTool(s, &mcp.Tool{Name: fmt.Sprint("tool", i), Description: strings.Repeat("Does it. ", 30)}, nothing)
		}
		servers[name], entries[name] = s, map[string]string{"command": name}
	}
	open := func() *host.Host { return openForBenchmark(b, entries, servers, state) }
	h := open()
	if tools, err := h.Tools(b.Context()); err != nil || len(tools) != 20*22 {
		b.Fatal(len(tools), err)
	}
	_ = h.Close()
	var longest time.Duration
	for b.Loop() {
		begun := time.Now()
		h := open()
		c, err := mcp.Connect(b.Context(), mcp.InMemory(h.For(&policy.Caller{})), nil)
		if err != nil {
			b.Fatal(err)
		}
		longest = max(longest, time.Since(begun))
		_ = c.Close()
		_ = h.Close()
	}
	b.ReportMetric(float64(longest.Microseconds())/1000, "ms/longest")
}

func nothing(context.Context, struct{}) (string, error) { return "", nil }

func openForBenchmark(
	b *testing.B, entries map[string]any, servers map[string]mcp.Handler, state state.Store,
) *host.Host {
	text, err := json.Marshal(map[string]any{"mcpServers": entries,
		"patchbay": map[string]any{"tools": map[string]string{"mode": "list"}}})
	if err != nil {
		b.Fatal(err)
	}
	f, err := config.Parse(text)
	if err != nil {
		b.Fatal(err)
	}
	h, err := host.Open(b.Context(), f, &host.Options{Pins: true, State: state, Logger: noLog,
		Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
			return mcp.InMemory(servers[s.Command]), nil
		}})
	if err != nil {
		b.Fatal(err)
	}
	return h
}
