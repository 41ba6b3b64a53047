package mcp_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func TestDEP02_DEP03_DeprecatedFeaturesWorkAndAreWarnedAboutOnce(t *testing.T) {
	for _, on := range mcptest.Combinations() {
		var log bytes.Buffer
		s := newServer(t, &mcp.ServerOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		addTool(s, "all", func(ctx context.Context) (string, error) {
			mcp.Logger(ctx).Error("x")
			if _, err := mcp.Roots(ctx); err != nil {
				return "", err
			}
			p := &mcp.CreateMessageParams{MaxTokens: 1, Messages: []mcp.SamplingMessage{
				{Role: mcp.RoleUser, Content: []mcp.ContentBlock{mcp.Text("x")}}}}
			if _, err := mcp.Sample(ctx, "s", p); err != nil {
				return "", err
			}
			return "done", nil
		})
		opts := &mcptest.Options{LogLevel: "debug"}
		mcptest.RunOn(t, s, []mcptest.Combination{on}, opts, func(t *testing.T, c *mcptest.Client) {
			for range 3 {
				if got := callTool(t, c, "all", nil).text(); got != "done" {
					t.Errorf("got %q, want done", got)
				}
			}
			want := 0
			if c.Modern() {
				want = 1
			}
			for _, feature := range []string{"sampling", "roots", `"log messages to clients"`} {
				if got := strings.Count(log.String(), "feature="+feature); got != want {
					t.Errorf("%d warnings about %s, want %d:\n%s", got, feature, want, &log)
				}
			}
		})
	}
}
