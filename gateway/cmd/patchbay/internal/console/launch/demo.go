package launch

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	demoName    = "demo"          // the name of the server in the console
	demoTimeout = 5 * time.Second // bounds the end of its console
)

// Demo serves a console of the demo server until the returned function is called. ring contains
// the requests of clients, and the requests of the console to server.
func Demo(
	ctx context.Context, f *cmdutil.Factory, addr string, views cmdutil.Views, server mcp.Handler, ring *capture.Ring,
) (stop func(), err error) {
	c := &hosting.Config{Fixed: map[string]*target.Target{}, Events: gateway.NewEventLog(), Capture: ring,
		InProcess: map[string]func() mcp.Transport{demoName: func() mcp.Transport { return mcp.InMemory(server) }}}
	if err := AddServer(c, demoName, map[string]any{"command": "patchbay"}); err != nil {
		return nil, err
	}
	h, err := hosting.OpenHost(ctx, f, c, nil)
	if err != nil {
		return nil, err
	}
	gw := gateway.New(h, &gateway.Options{Logger: f.IO.Logger(),
		Admin: gateway.AdminOptions{Version: build.Version(), Events: c.Events}})
	var wait sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	stop = func() {
		cancel()
		wait.Wait()
		end, cancel := context.WithTimeout(context.Background(), demoTimeout)
		defer cancel()
		_ = gw.Shutdown(end) // it serves no clients
		_ = h.Close()        // of a server in this process
	}
	web, err := New(&Options{Factory: f, Config: c, Gateway: gw, Addr: addr, Views: views})
	if err != nil {
		stop()
		return nil, err
	}
	wait.Go(func() { serveConsole(ctx, f, web) }) // ends with ctx
	wait.Go(func() { Browse(ctx, f, web, false) })
	wait.Go(func() { _ = h.Start(ctx, demoName) }) // the overview shows errors
	return stop, nil
}
