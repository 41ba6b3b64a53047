package mcptest

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/replica"
)

// processes are the processes of a server over HTTP. Each request goes to the next process.
type processes struct {
	handlers []*mcphttp.Handler
	served   atomic.Uint64
}

// newProcesses returns the processes of a transport. Several processes share their sessions.
func newProcesses(t testing.TB, h mcp.Handler, transport string) *processes {
	opts, n := mcphttp.Options{Logger: logger(t)}, 1
	if transport == Replicas {
		var shared replica.Memory
		opts.Sessions.Store, opts.Sessions.Bus, n = &shared, &shared, 3
	}
	p := &processes{}
	for range n {
		own := opts
		p.handlers = append(p.handlers, mcphttp.NewHandler(h, &own))
	}
	return p
}

func (p *processes) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := p.served.Add(1) % uint64(len(p.handlers))
	p.handlers[n].ServeHTTP(w, r)
}

// Shutdown shuts all processes down.
func (p *processes) Shutdown(ctx context.Context) (err error) {
	for _, h := range p.handlers {
		err = errors.Join(err, h.Shutdown(ctx))
	}
	return err
}
