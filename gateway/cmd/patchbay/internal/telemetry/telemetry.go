// Package telemetry exports the traces and metrics of the command: by OTLP over HTTP if the standard
// environment variables OTEL_* ask for it, and on the ops listener for Prometheus.
package telemetry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlp"
)

// Options configures [Start].
type Options struct {
	// Service is the name of the program in traces and metrics, unless OTEL_SERVICE_NAME specifies
	// another, and Version is its version.
	Service, Version string
	// Prometheus makes a Gatherer of the metrics, also with OTEL_SDK_DISABLED.
	Prometheus bool
	// OnlyTraces is for programs that end soon, whose metrics are meaningless.
	OnlyTraces bool
	// StopTimeout bounds [Exporters.Stop]. Default: 5 seconds.
	StopTimeout time.Duration
	// Logger logs failures of exports.
	Logger *slog.Logger
}

// Exporters holds the providers of traces and metrics, and their exporters.
type Exporters struct {
	Traces     trace.TracerProvider          // a no-op if no traces are exported
	Metrics    metric.MeterProvider          // a no-op if no metrics are exported
	Gatherer   prometheus.Gatherer           // of the metrics; nil without Prometheus
	Propagator propagation.TextMapPropagator // nil if no traces are exported

	opts   Options
	log    *sdkLog // nil without exporters
	over   context.Context
	giveUp context.CancelCauseFunc
	ending context.Context // since Stop
	end    context.CancelFunc
	stop   []func(context.Context) error
}

// errStopped ends exports that did not succeed in time.
var errStopped = errors.New("the program has ended")

// Discard returns Exporters without effects.
func Discard() *Exporters {
	return &Exporters{Traces: tracenoop.NewTracerProvider(), Metrics: metricnoop.NewMeterProvider()}
}

// Exports reports whether something is exported.
func (e *Exporters) Exports() bool { return e.log != nil }

// ObserveProcesses exports the number of processes of a gateway that share a store, by whether they use the
// configuration of this process. read returns zeros without a shared store.
func (e *Exporters) ObserveProcesses(read func() (same, other int)) error {
	_, err := e.Metrics.Meter("patchbay").Int64ObservableUpDownCounter("patchbay.gateway.processes",
		metric.WithUnit("{process}"), metric.WithDescription("Processes of a gateway that share a store, by their "+
			"configuration: that of this process, or another."),
		metric.WithInt64Callback(func(_ context.Context, to metric.Int64Observer) error {
			const name = "patchbay.configuration"
			if same, other := read(); same > 0 {
				to.Observe(int64(same), metric.WithAttributes(attribute.String(name, "same")))
				to.Observe(int64(other), metric.WithAttributes(attribute.String(name, "other")))
			}
			return nil
		}))
	return err
}

// Start returns the exporters that the environment selects, and the Gatherer of the options.
// Without exporters, the providers are no-ops and no goroutine runs. An invalid variable is an
// error.
func Start(ctx context.Context, o *Options) (*Exporters, error) {
	e := Discard()
	e.opts = *o
	r, err := requested()
	switch {
	case err != nil:
		return nil, err
	case e.opts.OnlyTraces:
		r.metrics, r.prometheus = false, false
	case r.prometheus && !e.opts.Prometheus:
		return nil, errors.New("invalid OTEL_METRICS_EXPORTER \"prometheus\": must be used with --ops ADDR, whose " +
			"/metrics Prometheus reads")
	}
	if !r.traces && !r.metrics && !e.opts.Prometheus {
		return e, nil
	}
	e.log = useLog(e.opts.Logger)
	e.ending, e.end = context.WithCancel(context.WithoutCancel(ctx))
	e.over, e.giveUp = context.WithCancelCause(context.WithoutCancel(ctx))
	res, err := describe(ctx, &e.opts)
	if err == nil {
		err = firstOf(errors.Join(e.startTraces(ctx, r, res), e.startMetrics(r, res)))
	}
	if invalid := e.log.started(); invalid != nil {
		err = errors.Join(err, fmt.Errorf("invalid variable OTEL_*: %w", firstOf(invalid)))
	}
	if err != nil {
		e.giveUp(errStopped)
		e.Stop()
		return nil, err
	}
	return e, nil
}

// describe returns the attributes of this process: the service, and the attributes of
// OTEL_RESOURCE_ATTRIBUTES. No attribute describes the machine or the command line, because
// /metrics contains them too.
func describe(ctx context.Context, o *Options) (*resource.Resource, error) {
	res, err := resource.New(ctx,
		resource.WithAttributes(
			attribute.String("service.name", o.Service), attribute.String("service.version", o.Version)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil {
		return nil, errors.New("invalid OTEL_RESOURCE_ATTRIBUTES: must be name=value, separated by commas")
	}
	return res, nil
}

func (e *Exporters) startTraces(ctx context.Context, r request, res *resource.Resource) error {
	if !r.traces {
		return nil
	}
	client, err := e.clientOf(signalTraces)
	if err != nil {
		return err
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return fmt.Errorf("export of traces: %w", err)
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(res))
	e.Traces, e.Propagator = provider, r.propagator
	e.stop = append(e.stop, provider.Shutdown)
	return nil
}

func (e *Exporters) startMetrics(r request, res *resource.Resource) error {
	if !r.metrics && !e.opts.Prometheus {
		return nil
	}
	options := []sdkmetric.Option{sdkmetric.WithResource(res)}
	if r.metrics {
		client, err := e.clientOf(signalMetrics)
		temporality, temporalityErr := temporalityOf()
		aggregation, aggregationErr := aggregationOf()
		if err := cmp.Or(err, temporalityErr, aggregationErr); err != nil {
			return err
		}
		exporter := &otlp.MetricExporter{Client: client, TemporalityOf: temporality, AggregationOf: aggregation}
		options = append(options, sdkmetric.WithReader(sdkmetric.NewPeriodicReader(exporter)))
	}
	if e.opts.Prometheus {
		reader, err := e.prometheusReader()
		if err != nil {
			return fmt.Errorf("metrics for Prometheus: %w", err)
		}
		options = append(options, sdkmetric.WithReader(reader))
	}
	provider := sdkmetric.NewMeterProvider(options...)
	e.Metrics = provider
	e.stop = append(e.stop, provider.Shutdown)
	return nil
}

// prometheusReader returns the reader of the Gatherer, which also contains process and Go metrics.
func (e *Exporters) prometheusReader() (sdkmetric.Reader, error) {
	registry := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registry.Register(c); err != nil {
			return nil, err
		}
	}
	e.Gatherer = registry
	return otelprometheus.New(otelprometheus.WithRegisterer(registry), otelprometheus.WithoutScopeInfo())
}

// Stop exports the remaining data, for at most the StopTimeout, without pauses between attempts. Failures are
// logged.
func (e *Exporters) Stop() {
	if e.log == nil {
		return
	}
	timeout := cmp.Or(e.opts.StopTimeout, defaultStopTimeout)
	timer := time.AfterFunc(timeout, func() { e.giveUp(errStopped) })
	defer timer.Stop()
	e.end()
	var wait sync.WaitGroup
	for _, stop := range e.stop {
		wait.Go(func() {
			if err := stop(context.Background()); err != nil { // ends with e.over
				e.log.report("stop", err)
			}
		})
	}
	wait.Wait()
	e.giveUp(errStopped)
	e.log.discard()
}

const defaultStopTimeout = 5 * time.Second
