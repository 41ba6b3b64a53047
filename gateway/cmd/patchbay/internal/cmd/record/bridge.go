package record

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// BridgeOptions are the flags of "bridge".
type BridgeOptions struct {
	cmdutil.Invocation
	HTTP cmdutil.HTTPOptions
}

// NewCmdBridge returns the command "bridge".
func NewCmdBridge(f *cmdutil.Factory, run cmdutil.Run[*BridgeOptions]) *cobra.Command {
	o := &BridgeOptions{}
	const short = "Serve a remote server on stdio, or a stdio server over HTTP (proxy)"
	cmd := cmdutil.TargetCommand(f, "bridge", short, nil, o, cmdutil.Or(run, bridge))
	o.HTTP.AddFlags(cmd)
	return cmd
}

// bridge serves a target until the client or ctx ends. All clients share a connection to it.
func bridge(ctx context.Context, o *BridgeOptions) error {
	f := o.Factory
	if len(f.Flags.Roots) > 0 || f.Flags.Answers != "" {
		return exit.UsageError(errors.New("--root and --answers do not apply to bridge: the client answers the server"))
	}
	if err := o.HTTP.Check(); err != nil {
		return err
	}
	if o.HTTP.Addr == "" {
		f.IO.Interactive = false // standard input contains messages
	}
	f.Client.Bridging, f.Client.Explain = true, func(next mcp.Handler) mcp.Handler { return explainRefusals(f, next) }
	c, err := f.Client.Connect(ctx, o.Target)
	if err != nil {
		return err
	}
	defer f.Client.Close(c)
	return o.HTTP.Serve(ctx, f, mcp.Forward(c))
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
