package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
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

func ExampleGateway_AdminClient() {
	file, err := config.Parse([]byte(`{"mcpServers": {"fs": {"command": "mcp-server-filesystem"}}}`))
	if err != nil {
		log.Fatal(err)
	}
	h, err := host.Open(context.Background(), file, nil)
	if err != nil {
		log.Fatal(err)
	}
	g := gateway.New(h, nil)
	admin := g.AdminClient(&mcp.Principal{Subject: "ann"})
	res, err := admin.Get("http://localhost/admin/v1/servers/fs")
	if err != nil {
		log.Fatal(err)
	}
	var server struct{ Name, State string }
	err = json.NewDecoder(res.Body).Decode(&server)
	fmt.Println(server.Name, server.State, err, res.Body.Close(), h.Close())
	// Output: fs off <nil> <nil> <nil>
}
