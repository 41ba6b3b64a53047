package cmdutil

import (
	"context"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// HTTPOptions contains the flags of commands that serve stdio, or HTTP on an address of this machine.
type HTTPOptions struct {
	Addr   string // stdio if empty
	NoAuth bool
}

// AddFlags adds the flags to a command.
func (o *HTTPOptions) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.Addr, "http", "",
		"serve HTTP on this `host:port` of this machine instead of stdio; port 0 chooses a free port")
	AddNoAuthFlag(cmd, &o.NoAuth)
}

// Check refuses addresses that other machines reach: a bridge adds the user's login to requests, or runs
// the user's command, and the key would be sent unencrypted.
func (o *HTTPOptions) Check() error {
	host, _, err := net.SplitHostPort(observe.WithLoopbackHost(o.Addr))
	if o.Addr != "" && (err != nil || !netx.IsLocalHost(host)) {
		return exit.UsageError(fmt.Errorf("invalid --http %q: must be host:port with a loopback address, "+
			"since the key of clients is sent unencrypted", o.Addr))
	}
	return nil
}

// Stdio returns the connection to the client that started the program.
func Stdio(f *Factory) mcp.Conn {
	if f.IO.In.R == os.Stdin {
		return mcp.Stdio()
	}
	return mcp.NewStreamConn(f.IO.In.R, f.IO.Out.W, nil)
}

// Serve serves a handler to one client on stdio, or over HTTP until ctx is done. Over HTTP it prints the
// URL, and the key that clients must send.
func (o *HTTPOptions) Serve(ctx context.Context, f *Factory, h mcp.Handler) error {
	if o.Addr == "" {
		return mcp.Serve(ctx, h, Stdio(f), &mcp.ServeOptions{Logger: f.IO.Logger()})
	}
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", observe.WithLoopbackHost(o.Addr))
	if err != nil {
		return &exit.Error{Code: exit.Failure, Err: err}
	}
	defer listener.Close()
	address := "http://" + listener.Addr().String() + connect.Endpoint
	key := HTTPKey(f, o.NoAuth)
	switch {
	case f.Flags.JSON:
		f.IO.Out.Value(httpReport{URL: address, Headers: KeyHeaders(key)})
	case key != "":
		f.IO.Out.Printf("%s\nAuthorization: Bearer %s", address, key)
	default:
		f.IO.Out.Printf("%s", address)
	}
	handler := mcphttp.NewHandler(h, &mcphttp.Options{Logger: f.IO.Logger()})
	return mcphttp.Serve(ctx, listener, connect.Endpoint, handler, connect.NameEndpoint(address), RequireKey(key),
		asLocalUser)
}

// An httpReport contains the configuration that a client of a server over HTTP needs.
type httpReport struct {
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitempty"`
}
