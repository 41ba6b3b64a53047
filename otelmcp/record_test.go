package otelmcp_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/patchbay-mcp/patchbay/otelmcp"
)

// A telemetry is an Observer with the SDK of OpenTelemetry, which keeps spans and metrics in memory.
type telemetry struct {
	*otelmcp.Observer
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
	tracer trace.Tracer
}

func newTelemetry(t testing.TB, opts *otelmcp.Options, samplers ...sdktrace.Sampler) *telemetry {
	t.Helper()
	r := &telemetry{spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	sampler := sdktrace.ParentBased(sdktrace.AlwaysSample())
	if len(samplers) > 0 {
		sampler = samplers[0]
	}
	var full otelmcp.Options
	if opts != nil {
		full = *opts
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.spans), sdktrace.WithSampler(sampler))
	full.TracerProvider = tp
	full.MeterProvider = sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader))
	r.tracer = tp.Tracer("app")
	r.Observer = otelmcp.New(&full)
	return r
}

// within calls f within a span of the program.
func (r *telemetry) within(ctx context.Context, name string, f func(ctx context.Context)) {
	ctx, span := r.tracer.Start(ctx, name)
	defer span.End()
	f(ctx)
}

// varying are the attributes whose values differ between runs.
var varying = map[attribute.Key]bool{"jsonrpc.request.id": true, "client.port": true, "mcp.session.id": true}

func attributesText(attrs []attribute.KeyValue, revision string) string {
	var text []string
	for _, a := range attrs {
		value := a.Value.String()
		switch {
		case varying[a.Key]:
			value = "…"
		case value == revision:
			value = "{revision}"
		}
		text = append(text, fmt.Sprintf("%s=%s", a.Key, value))
	}
	slices.Sort(text)
	return strings.Join(text, " ")
}

// spansText returns the spans as trees: children are indented.
func (r *telemetry) spansText(revision string) string {
	ended := r.spans.Ended()
	names := map[trace.SpanID]string{}
	children := map[trace.SpanID][]sdktrace.ReadOnlySpan{}
	for _, s := range ended {
		names[s.SpanContext().SpanID()] = s.SpanKind().String() + " " + s.Name()
	}
	for _, s := range ended {
		parent := s.Parent().SpanID()
		if names[parent] == "" {
			parent = trace.SpanID{}
		}
		children[parent] = append(children[parent], s)
	}
	var b strings.Builder
	var write func(parent trace.SpanID, indent string)
	write = func(parent trace.SpanID, indent string) {
		all := children[parent]
		slices.SortStableFunc(all, func(a, b sdktrace.ReadOnlySpan) int {
			return cmp.Or(a.StartTime().Compare(b.StartTime()), cmp.Compare(a.Name(), b.Name()))
		})
		for _, s := range all {
			fmt.Fprintf(&b, "%s%s %s", indent, s.SpanKind(), s.Name())
			if s.Status().Code != codes.Unset {
				fmt.Fprintf(&b, " [%s %s]", s.Status().Code, s.Status().Description)
			}
			if s.Parent().IsValid() && names[s.Parent().SpanID()] == "" {
				fmt.Fprintf(&b, " (parent %s)", s.Parent().SpanID())
			}
			for _, l := range s.Links() {
				fmt.Fprintf(&b, " (link to %s)", cmp.Or(names[l.SpanContext.SpanID()], l.SpanContext.SpanID().String()))
			}
			if text := attributesText(s.Attributes(), revision); text != "" {
				fmt.Fprintf(&b, "\n%s  | %s", indent, text)
			}
			b.WriteString("\n")
			write(s.SpanContext().SpanID(), indent+"    ")
		}
	}
	write(trace.SpanID{}, "")
	return b.String()
}

// metricsText returns the metrics: the count of histograms, and the values of others.
func (r *telemetry) metricsText(t testing.TB, revision string) string {
	var lines []string
	for _, p := range r.points(t) {
		lines = append(lines, fmt.Sprintf("%s{%s} %d", p.name, attributesText(p.labels.ToSlice(), revision), p.n))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// A point is a time series.
type point struct {
	name   string
	labels attribute.Set
	n      int64
}

func (r *telemetry) points(t testing.TB) (all []point) {
	t.Helper()
	var m metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &m); err != nil {
		t.Fatal(err)
	}
	for _, scope := range m.ScopeMetrics {
		for _, m := range scope.Metrics {
			switch data := m.Data.(type) {
			case metricdata.Histogram[float64]:
				for _, p := range data.DataPoints {
					all = append(all, point{m.Name, p.Attributes, int64(p.Count)})
				}
			case metricdata.Sum[int64]:
				for _, p := range data.DataPoints {
					all = append(all, point{m.Name, p.Attributes, p.Value})
				}
			default:
				t.Errorf("metric %s has data of type %T", m.Name, data)
			}
		}
	}
	return all
}

// grouped joins texts of combinations: equal texts are one.
func grouped(texts map[string]string) string {
	names := map[string][]string{}
	for name, text := range texts {
		names[text] = append(names[text], name)
	}
	var parts []string
	for text, of := range names {
		slices.Sort(of)
		parts = append(parts, "# "+strings.Join(of, " ")+"\n"+text)
	}
	slices.Sort(parts)
	return strings.Join(parts, "\n")
}

// labelValues returns the values that a label of a metric has.
func (r *telemetry) labelValues(t testing.TB, metric string, label attribute.Key) []string {
	values := map[string]bool{}
	for _, p := range r.points(t) {
		if v, ok := p.labels.Value(label); ok && p.name == metric {
			values[v.String()] = true
		}
	}
	return slices.Sorted(maps.Keys(values))
}
