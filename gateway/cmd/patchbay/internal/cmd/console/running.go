package console

import (
	"context"
	"net/http"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/launch"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// openRunning serves the console of the running gateway through its socket, until ctx ends. The
// gateway sends no messages of its traffic through the socket.
func openRunning(ctx context.Context, o *Options) error {
	f := o.Factory
	running, err := gatewayclient.Require(ctx, f)
	if err != nil {
		return err
	}
	var sources launch.Sources
	if err := sources.AnswerWith(ctx, f.Flags); err != nil {
		return err
	}
	web, err := launch.Listen(&console.Options{
		Admin:   func(*mcp.Principal) *http.Client { return running.HTTP() },
		Version: build.Version(), Logger: f.IO.Logger(), Questions: sources.Questions(),
		Connect: func(ctx context.Context, server string, _ *mcp.Principal) (mcp.Transport, error) {
			a, err := hosting.Attach(ctx, f, gateway.Route{Server: server})
			if err != nil {
				return nil, err
			}
			return mcp.NewConnTransport(mcp.NewStreamConn(a, a, nil)), nil
		},
	}, o.Addr, o.Views)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { launch.Browse(ctx, f, web, !o.NoBrowser) }) // ends with ctx
	return web.Serve(ctx)
}
