package otelmcp

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// scope is the name of the instrumentation scope.
const scope = "github.com/patchbay-mcp/patchbay/otelmcp"

// Options configures an [Observer]. The zero value suits most programs that set the global
// providers of package otel.
type Options struct {
	// TracerProvider creates spans. Default: otel.GetTracerProvider(). With the provider of package
	// trace/noop there are no spans, and metrics cost less.
	TracerProvider trace.TracerProvider
	// MeterProvider makes metrics. Default: otel.GetMeterProvider().
	MeterProvider metric.MeterProvider
	// Propagator writes the trace context into `_meta` of requests, and reads it. Default: the
	// propagator of the W3C, with the members traceparent and tracestate. Baggage is sent, even to
	// third-party servers, only by a propagator that supports it.
	Propagator propagation.TextMapPropagator
	// PublicEndpoint must be set for servers whose clients are not trusted: the spans of requests
	// are linked to the clients' spans, are roots of new traces, and are sampled as this process
	// decides.
	PublicEndpoint bool
	// Arguments adds the arguments of tools, at most 8 KiB of each call, to spans. They may contain
	// personal data and secrets.
	Arguments bool
	// SessionIDs adds the ids of HTTP sessions to spans, in place of hashes of them. Anyone with the id of
	// an anonymous session can use it.
	SessionIDs bool
}

// An Observer records spans and metrics of requests and sessions, and counts refusals. Set it as
// mcp.ServerOptions.Observer, mcp.ClientOptions.Observer and host.Options.Observer: one Observer serves
// all servers, clients and hosts of a program. It is safe for concurrent use.
type Observer struct {
	opts     Options
	tracer   trace.Tracer // nil for no spans
	meter    metric.Meter
	kinds    kinds
	metrics  metrics
	active   [roles]atomic.Int64 // requests in progress
	sessions [roles]atomic.Int64
}

var (
	_ driver.SessionObserver = (*Observer)(nil)
	_ driver.RefusalObserver = (*Observer)(nil)
)

// New returns an Observer. The options may be nil. It panics if the MeterProvider rejects an
// instrument, which the OpenTelemetry SDK never does.
func New(opts *Options) *Observer {
	o := &Observer{}
	if opts != nil {
		o.opts = *opts
	}
	if o.opts.TracerProvider == nil {
		o.opts.TracerProvider = otel.GetTracerProvider()
	}
	if o.opts.MeterProvider == nil {
		o.opts.MeterProvider = otel.GetMeterProvider()
	}
	if _, off := o.opts.TracerProvider.(noop.TracerProvider); !off {
		o.tracer = o.opts.TracerProvider.Tracer(scope)
	}
	if _, w3c := o.opts.Propagator.(propagation.TraceContext); w3c {
		o.opts.Propagator = nil
	}
	o.meter = o.opts.MeterProvider.Meter(scope)
	if err := o.metrics.init(o); err != nil {
		panic(fmt.Sprintf("otelmcp: New: %v", err))
	}
	return o
}

// A role is the side of the program in a request: client or server.
type role int

const (
	server  role = iota // a client sent it
	client              // it is sent
	taskRun             // a task continues it
	roles
)

func roleOf(req *mcp.Request, via *driver.Via) role {
	switch {
	case req.Detached() != nil:
		return taskRun
	case via.Sent:
		return client
	}
	return server
}

// An operation is a request in progress. It is the context of its handler.
type operation struct {
	context.Context       // contains the span
	kind            *kind // nil if the target was not known at the beginning
	role            role
	start           time.Time
	span            trace.Span // nil without a span
	remote          remoteSpan
}

type operationKey struct{}

// Value returns the operation itself for operationKey.
func (op *operation) Value(key any) any {
	if key == (operationKey{}) {
		return op
	}
	return op.Context.Value(key)
}

// Begin begins a span. At a client, it adds the trace context to the request.
func (o *Observer) Begin(ctx context.Context, req *mcp.Request) context.Context {
	via := req.Via()
	op := &operation{Context: ctx, role: roleOf(req, &via), start: time.Now()}
	op.kind = o.kinds.begin(ctx, op.role, req, &via)
	o.active[op.role].Add(1)
	if o.tracer != nil {
		o.startSpan(op, req, &via)
	}
	return op
}

// End ends the span, and records the duration.
func (o *Observer) End(ctx context.Context, req *mcp.Request, out mcp.Outcome) {
	op, ok := ctx.(*operation)
	if !ok {
		return // not the context of Begin
	}
	elapsed := time.Since(op.start)
	o.active[op.role].Add(-1)
	k := op.kind
	if k == nil || k.target != out.Target && op.role == server { // a name that belongs to another caller
		via := req.Via()
		k = o.kinds.end(op, op.role, req, &via, &out)
	}
	failure := o.kinds.failure(op, k, &out)
	o.metrics.requests[op.role].Record(op, elapsed.Seconds(), k.options(failure)...)
	if op.span != nil {
		o.endSpan(op, k, req, &out, failure)
	}
}

// Detached puts the span of a request that becomes a task into the stored request, so that the runs
// of the task are linked to it.
func (o *Observer) Detached(ctx context.Context, req *mcp.Request) {
	if o.tracer != nil {
		o.inject(ctx, req)
	}
}

// SessionBegan counts a session. The function that it returns records the duration.
func (o *Observer) SessionBegan(ctx context.Context, v driver.Via) (ended func(cause error)) {
	r := server
	if v.Sent {
		r = client
	}
	start := time.Now()
	o.sessions[r].Add(1)
	ctx = context.WithoutCancel(ctx)
	return func(cause error) {
		o.sessions[r].Add(-1)
		k := o.kinds.session(ctx, r, &v)
		o.metrics.sessions[r].Record(ctx, time.Since(start).Seconds(), k.options(sessionFailure(cause))...)
	}
}

// Refused counts a refused HTTP request.
func (o *Observer) Refused(status int, reason string) { o.metrics.refuse(status, reason) }
