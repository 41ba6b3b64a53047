// Command server is the server that the official conformance suites test. One process without
// options has every fixture for every revision. Processes with the same -store are one server.
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
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/stores/shared"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "host:port to listen on")
	store := flag.String("store", "", "`URL` of a Redis server that several processes share")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	var handler mcphttp.Options
	server := mcp.ServerOptions{Instructions: "Fixtures of the conformance suites."}
	var background tasks.Options
	lasts := time.Second
	if *store != "" {
		s, err := shared.Open(ctx, *store)
		if err != nil {
			log.Fatal(err)
		}
		defer s.Close()
		s.Configure(&handler)
		server.StateKeys, server.StateStore = s.StateKeys(), s.Redis.States()
		background.Store = s.Redis.Tasks("conformance")
		lasts = 0 // the lists of the other processes stay the same
	}
	fmt.Printf("http://%s/mcp\n", listener.Addr())
	h := mcphttp.NewHandler(newServer(&server, &background, lasts), &handler)
	if err := mcphttp.Serve(ctx, listener, "/mcp", h); err != nil {
		log.Fatal(err)
	}
}

func newServer(opts *mcp.ServerOptions, background *tasks.Options, lasts time.Duration) *mcp.Server {
	s := mcp.NewServer("patchbay-everything", "1.0.0", opts)
	addContentTools(s)
	addStreamTools(s)
	addQuestionTools(s)
	addInputRequired(s)
	addTriggers(s, lasts)
	addResources(s)
	addPrompts(s)
	addSkills(s)
	addTasks(s, background)
	return s
}
