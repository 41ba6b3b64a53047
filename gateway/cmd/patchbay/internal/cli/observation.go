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
func (p *program) observe(ctx context.Context, o *observeOptions) (*observation, error) {
	o.Version, o.Logger, o.Prometheus = version(), p.logger(), o.ops != nil
	exporters, err := telemetry.Start(ctx, &o.Options)
	switch {
	case err != nil && o.lenient:
		p.screen.printf("%s traces and metrics are not exported: %s", p.warning(), cleanLine(err.Error()))
		return unobserved(), nil
	case err != nil:
		return nil, usage(err)
	}
	b := &observation{exporters: exporters}
	if o.ops != nil {
		if b.ops, err = p.serveOps(ctx, o.ops, exporters); err != nil {
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
func (p *program) clientObserver(ctx context.Context) mcp.Observer {
	if p.completing {
		return nil
	}
	b := p.ofShell()
	if b.observed == nil {
		o := &observeOptions{lenient: true}
		o.Service, o.OnlyTraces, o.StopTimeout = serviceClient, true, clientStopTimeout
		b.observed, _ = b.observe(ctx, o) // lenient: no error
	}
	return b.observed.mcpObserver()
}

// ofShell returns the program of the shell that runs this command, or the program itself.
func (p *program) ofShell() *program {
	if p.shell != nil {
		return p.shell.base
	}
	return p
}
