package cli

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/otelmcp"
)

// Names of this program in traces and metrics, unless OTEL_SERVICE_NAME has another.
const (
	serviceClient  = "patchbay"
	serviceDemo    = "patchbay-demo"
	serviceGateway = "patchbay-gateway"
)

// clientStopTimeout bounds the export at the end of a command whose user waits for it.
const clientStopTimeout = 2 * time.Second

// A watch starts the observation of a command.
type watch struct {
	IO *streams

	observed   *observation // of the clients of the command; nil before the first client
	completing bool         // the command line is being completed: no command is started
}

// An observation is what a command exports about its requests.
type observation struct {
	exporters *telemetry.Exporters
	observer  *otelmcp.Observer // nil if nothing is exported
	ops       *opsServer        // nil without one
}

// unobserved returns an observation that exports nothing.
func unobserved() *observation { return &observation{exporters: telemetry.Discard()} }

// observeOptions configures an observation.
type observeOptions struct {
	telemetry.Options
	ops *opsOptions // nil without the ops listener
	// public: other machines send requests. They must not choose what is sampled.
	public bool
	// lenient exports nothing if a variable is invalid, in place of an error: applications start programs
	// on stdio with variables that are for themselves.
	lenient bool
}

// observe starts what the variables OTEL_* and the options ask for. Without both it starts nothing.
func (w *watch) observe(ctx context.Context, o *observeOptions) (*observation, error) {
	o.Version, o.Logger, o.Prometheus = version(), w.IO.logger(), o.ops != nil
	exporters, err := telemetry.Start(ctx, &o.Options)
	switch {
	case err != nil && o.lenient:
		w.IO.Err.printf("%s traces and metrics are not exported: %s", w.IO.warning(), cleanLine(err.Error()))
		return unobserved(), nil
	case err != nil:
		return nil, usage(err)
	}
	b := &observation{exporters: exporters}
	if o.ops != nil {
		if b.ops, err = w.serveOps(ctx, o.ops, exporters); err != nil {
			exporters.Stop()
			return nil, err
		}
	}
	if exporters.Exports() {
		b.observer = otelmcp.New(&otelmcp.Options{TracerProvider: exporters.Traces, MeterProvider: exporters.Metrics,
			Propagator: exporters.Propagator, PublicEndpoint: o.public})
	}
	return b, nil
}

// mcpObserver returns the observer for servers and clients, nil if nothing is exported.
func (b *observation) mcpObserver() mcp.Observer {
	if b.observer == nil {
		return nil
	}
	return b.observer
}

// observeStats exports the figures of servers and hosts.
func (b *observation) observeStats(sources ...any) error {
	if b.observer == nil {
		return nil
	}
	return b.observer.ObserveStats(sources...)
}

// ready says that the command serves, until ctx ends. details are for /readyz?verbose.
func (b *observation) ready(ctx context.Context, details func() any) {
	if b.ops != nil {
		b.ops.ready(ctx, details)
	}
}

// url returns the URL of the ops listener without a path, "" without one.
func (b *observation) url() string {
	if b.ops == nil {
		return ""
	}
	return b.ops.url
}

// end exports what is left, and ends the ops listener.
func (b *observation) end() {
	b.exporters.Stop()
	if b.ops != nil {
		b.ops.end()
	}
}

// clientObserver returns the observer of the clients of a command, nil if no variable asks for traces.
func (w *watch) clientObserver(ctx context.Context) mcp.Observer {
	if w.completing {
		return nil
	}
	if w.observed == nil {
		o := &observeOptions{lenient: true}
		o.Service, o.OnlyTraces, o.StopTimeout = serviceClient, true, clientStopTimeout
		w.observed, _ = w.observe(ctx, o) // lenient: no error
	}
	return w.observed.mcpObserver()
}
