package root

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"regexp"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/run"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// runsOutside matches configurations that may run commands or read files of the machine.
var runsOutside = regexp.MustCompile(`(?i)exec|file|helper|\\u`)

// No configuration ends the process of a gateway: an invalid entry fails alone.
func FuzzGatewayConfiguration(f *testing.F) {
	f.Add(`{"mcpServers": {"ok": {"command": "x"}, "": {"command": "x"}}}`)
	f.Add(`{"mcpServers": {" ": {"url": "http://127.0.0.1/mcp"}, "a": 1, "b": {}, "c": {"command": "x", "env": {"": ""}}}}`)
	f.Add(`{"servers": {"a": {"type": "http"}, "A": {"type": "sse", "url": "x"}}, "patchbay": {"names": {"mode": "none"}}}`)
	f.Add(`{"mcpServers": {"a": {"command": "${A}"}}, "patchbay": {"profiles": {"": {"servers": [""]}}, "servers": {"": {}}}}`)
	f.Add(`{"mcpServers": {"a__b": {"command": "x"}, "a": {"command": "x"}}, "patchbay": {"servers": {"a": {"share": "call"}}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		file, err := config.Parse([]byte(text))
		if err != nil || runsOutside.MatchString(text) {
			return
		}
		gatewayOf(t, file)
	})
}

// gatewayOf runs a gateway for a configuration. It can connect only to every second server.
func gatewayOf(t *testing.T, file *config.File) {
	t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	h, err := host.Open(t.Context(), file, &host.Options{
		Logger: quiet,
		Lookup: func(string) (string, bool) { return "", false },
		Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
			if len(s.Name)%2 == 0 {
				return nil, errors.New("refused")
			}
			return mcp.InMemory(mcp.NewServer(s.Name, "1", nil)), nil
		},
	})
	if err != nil {
		return
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	p := newRun(nil, io.Discard, io.Discard)
	g := &run.Run{Host: h, Config: &hosting.Config{File: file}}
	defer run.ReportServers(t.Context(), p, g)()
	_ = gateway.New(h, &gateway.Options{Logger: quiet})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(h.For(&policy.Caller{})), nil)
	if err != nil {
		t.Fatalf("a client cannot connect: %v", err)
	}
	defer c.Close()
	for _, err := range c.Tools(t.Context()) {
		if err != nil {
			t.Fatalf("list tools: %v", err)
		}
	}
	for _, u := range h.Upstreams() {
		_ = u.Status()
		_ = u.Restart(t.Context())
	}
	_, _ = h.Reload(t.Context(), file)
}
