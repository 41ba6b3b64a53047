package record

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// NewCmdBridge returns the command "bridge".
func NewCmdBridge(f *cmdutil.Factory) *cobra.Command {
	var addr string
	cmd := cmdutil.TargetCommand(f, "bridge", "Serve a remote server on stdio, or a stdio server over HTTP (proxy)",
		nil,
		func(ctx context.Context, t *target.Target, _ []string) error { return bridge(ctx, f, t, addr) })
	cmdutil.AddHTTPFlag(f, cmd, &addr)
	return cmd
}

// bridge serves a target until the client or ctx ends. All clients share a connection to it.
func bridge(ctx context.Context, f *cmdutil.Factory, t *target.Target, addr string) error {
	if len(f.Flags.Roots) > 0 || f.Flags.Answers != "" {
		return exit.UsageError(errors.New("--root and --answers do not apply to bridge: the client answers the server"))
	}
	if addr == "" {
		f.IO.Interactive = false // standard input contains messages
	} else if err := cmdutil.CheckBridgeAddr(addr); err != nil {
		return exit.UsageError(err)
	}
	f.Client.Bridging, f.Client.Explain = true, func(next mcp.Handler) mcp.Handler { return explainRefusals(f, next) }
	c, err := f.Client.Connect(ctx, t)
	if err != nil {
		return err
	}
	defer f.Client.Close(c)
	if addr == "" {
		return mcp.Serve(ctx, mcp.Forward(c), cmdutil.Stdio(f), &mcp.ServeOptions{Logger: f.IO.Logger()})
	}
	return cmdutil.ServeLocal(ctx, f, mcp.Forward(c), addr)
}

// explainRefusals is a middleware of the bridge. The error of a request without the required login
// names the command that logs in: users of the client seldom see standard error.
func explainRefusals(f *cmdutil.Factory, next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		res, err := next.ServeMCP(ctx, req)
		code := exit.Code(ctx, err)
		if code != exit.Auth || slices.Contains([]string{driver.MethodInitialize, driver.MethodDiscover}, req.Method) {
			return res, err
		}
		a := cmdutil.Advise(ctx, f, code, err)
		text := cmp.Or(a.Message, exit.Text(code, err))
		if help := cmp.Or(a.Login, a.Hint); help != "" {
			text += ": " + help
		}
		f.IO.Err.Printf("patchbay: %s: %s", req.Method, term.CleanLine(text))
		return nil, mcp.Errorf(mcp.CodeInternalError, "%s", term.CleanLine(text))
	})
}
