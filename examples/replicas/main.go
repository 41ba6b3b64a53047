// Command replicas is an MCP server that runs as any number of processes behind a load balancer
// without sticky sessions. The processes share their sessions in Redis:
//
//	replicas --addr 127.0.0.1:7001 --store redis://127.0.0.1:6379
//
// An environment variable may contain the store instead, which keeps a password out of the list of
// processes:
//
//	MCP_STORE=rediss://mcp:PASSWORD@redis:6379 replicas --addr 127.0.0.1:7001
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/stores/check"
	"github.com/patchbay-mcp/patchbay/stores/shared"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:7001", "listen at this `host:port`")
	url := flag.String("store", "", "`URL` of the store (default: the variable MCP_STORE)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, *addr, cmp.Or(*url, os.Getenv("MCP_STORE")))
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr, url string) error {
	store, err := shared.Open(ctx, url)
	if err != nil {
		explain(ctx, url)
		return err
	}
	defer store.Close()
	s := mcp.NewServer("replicas", "1.0.0", &mcp.ServerOptions{
		StateKeys: store.StateKeys(), StateStore: store.Redis.States(),
	})
	mcp.AddTool(s, &mcp.Tool{Name: "greet", Description: "Greet the user."}, greet)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two integers."}, add)
	opts := &mcphttp.Options{}
	store.Configure(opts)
	h := mcphttp.NewHandler(s, opts)
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	mux.Handle("GET /readyz", readiness(ctx, store.Ready))
	return serve(ctx, addr, mux, h)
}

// readiness serves the state of the process, which is not ready after ctx ended. The status stays 200
// without the store: all processes have the same, and known sessions go on.
func readiness(ctx context.Context, store func(context.Context) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if ctx.Err() != nil {
			http.Error(w, "shutting down", http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok, store:", cmp.Or(store(r.Context()), errors.New("available")))
	}
}

// explain prints the checks of a store that cannot be opened.
func explain(ctx context.Context, url string) {
	shared.Check(ctx, url, func(f check.Finding) {
		log.Printf("%-7s %-12s %v %s", f.Status, f.Name, f.Seen, f.Next)
	})
}

type name struct {
	Name string `json:"name"`
}

// greet asks for a name. The client may send the answer to another process.
func greet(ctx context.Context, _ struct{}) (string, error) {
	user, err := mcp.Ask[name](ctx, "user", "What is your name?", nil)
	if err != nil {
		return "", err
	}
	return "Hello, " + user.Name + "!", nil
}

type sum struct {
	A int `json:"a" jsonschema:"first addend"`
	B int `json:"b" jsonschema:"second addend"`
}

func add(_ context.Context, in sum) (int, error) { return in.A + in.B, nil }

// notice is how long the program serves on after ctx ended, so that a load balancer learns from /readyz
// that new requests must go to the other processes.
const notice = 5 * time.Second

// serve serves until ctx ended and the notice is over. Calls in progress then have 10 seconds to
// finish. Sessions go on at the other processes.
func serve(ctx context.Context, addr string, mux http.Handler, h *mcphttp.Handler) error {
	server := &http.Server{Addr: addr, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- server.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	select {
	case err := <-failed:
		return err
	case <-time.After(notice):
	}
	ending, cancel := context.WithTimeout(context.Background(), 12*time.Second)
	defer cancel()
	return errors.Join(h.Shutdown(ending), server.Shutdown(ending), server.Close())
}
