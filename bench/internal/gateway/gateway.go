// Package gateway builds the gateways of this project for the benchmark.
package gateway

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// View returns what the local user may use over n servers, which are named by echo.GatewayServer, dialed
// with dial, and of an era.
func View(n int, era echo.Era, dial func(name string) mcp.Transport) (*host.View, error) {
	entries := make([]string, n)
	for i := range entries {
		name := echo.GatewayServer(i)
		entries[i] = fmt.Sprintf(`%q:{"command":%q}`, name, name)
	}
	file, err := config.Parse([]byte(`{"mcpServers":{` + strings.Join(entries, ",") +
		`},"patchbay":{"tools":{"mode":"list"}}}`)) // no search in place of a long list
	if err != nil {
		return nil, err
	}
	h, err := host.Open(context.Background(), file, &host.Options{
		Dial:   func(_ context.Context, s *config.Server) (mcp.Transport, error) { return dial(s.Command), nil },
		Client: mcp.ClientOptions{Revision: era.Revision()},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
	if err != nil {
		return nil, err
	}
	return h.For(&host.Caller{}), nil
}
