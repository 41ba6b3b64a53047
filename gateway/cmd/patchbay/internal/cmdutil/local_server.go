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

// AddHTTPFlag adds --http, an address for checkBridgeAddr, and its key.
func AddHTTPFlag(f *Factory, cmd *cobra.Command, addr *string) {
	cmd.Flags().StringVar(addr, "http", "",
		"serve HTTP on this `host:port` of this machine instead of stdio; port 0 chooses a free port")
	AddNoAuthFlag(f, cmd)
}

// CheckBridgeAddr refuses addresses that other machines reach: the bridge adds the user's login to
// requests, or runs the user's command, and its key would be sent unencrypted.
func CheckBridgeAddr(addr string) error {
	host, _, err := net.SplitHostPort(observe.WithLoopbackHost(addr))
	if err != nil || !netx.IsLocalHost(host) {
		return fmt.Errorf("invalid --http %q: must be host:port with a loopback address, "+
			"since the key of clients is sent unencrypted", addr)
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

// ServeLocal serves HTTP on an address of this machine until ctx is done. It prints the URL, and the
// key that clients must send.
func ServeLocal(ctx context.Context, f *Factory, h mcp.Handler, addr string) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", observe.WithLoopbackHost(addr))
	if err != nil {
		return &exit.Error{Code: exit.Failure, Err: err}
	}
	defer listener.Close()
	address := "http://" + listener.Addr().String() + connect.Endpoint
	key := HTTPKey(f)
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
