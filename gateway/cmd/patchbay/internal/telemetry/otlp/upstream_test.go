package otlp_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// process describes the program that exports.
var process = resource.NewWithAttributes("https://example.com/schema", attribute.String("service.name", "test"))

// clientFor returns a client whose exports must succeed.
func clientFor(t *testing.T, url string) *otlp.Client {
	return &otlp.Client{URL: url, Transport: http.DefaultTransport, Over: t.Context(), Report: func(err error) {
		if err != nil {
			t.Errorf("export: %v", err)
		}
	}}
}

func exporterOf(c *otlp.Client) *otlp.MetricExporter {
	return &otlp.MetricExporter{Client: c, TemporalityOf: sdkmetric.CumulativeTemporalitySelector,
		AggregationOf: sdkmetric.DefaultAggregationSelector}
}

// checkSame checks that two exporters send the same message, which is not empty.
func checkSame(t *testing.T, own, upstream func(url string) error, first, second proto.Message) {
	t.Helper()
	var bodies [][]byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.Header.Get("Content-Type") != "application/x-protobuf" {
			t.Errorf("%s with Content-Type %q", r.Method, r.Header.Get("Content-Type"))
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		bodies = append(bodies, body)
	}))
	defer server.Close()
	defer http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	for _, export := range []func(string) error{own, upstream} {
		if err := export(server.URL); err != nil {
			t.Fatal(err)
		}
	}
	if len(bodies) != 2 {
		t.Fatalf("%d requests", len(bodies))
	}
	for i, m := range []proto.Message{first, second} {
		if err := proto.Unmarshal(bodies[i], m); err != nil || len(bodies[i]) == 0 {
			t.Fatalf("message of %d bytes: %v", len(bodies[i]), err)
		}
	}
	if !proto.Equal(first, second) {
		t.Errorf("messages differ\nown:      %v\nupstream: %v", first, second)
	}
}

// The messages of spans are the messages of the exporter of OpenTelemetry.
func TestSpansEqualUpstream(t *testing.T) {
	context := func(trace_, span byte, remote bool) trace.SpanContext {
		return trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{trace_}, SpanID: trace.SpanID{span},
			TraceFlags: trace.FlagsSampled, Remote: remote})
	}
	begin := time.Unix(1_700_000_000, 123)
	spans := tracetest.SpanStubs{{
		Name: "tools/call add", SpanContext: context(1, 2, false), Parent: context(1, 1, true),
		SpanKind:  trace.SpanKindServer,
		StartTime: begin, EndTime: begin.Add(time.Second), Attributes: attributes,
		Events: []sdktrace.Event{{Name: "event", Time: begin, Attributes: attributes, DroppedAttributeCount: 1}},
		Links:  []sdktrace.Link{{SpanContext: context(3, 4, true), Attributes: attributes}},
		Status: sdktrace.Status{Code: codes.Error, Description: "failed"}, Resource: process,
		InstrumentationScope: instrumentation.Scope{Name: "scope", Version: "1"},
	}, {
		Name: "INTERNAL", SpanContext: context(1, 3, false), Resource: process,
		InstrumentationScope: instrumentation.Scope{Name: "other", SchemaURL: "https://example.com/other"},
	}}.Snapshots()
	checkSame(t, func(url string) error {
		return otlptrace.NewUnstarted(clientFor(t, url)).ExportSpans(t.Context(), spans)
	}, func(url string) error {
		exporter, err := otlptracehttp.New(t.Context(), otlptracehttp.WithEndpointURL(url+"/v1/traces"))
		if err != nil {
			return err
		}
		return exporter.ExportSpans(t.Context(), spans)
	}, &collectortrace.ExportTraceServiceRequest{}, &collectortrace.ExportTraceServiceRequest{})
}

var attributes = []attribute.KeyValue{attribute.String("text", "ü"), attribute.Bool("true", true),
	attribute.Bool("false", false), attribute.Int("number", -5), attribute.Int("zero", 0),
	attribute.Float64("double", 1.5), attribute.String("empty", "")}

func checkMetrics(t *testing.T, data *metricdata.ResourceMetrics) {
	t.Helper()
	checkSame(t, func(url string) error { return exporterOf(clientFor(t, url)).Export(t.Context(), data) },
		func(url string) error {
			exporter, err := otlpmetrichttp.New(t.Context(), otlpmetrichttp.WithEndpointURL(url+"/v1/metrics"))
			if err != nil {
				return err
			}
			return exporter.Export(t.Context(), data)
		}, &collectormetrics.ExportMetricsServiceRequest{}, &collectormetrics.ExportMetricsServiceRequest{})
}

// The messages of metrics are the messages of the exporter of OpenTelemetry, for every kind of data.
func TestMetricsEqualUpstream(t *testing.T) {
	begin := time.Unix(1_700_000_000, 1)
	for name, data := range map[string]metricdata.Aggregation{
		"gauge of integers": metricdata.Gauge[int64]{DataPoints: points[int64](begin)},
		"gauge of floats":   metricdata.Gauge[float64]{DataPoints: points[float64](begin)},
		"counter": metricdata.Sum[int64]{DataPoints: points[int64](begin), IsMonotonic: true,
			Temporality: metricdata.CumulativeTemporality},
		"up-down counter": metricdata.Sum[float64]{DataPoints: points[float64](begin),
			Temporality: metricdata.DeltaTemporality},
		"histogram of integers":  histogram[int64](begin),
		"histogram of floats":    histogram[float64](begin),
		"exponents of integers":  exponential[int64](begin),
		"exponents of floats":    exponential[float64](begin),
		"gauge without a point":  metricdata.Gauge[int64]{},
		"histogram without data": metricdata.Histogram[float64]{Temporality: metricdata.DeltaTemporality},
	} {
		t.Run(name, func(t *testing.T) {
			checkMetrics(t, &metricdata.ResourceMetrics{Resource: process, ScopeMetrics: []metricdata.ScopeMetrics{{
				Scope: instrumentation.Scope{Name: "scope", Version: "1", SchemaURL: "https://example.com/scope",
					Attributes: attribute.NewSet(attributes...)},
				Metrics: []metricdata.Metrics{{Name: "metric", Description: "a metric", Unit: "s", Data: data},
					{Name: "next", Data: metricdata.Gauge[int64]{DataPoints: points[int64](begin)}}},
			}, {Scope: instrumentation.Scope{Name: "empty"}}}})
		})
	}
}

func points[N int64 | float64](t time.Time) []metricdata.DataPoint[N] {
	return []metricdata.DataPoint[N]{
		{Attributes: attribute.NewSet(attributes...), StartTime: t, Time: t.Add(time.Minute), Value: 7,
			Exemplars: exemplars[N](t)},
		{Time: t, Value: 0}, // and no beginning
	}
}

func exemplars[N int64 | float64](t time.Time) []metricdata.Exemplar[N] {
	return []metricdata.Exemplar[N]{{FilteredAttributes: attributes, Time: t, Value: 3,
		SpanID: []byte{1, 2, 3, 4, 5, 6, 7, 8}, TraceID: []byte{16, 15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}},
		{Time: t}}
}

func histogram[N int64 | float64](t time.Time) metricdata.Histogram[N] {
	points := []metricdata.HistogramDataPoint[N]{
		{Attributes: attribute.NewSet(attributes...), StartTime: t, Time: t, Count: 3, Sum: 12,
			Bounds: []float64{0.5, 10}, BucketCounts: []uint64{1, 0, 2},
			Min: metricdata.NewExtrema[N](0), Max: metricdata.NewExtrema[N](9),
			Exemplars: exemplars[N](t)},
		{StartTime: t, Time: t},
	}
	return metricdata.Histogram[N]{Temporality: metricdata.CumulativeTemporality, DataPoints: points}
}

func exponential[N int64 | float64](t time.Time) metricdata.ExponentialHistogram[N] {
	return metricdata.ExponentialHistogram[N]{Temporality: metricdata.DeltaTemporality,
		DataPoints: []metricdata.ExponentialHistogramDataPoint[N]{{
			Attributes: attribute.NewSet(attributes...), StartTime: t, Time: t, Count: 9, Sum: 12, Scale: -2,
			ZeroCount: 1, ZeroThreshold: 0.25, Min: metricdata.NewExtrema[N](1), Max: metricdata.NewExtrema[N](8),
			Exemplars:      exemplars[N](t),
			PositiveBucket: metricdata.ExponentialBucket{Offset: -3, Counts: []uint64{1, 2, 3}},
			NegativeBucket: metricdata.ExponentialBucket{Offset: 4, Counts: []uint64{2}},
		}, {StartTime: t, Time: t}}}
}

// The data that the SDK aggregates, with exemplars of spans, is encoded as the exporter of OpenTelemetry encodes it.
func TestMetricsOfTheSDKEqualUpstream(t *testing.T) {
	for name, aggregation := range map[string]sdkmetric.Aggregation{
		"explicit buckets":    sdkmetric.AggregationExplicitBucketHistogram{Boundaries: []float64{1, 5}},
		"exponential buckets": sdkmetric.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20},
	} {
		t.Run(name, func(t *testing.T) {
			reader := sdkmetric.NewManualReader(sdkmetric.WithAggregationSelector(
				func(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
					if k == sdkmetric.InstrumentKindHistogram {
						return aggregation
					}
					return sdkmetric.DefaultAggregationSelector(k)
				}))
			provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader), sdkmetric.WithResource(process))
			ctx := record(t, provider.Meter("test"))
			var data metricdata.ResourceMetrics
			if err := reader.Collect(ctx, &data); err != nil {
				t.Fatal(err)
			}
			checkMetrics(t, &data)
		})
	}
}

// record records values within a span that is sampled.
func record(t *testing.T, m metric.Meter) context.Context {
	t.Helper()
	ctx := trace.ContextWithSpanContext(t.Context(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}, TraceFlags: trace.FlagsSampled}))
	counter, counterErr := m.Int64Counter("calls")
	duration, durationErr := m.Float64Histogram("duration", metric.WithUnit("s"))
	if counterErr != nil || durationErr != nil {
		t.Fatal(counterErr, durationErr)
	}
	counter.Add(ctx, 3, metric.WithAttributes(attributes...))
	for _, seconds := range []float64{0, 0.01, 2, 100} {
		duration.Record(ctx, seconds)
	}
	return ctx
}
