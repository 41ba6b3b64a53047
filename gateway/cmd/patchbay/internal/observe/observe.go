// Package observe exports the traces and metrics of a command.
package observe

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
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
