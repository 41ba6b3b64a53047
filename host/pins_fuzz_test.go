package host_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// FuzzPins decodes records of pins, which another program may have changed.
func FuzzPins(f *testing.F) {
	f.Add([]byte(`{"server":"s","kinds":{"tool":{"complete":true,"items":{"t":{"listed":"a",` +
		`"approved":[{"digest":"a","json":"{\"name\":\"t\",\"inputSchema\":{}}"}],"pending":[{"digest":"b","json":"{"}]}}}}}`))
	f.Add([]byte(`{"kinds":{"tool":null}}`))
	f.Add([]byte(`{"kinds":{"prompt":{"items":{"p":null}}}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		encoded, pins, err := host.CheckPins(text)
		if err != nil {
			return
		}
		again, same, err := host.CheckPins(encoded)
		if err != nil || same != pins || !bytes.Equal(encoded, again) {
			t.Fatalf("%s\n%s\n%d and %d pins, %v", encoded, again, pins, same, err)
		}
	})
}

// FuzzDiff shows definitions: no line can change the terminal, and equal definitions do not differ.
func FuzzDiff(f *testing.F) {
	f.Add(`{"name":"t","description":"a\u202eb\nc"}`, `{"name":"t","description":"a\ud800"}`)
	f.Add(`{"a/b":[1,{"\u0000":""}]}`, "\x1b[31m")
	f.Fuzz(func(t *testing.T, old, now string) {
		definition := func(text string) []host.Definition { return []host.Definition{{JSON: json.RawMessage(text)}} }
		p := &host.Pin{Kind: host.PinTool, Approved: definition(old), Pending: definition(now)}
		for _, line := range p.Diff() {
			if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool {
				return r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Bidi_Control)
			}) {
				t.Fatalf("unsafe line %q", line)
			}
		}
		p.Pending = definition(old)
		for _, line := range p.Diff() {
			if !strings.HasPrefix(line, "! ") {
				t.Fatalf("a definition differs from itself: %q", line)
			}
		}
	})
}

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
		c, err := mcp.Connect(b.Context(), mcp.InMemory(h.For(&host.Caller{})), nil)
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
