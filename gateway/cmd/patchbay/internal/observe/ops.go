package observe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

// OpsOptions configures the ops listener, which serves metrics, health and profiles.
type OpsOptions struct {
	Addr   string
	Server string // the address of the MCP server
	Pprof  bool
}

// An opsServer is the ops listener of a command.
type opsServer struct {
	url     string
	serving atomic.Pointer[servingState] // nil while the command starts
	cancel  context.CancelFunc
	done    chan struct{} // closed at its end
}

// A servingState is that of a command that serves.
type servingState struct {
	isDraining func() bool
	details    func() any
}

var (
	// ErrOpsStdio is returned for --ops without HTTP.
	ErrOpsStdio = errors.New("--ops is for HTTP: --stdio opens no port; set OTEL_EXPORTER_OTLP_ENDPOINT to export " +
		"traces and metrics")
	errStarting = errors.New("starting")
	errDraining = errors.New("draining: requests in progress finish, and new ones are refused")
)

// serveOps opens the ops listener. It serves until end is called, also while the command drains.
func (w *Watch) serveOps(ctx context.Context, o *OpsOptions, e *telemetry.Exporters) (*opsServer, error) {
	addr := WithLoopbackHost(o.Addr)
	if err := telemetry.CheckAddr(addr, o.Server, o.Pprof); err != nil {
		return nil, exit.UsageError(err)
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, &exit.Error{Code: exit.Failure, Err: fmt.Errorf("%w (use --ops for another address)", err)}
	}
	s := &opsServer{url: "http://" + Authority(l.Addr()), done: make(chan struct{})}
	if host, _, err := net.SplitHostPort(l.Addr().String()); err == nil && !netx.IsLocalHost(host) {
		w.IO.Err.Printf("%s other machines reach the ops listener at %s: its metrics need no key", w.IO.Warning(), addr)
	}
	ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	ops := &telemetry.Ops{Metrics: e.Gatherer, Ready: s.readiness, Pprof: o.Pprof, Logger: w.IO.Logger()}
	go func() { // ends with ctx
		defer close(s.done)
		if err := ops.Serve(ctx, l); err != nil {
			w.IO.Err.Printf("%s no more metrics: %s", w.IO.Warning(), term.CleanLine(err.Error()))
		}
	}()
	return s, nil
}

// ready says that the command serves, and drains at the end of ctx.
func (s *opsServer) ready(ctx context.Context, details func() any) {
	s.serving.Store(&servingState{func() bool { return ctx.Err() != nil }, details})
}

func (s *opsServer) readiness() (details any, err error) {
	st := s.serving.Load()
	switch {
	case st == nil:
		return nil, errStarting
	case st.isDraining():
		return st.details(), errDraining
	}
	return st.details(), nil
}

func (s *opsServer) end() {
	s.cancel()
	<-s.done
}

// AnnounceOps prints where the ops listener is, if there is one.
func (w *Watch) AnnounceOps(b *Observation) {
	if url := b.URL(); url != "" {
		w.IO.Out.Printf("Metrics and health are at %s/metrics, /healthz and /readyz", url)
	}
}
