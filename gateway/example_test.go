package gateway_test

import (
	"context"
	"fmt"
	"net"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// run serves the servers of a file until ctx ends.
func run(ctx context.Context, file *config.File, listener net.Listener, key string) error {
	h, err := host.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	defer h.Close()
	g := gateway.New(h, &gateway.Options{Keys: []string{key}})
	return g.Serve(ctx, listener)
}

func Example() {
	file, err := config.Parse([]byte(`{"mcpServers": {"fs": {"command": "mcp-server-filesystem"}}}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a program serves until it gets a signal
	fmt.Println(run(ctx, file, listener, gateway.NewKey()))
	// Output: <nil>
}
