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
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Servers are what a gateway is in front of.
type Servers struct {
	N      int                // named by echo.GatewayServer
	Era    echo.Era           // of all
	Server func() *mcp.Server // makes a server in this process, unless it is nil
	// URL is the endpoint of the servers. If it is empty, Command starts each.
	URL     string
	Command []string
	Extra   Extra
	Dir     string // for files of Extra
	// Shared makes all callers share the connection to a server.
	Shared bool
	// State has pins, which are compared if it is not nil.
	State state.Store
	// Observer is that of the host; nil for none.
	Observer mcp.Observer
}

func (s Servers) entry() string {
	switch {
	case s.Server != nil:
		return `{"command":"unused"}`
	case s.URL != "":
		return fmt.Sprintf(`{"type":"http","url":%q}`, s.URL)
	}
	args := make([]string, len(s.Command)-1)
	for i, arg := range s.Command[1:] {
		args[i] = fmt.Sprintf("%q", arg)
	}
	return fmt.Sprintf(`{"command":%q,"args":[%s]}`, s.Command[0], strings.Join(args, ","))
}

// View returns what the local user may use over the servers.
func View(s Servers) (*host.View, error) {
	h, err := Open(s)
	if err != nil {
		return nil, err
	}
	return LocalView(h), nil
}

// LocalView returns what the local user may use.
func LocalView(h *host.Host) *host.View { return h.For(&policy.Caller{}) }

// Open opens a host of the servers.
func Open(s Servers) (*host.Host, error) {
	entries := make([]string, s.N)
	for i := range entries {
		entries[i] = fmt.Sprintf(`%q:%s`, echo.GatewayServer(i), s.entry())
	}
	shared := 0
	if s.Shared {
		shared = s.N
	}
	file, err := config.Parse([]byte(`{"mcpServers":{` + strings.Join(entries, ",") + `},"patchbay":` +
		s.Extra.settings(shared) + "}"))
	if err != nil {
		return nil, err
	}
	opts := &host.Options{
		Client: mcp.ClientOptions{Revision: s.Era.Revision()},
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Observer: s.Observer,
	}
	if s.Server != nil {
		opts.Dial = func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(s.Server()), nil }
	}
	if err := s.Extra.apply(file, opts, s.Dir); err != nil {
		return nil, err
	}
	if s.State != nil {
		opts.State, opts.Pins = s.State, true
	}
	return host.Open(context.Background(), file, opts)
}
