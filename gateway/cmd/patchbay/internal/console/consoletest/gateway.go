package consoletest

import (
	"context"
	"log/slog"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Gateway returns a gateway over a host until the test ends, for the option Admin of a console.
// servers contains the servers by name. prepare may change the options of both.
func Gateway(
	t *testing.T, text string, servers map[string]*mcp.Server, prepare func(*host.Options, *gateway.AdminOptions),
) (*gateway.Gateway, *host.Host) {
	t.Helper()
	f, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	log, events := slog.New(slog.DiscardHandler), gateway.NewEventLog()
	opts := &host.Options{Logger: log, Recorder: events.Recorder(nil),
		Dial: func(_ context.Context, s *config.Server) (mcp.Transport, error) {
			return mcp.InMemory(servers[s.Name]), nil
		}}
	admin := gateway.AdminOptions{Version: "1", Events: events}
	if prepare != nil {
		prepare(opts, &admin)
	}
	h, err := host.Open(t.Context(), f, opts)
	if err != nil {
		t.Fatal(err)
	}
	g := gateway.New(h, &gateway.Options{Logger: log, Admin: admin})
	t.Cleanup(func() {
		if err := g.Shutdown(context.Background()); err != nil {
			t.Error(err)
		}
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return g, h
}

// Guest returns a browser of a console that authenticates each request.
func (s *Site) Guest() *Visitor { return &Visitor{s, s.Stranger()} }
