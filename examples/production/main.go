// Command production is an MCP server over HTTP for a reverse proxy or a container, with allowed hosts
// and origins, a health check, state keys that replicas share, and a graceful shutdown. Its settings
// are environment variables; lists are separated by spaces:
//
//	MCP_STATE_KEY=$(openssl rand -hex 32) MCP_ADDR=0.0.0.0:8080 \
//	MCP_HOSTS=mcp.example.com MCP_ORIGINS=https://app.example.com production
package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Getenv)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, getenv func(string) string) error {
	s, err := newServer(getenv("MCP_STATE_KEY"))
	if err != nil {
		return err
	}
	h := newHandler(s, strings.Fields(getenv("MCP_HOSTS")), strings.Fields(getenv("MCP_ORIGINS")))
	return serve(ctx, cmp.Or(getenv("MCP_ADDR"), "127.0.0.1:8080"), h)
}

type sum struct {
	A int `json:"a" jsonschema:"first addend"`
	B int `json:"b" jsonschema:"second addend"`
}

func add(_ context.Context, in sum) (int, error) { return in.A + in.B, nil }

// newServer returns the MCP server. All replicas have the same key, so that each can continue a
// call that another began.
func newServer(stateKey string) (*mcp.Server, error) {
	key, err := hex.DecodeString(stateKey)
	if err != nil || len(key) < 32 {
		return nil, errors.New("invalid MCP_STATE_KEY: must be at least 32 bytes in hexadecimal")
	}
	s := mcp.NewServer("calc", "1.0.0", &mcp.ServerOptions{StateKeys: [][]byte{key}})
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two integers."}, add)
	return s, nil
}

func newHandler(s *mcp.Server, hosts, origins []string) *mcphttp.Handler {
	return mcphttp.NewHandler(s, &mcphttp.Options{
		AllowedHosts:   hosts,   // the names by which clients call the server
		AllowedOrigins: origins, // the web pages that may use it
		AnonymousKey:   address,
	})
}

// address returns the network address of a client, so that each anonymous client has limits of its
// own. The proxy in front must set X-Real-IP, and must not pass on the value that a client sends.
// Without such a proxy use r.RemoteAddr alone.
func address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return cmp.Or(r.Header.Get("X-Real-IP"), host)
}

// newMux routes the MCP endpoint, and a health check for clients without MCP.
func newMux(h http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	return mux
}

// serve serves until ctx ends. Calls in progress then have 10 seconds to finish.
func serve(ctx context.Context, addr string, h *mcphttp.Handler) error {
	server := &http.Server{
		Addr: addr, Handler: newMux(h), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
	}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.Background(), 12*time.Second)
	defer cancel()
	// The handler first: the server waits for streams, but does not end them.
	return errors.Join(h.Shutdown(ending), server.Shutdown(ending), server.Close())
}
