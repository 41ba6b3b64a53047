package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

func bridgeCommand(f *factory) *cobra.Command {
	var addr string
	cmd := targetCommand(f, "bridge", "Serve a remote server on stdio, or a stdio server over HTTP (proxy)", nil,
		func(ctx context.Context, t *target, _ []string) error { return bridge(ctx, f, t, addr) })
	addHTTPFlag(f, cmd, &addr)
	return cmd
}

// addHTTPFlag adds --http, an address for checkBridgeAddr, and its key.
func addHTTPFlag(f *factory, cmd *cobra.Command, addr *string) {
	cmd.Flags().StringVar(addr, "http", "",
		"serve HTTP on this `host:port` of this machine instead of stdio; port 0 chooses a free port")
	addNoAuthFlag(f, cmd)
}

// bridge serves a target until the client or ctx ends. All clients share one connection to it.
func bridge(ctx context.Context, f *factory, t *target, addr string) error {
	if len(f.Flags.roots) > 0 || f.Flags.answers != "" {
		return usage(errors.New("--root and --answers do not apply to bridge: the client answers the server"))
	}
	if addr == "" {
		f.IO.Interactive = false // standard input has messages
	} else if err := checkBridgeAddr(addr); err != nil {
		return usage(err)
	}
	f.Client.bridging, f.Client.explain = true, func(next mcp.Handler) mcp.Handler { return explainRefusals(f, next) }
	c, err := f.Client.connect(ctx, t)
	if err != nil {
		return err
	}
	defer f.Client.close(c)
	if addr == "" {
		return mcp.Serve(ctx, mcp.Forward(c), stdio(f), &mcp.ServeOptions{Logger: f.IO.logger()})
	}
	return serveLocal(ctx, f, mcp.Forward(c), addr)
}

// bridgeTimeout returns how long a request may take without progress. By default that is for the
// client to decide, which cancels its requests; the limit is for clients that do not.
func bridgeTimeout(flag time.Duration) time.Duration {
	if flag == defaultTimeout {
		return time.Hour
	}
	return flag
}

// checkBridgeAddr refuses addresses that other machines reach: the bridge adds the user's login to
// requests, or runs the user's command, and its key would be sent unencrypted.
func checkBridgeAddr(addr string) error {
	host, _, err := net.SplitHostPort(withLoopbackHost(addr))
	if err != nil || !netx.IsLocalHost(host) {
		return fmt.Errorf("invalid --http %q: must be host:port with a loopback address, "+
			"since the key of clients is sent unencrypted", addr)
	}
	return nil
}

// stdio returns the connection to the client that started the program.
func stdio(f *factory) mcp.Conn {
	if f.IO.In.r == os.Stdin {
		return mcp.Stdio()
	}
	return mcp.NewStreamConn(f.IO.In.r, f.IO.Out.w, nil)
}

// explainRefusals is a middleware of the bridge. The error of a request without the required login
// names the command that logs in: users of the client seldom see standard error.
func explainRefusals(f *factory, next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		res, err := next.ServeMCP(ctx, req)
		code := exitCode(ctx, err)
		if code != exitAuth || slices.Contains([]string{driver.MethodInitialize, driver.MethodDiscover}, req.Method) {
			return res, err
		}
		a := advise(ctx, f, code, err)
		text := cmp.Or(a.message, errorText(code, err))
		if help := cmp.Or(a.login, a.hint); help != "" {
			text += ": " + help
		}
		f.IO.Err.printf("patchbay: %s: %s", req.Method, cleanLine(text))
		return nil, mcp.Errorf(mcp.CodeInternalError, "%s", cleanLine(text))
	})
}
