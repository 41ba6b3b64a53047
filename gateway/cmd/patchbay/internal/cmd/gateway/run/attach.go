package run

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/gatewayclient"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/hosting"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// attachStdio attaches a client on standard input and output to the running gateway. g.attached
// remains nil if no gateway runs or the gateway refuses the client: then this process must serve
// it.
func attachStdio(f *cmdutil.Factory, g *Run) {
	if !g.Stdio || g.Own || len(g.Args) > 0 || g.cmd.ArgsLenAtDash() >= 0 {
		return
	}
	a, err := hosting.Attach(g.cmd.Context(), f, g.Profile)
	switch {
	case err == nil:
		g.attached = a
	case !gatewayclient.IsNoGateway(err):
		f.IO.Err.Printf("patchbay: does not use the running gateway: %s", term.CleanLine(err.Error()))
	}
}

var errGatewayEnded = errors.New("the gateway that served this client has ended: connect again, which serves " +
	"the client in a process of its own while no gateway is running")

// serveAttached passes messages between the client and the gateway until a side ends.
func serveAttached(ctx context.Context, f *cmdutil.Factory, a *hosting.Attachment) error {
	defer func() { _ = a.Close() }() // fails if the gateway closed the connection first
	ended, received := make(chan struct{}), make(chan error, 1)
	go func() { // ends with standard input, or the process
		_, _ = io.Copy(a.UnixConn, f.IO.In.R) // fails if the gateway has ended, which the read reports too
		close(ended)
		_ = a.CloseWrite()
	}()
	go func() { // ends with the connection
		_, err := io.Copy(f.IO.Out.W, a)
		received <- err
	}()
	releaseCode()
	select {
	case err := <-received: // if the client ended first, this comes after the last response
		select {
		case <-ended:
			return nil
		default:
		}
		if err != nil && ctx.Err() == nil {
			return fmt.Errorf("pass messages to the client: %w", err)
		}
		return &exit.Error{Code: exit.Unreachable, Err: errGatewayEnded}
	case <-ctx.Done():
		return nil
	}
}
