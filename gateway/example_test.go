package gateway_test

import (
	"context"
	"fmt"
	"log"
	"net"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
)

func Example() {
	file, err := config.Parse([]byte(`{"mcpServers": {"fs": {"command": "mcp-server-filesystem"}}}`))
	if err != nil {
		log.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	key := gateway.NewKey() // a program stores it
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // a program serves until it gets a signal

	h, err := host.Open(ctx, file, nil)
	if err != nil {
		log.Fatal(err)
	}
	g := gateway.New(h, &gateway.Options{Keys: []string{key}})
	err = g.Serve(ctx, listener)
	fmt.Println(err, h.Close())
	// Output: <nil> <nil>
}
