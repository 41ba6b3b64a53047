// Command server is the server that the official conformance suites test. One process without
// options has every fixture for every revision.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"os/signal"
	"syscall"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "host:port to listen on")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	if err := mcphttp.Serve(ctx, listener, "/mcp", mcphttp.NewHandler(newServer(), nil)); err != nil {
		log.Fatal(err)
	}
}

func newServer() *mcp.Server {
	s := mcp.NewServer("patchbay-everything", "1.0.0", &mcp.ServerOptions{
		Instructions: "Fixtures of the conformance suites.",
	})
	addContentTools(s)
	addStreamTools(s)
	addQuestionTools(s)
	addInputRequired(s)
	addTriggers(s)
	addResources(s)
	addPrompts(s)
	addSkills(s)
	addTasks(s)
	return s
}
