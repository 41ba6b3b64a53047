package telemetry

import (
	"context"
	"errors"
	"net/http"
	"net/url"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// errRedirected reports that the collector redirected an export.
var errRedirected = errors.New("the collector sends a redirect, which is not followed: another server would receive " +
	"the headers and the data; set its own URL as the endpoint")

// proxyOf returns the proxy of the environment, as exporters use by default, and an error for a
// request that follows a redirect: headers of exports contain keys.
func proxyOf(r *http.Request) (*url.URL, error) {
	if r.Response != nil {
		return nil, errRedirected
	}
	return http.ProxyFromEnvironment(r)
}

// A spanExporter ends exports when the program does not wait any longer, and logs their failures.
type spanExporter struct {
	sdktrace.SpanExporter
	log  *exportLog
	over context.Context
}

// ExportSpans exports spans. It returns nil: the error was logged.
func (e *spanExporter) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	ctx, cancel := until(ctx, e.over)
	defer cancel()
	e.log.done(e.SpanExporter.ExportSpans(ctx, spans))
	return nil
}

// A metricExporter is a spanExporter for metrics.
type metricExporter struct {
	sdkmetric.Exporter
	log  *exportLog
	over context.Context
}

// Export exports metrics. It returns nil: the error was logged.
func (e *metricExporter) Export(ctx context.Context, metrics *metricdata.ResourceMetrics) error {
	ctx, cancel := until(ctx, e.over)
	defer cancel()
	e.log.done(e.Exporter.Export(ctx, metrics))
	return nil
}

// until returns ctx, which also ends with another context.
func until(ctx, over context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(over, func() { cancel(context.Cause(over)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}
