// Package observe exports the traces and metrics of a command.
package observe

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/otelmcp"
)

// Names of this program in traces and metrics, unless OTEL_SERVICE_NAME specifies another name.
const (
	ServiceClient  = "patchbay"
	ServiceDemo    = "patchbay-demo"
	ServiceGateway = "patchbay-gateway"
)

// clientStopTimeout bounds the export at the end of a command whose user waits for it.
const clientStopTimeout = 2 * time.Second

// A Watch starts the observation of a command.
type Watch struct {
	IO *term.Streams

	Observed   *Observation // of the clients of the command; nil before the first client
	Completing bool         // the command line is being completed: no command is started
}

// An Observation exports the traces and metrics of a command.
type Observation struct {
	Exporters *telemetry.Exporters
	observer  *otelmcp.Observer // nil without exporters
	ops       *opsServer        // nil without an ops listener
}

// Unobserved returns an observation without exporters.
func Unobserved() *Observation { return &Observation{Exporters: telemetry.Discard()} }

// Options configures an observation.
type Options struct {
	telemetry.Options
	Ops *OpsOptions // nil without the ops listener
	// Public means that other machines send requests. They must not choose what is sampled.
	Public bool
	// Lenient ignores an invalid variable and exports no data, because applications start programs
	// on stdio with variables that are meant for themselves.
	Lenient bool
}

// Start starts the exporters that the variables OTEL_* and the options request, if any.
func (w *Watch) Start(ctx context.Context, o *Options) (*Observation, error) {
	o.Version, o.Logger, o.Prometheus = build.Version(), w.IO.Logger(), o.Ops != nil
	exporters, err := telemetry.Start(ctx, &o.Options)
	switch {
	case err != nil && o.Lenient:
		w.IO.Err.Printf("%s traces and metrics are not exported: %s", w.IO.Warning(), term.CleanLine(err.Error()))
		return Unobserved(), nil
	case err != nil:
		return nil, exit.UsageError(err)
	}
	b := &Observation{Exporters: exporters}
	if o.Ops != nil {
		if b.ops, err = w.serveOps(ctx, o.Ops, exporters); err != nil {
			exporters.Stop()
			return nil, err
		}
	}
	if exporters.Exports() {
		b.observer = otelmcp.New(&otelmcp.Options{TracerProvider: exporters.Traces, MeterProvider: exporters.Metrics,
			Propagator: exporters.Propagator, PublicEndpoint: o.Public})
	}
	return b, nil
}

// McpObserver returns the observer for servers and clients, or nil without exporters.
func (b *Observation) McpObserver() mcp.Observer {
	if b.observer == nil {
		return nil
	}
	return b.observer
}

// ObserveStats exports the figures of servers and hosts.
func (b *Observation) ObserveStats(sources ...any) error {
	if b.observer == nil {
		return nil
	}
	return b.observer.ObserveStats(sources...)
}

// Ready says that the command serves, until ctx ends. details are for /readyz?verbose.
func (b *Observation) Ready(ctx context.Context, details func() any) {
	if b.ops != nil {
		b.ops.ready(ctx, details)
	}
}

// URL returns the URL of the ops listener without a path, or "" without a listener.
func (b *Observation) URL() string {
	if b.ops == nil {
		return ""
	}
	return b.ops.url
}

// End exports the remaining data, and ends the ops listener.
func (b *Observation) End() {
	b.Exporters.Stop()
	if b.ops != nil {
		b.ops.end()
	}
}

// ClientObserver returns the observer of the clients of a command, nil if no variable asks for traces.
func (w *Watch) ClientObserver(ctx context.Context) mcp.Observer {
	if w.Completing {
		return nil
	}
	if w.Observed == nil {
		o := &Options{Lenient: true}
		o.Service, o.OnlyTraces, o.StopTimeout = ServiceClient, true, clientStopTimeout
		w.Observed, _ = w.Start(ctx, o) // lenient: no error
	}
	return w.Observed.McpObserver()
}

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

// Authority returns the host and port of an address for clients on this machine.
func Authority(addr net.Addr) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok || !tcp.IP.IsUnspecified() {
		return addr.String()
	}
	_, port, _ := net.SplitHostPort(addr.String())
	return net.JoinHostPort("127.0.0.1", port)
}

// WithLoopbackHost adds a loopback host to an address without one: the demo is not for the network.
func WithLoopbackHost(addr string) string {
	if host, port, err := net.SplitHostPort(addr); err == nil && host == "" {
		return net.JoinHostPort("127.0.0.1", port)
	}
	return addr
}
