package explore_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/explore"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/values"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A run in a selected revision waits for a server that starts slowly as long as the configuration says.
func TestRunsWaitForStartTimeout(t *testing.T) {
	for setting, want := range map[string]string{"5m": "", "3m": "no connection within 3m0s"} {
		for _, revision := range []string{mcptest.Modern, "2025-11-25"} {
			t.Run(setting+" "+revision, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testStartTimeout(t, setting, revision, want) })
			})
		}
	}
}

func testStartTimeout(t *testing.T, setting, revision, want string) {
	text := fmt.Sprintf(`{"mcpServers":{"fs":{"command":"x"}},
		"patchbay":{"servers":{"fs":{"startTimeout":%q}}}}`, setting)
	f, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	g, _ := consoletest.Gateway(t, text, nil, func(_ *host.Options, o *gateway.AdminOptions) {
		o.ServerConfig = func(_ context.Context, server string) ([]gateway.ServerValue, error) {
			return values.Of(&hosting.Config{}, f, server)
		}
	})
	site := page.NewSite(g.AdminClient, slog.New(slog.DiscardHandler))
	defer site.End()
	server := mcp.NewServer("fs", "1", nil)
	mcp.AddTool(server, &mcp.Tool{Name: "read"}, func(context.Context, struct{}) (string, error) { return "", nil })
	ended := make(chan struct{})
	defer synctest.Wait() // for the server
	defer close(ended)
	server.Use(func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if req.Method == "initialize" || req.Method == "server/discover" {
				select {
				case <-time.After(4 * time.Minute):
				case <-ended: // a session does not cancel initialize
				}
			}
			return next.ServeMCP(ctx, req)
		})
	})
	dial := func(context.Context, string, *mcp.Principal) (mcp.Transport, error) { return mcp.InMemory(server), nil }
	err = explore.RunPinned(t.Context(), site, "fs", revision, dial)
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("got %v, want %q", err, want)
	}
}
