//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// gatewayVariable is the environment variable that makes this program the gateway process.
const gatewayVariable = "PATCHBAY_CHAOS_GATEWAY"

// A gatewayConfig is what the gateway process gets, as JSON in gatewayVariable.
type gatewayConfig struct {
	Dir    string
	Public string // the URL of the proxy, by which clients call the gateway
	File   json.RawMessage
}

// serveGateway is the gateway process: the servers of a configuration behind one endpoint, for
// several principals.
func serveGateway(text string) error {
	var c gatewayConfig
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return err
	}
	go exitWithParent()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	keys, err := readKeys(filepath.Join(c.Dir, "state.keys"))
	if err != nil {
		return err
	}
	file, err := config.Parse(c.File)
	if err != nil {
		return err
	}
	h, err := host.Open(ctx, file, &host.Options{StateKeys: keys, Logger: log,
		Policy: hostSteps{c.Dir}, Recorder: hostSteps{c.Dir}})
	if err != nil {
		return err
	}
	var tokens []oauth.StaticToken
	for _, p := range principals {
		tokens = append(tokens, oauth.StaticToken{Token: tokenOf(p), Subject: p})
	}
	static, err := oauth.NewStaticVerifier(tokens...)
	if err != nil {
		return err
	}
	front := gateway.New(h, &gateway.Options{Logger: log})
	handler := mcphttp.NewHandler(front.Endpoint(gateway.Route{}), &mcphttp.Options{Logger: log,
		Sessions: mcphttp.SessionOptions{IdleTimeout: 20 * time.Second}})
	resource := oauth.ResourceMetadata{Resource: c.Public + "/mcp"}
	protect := oauth.Require(static, resource, &oauth.RequireOptions{Logger: log})
	g := &gatewayProcess{host: h}
	go g.late.measure(ctx)
	go g.restartCrashed(ctx)
	return errors.Join(serveBoth(ctx, "127.0.0.1", protect(frontSteps(c.Dir, handler)), g.debug(), handler), h.Close())
}

// A gatewayProcess is what the gateway process holds.
type gatewayProcess struct {
	host     *host.Host
	late     lateness
	restarts atomic.Int64
}

// restartCrashed restarts servers in a crash loop, as an operator does: faults are more frequent than
// any server fails.
func (g *gatewayProcess) restartCrashed(ctx context.Context) {
	for e := range g.host.Events(ctx) {
		if e.State != status.CrashLoop {
			continue
		}
		for _, u := range g.host.Upstreams() {
			if u.Name() == e.Server {
				g.restarts.Add(1)
				_ = u.Restart(ctx) // the error is that of the server, and of the next call
			}
		}
	}
}

// A gatewayUsage is the usage of the gateway process and of its host.
type gatewayUsage struct {
	usage
	Instances, Suspended int
	Restarts             int64
}

func (g *gatewayProcess) usage() gatewayUsage {
	u := gatewayUsage{usage: ownUsage(&g.late), Restarts: g.restarts.Load()}
	for _, up := range g.host.Upstreams() {
		status := up.Status()
		u.Instances += len(status.Instances)
		u.Suspended += status.Suspended
	}
	return u
}

// debug returns the endpoint for the usage and the state of the process.
func (g *gatewayProcess) debug() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /usage", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(g.usage())
	})
	mux.HandleFunc("POST /stop", func(http.ResponseWriter, *http.Request) {
		var all sync.WaitGroup
		for _, u := range g.host.Upstreams() {
			all.Go(u.Stop)
		}
		all.Wait()
	})
	mux.HandleFunc("GET /stacks", func(w http.ResponseWriter, _ *http.Request) {
		_ = pprof.Lookup("goroutine").WriteTo(w, 1)
		for _, u := range g.host.Upstreams() {
			fmt.Fprintf(w, "%s: %+v\n", u.Name(), u.Status())
		}
	})
	return mux
}
