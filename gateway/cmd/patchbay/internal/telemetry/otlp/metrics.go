package otlp

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
)

// A MetricExporter exports metrics with a [Client].
type MetricExporter struct {
	Client        *Client
	TemporalityOf sdkmetric.TemporalitySelector
	AggregationOf sdkmetric.AggregationSelector
}

// Temporality returns the temporality of a kind of metrics.
func (e *MetricExporter) Temporality(k sdkmetric.InstrumentKind) metricdata.Temporality {
	return e.TemporalityOf(k)
}

// Aggregation returns the aggregation of a kind of metrics.
func (e *MetricExporter) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return e.AggregationOf(k)
}

// ForceFlush has no effect: Export keeps no metrics.
func (e *MetricExporter) ForceFlush(context.Context) error { return nil }

// Shutdown closes the connections that are not in use.
func (e *MetricExporter) Shutdown(ctx context.Context) error { return e.Client.Stop(ctx) }

// Export sends metrics as [Client.UploadTraces] sends spans. A metric of a kind that the SDK does not
// aggregate is sent without points, and reported.
func (e *MetricExporter) Export(ctx context.Context, data *metricdata.ResourceMetrics) error {
	process := &metrics.ResourceMetrics{
		Resource:  &resource.Resource{Attributes: attributes(data.Resource.Attributes())},
		SchemaUrl: data.Resource.SchemaURL(),
	}
	var unknown error
	for _, s := range data.ScopeMetrics {
		scope := &metrics.ScopeMetrics{
			Scope: &common.InstrumentationScope{Name: s.Scope.Name, Version: s.Scope.Version,
				Attributes: attributes(s.Scope.Attributes.ToSlice())},
			SchemaUrl: s.Scope.SchemaURL,
		}
		for _, m := range s.Metrics {
			metric := &metrics.Metric{Name: m.Name, Description: m.Description, Unit: m.Unit}
			if !aggregate(metric, m.Data) {
				unknown = fmt.Errorf("metric %q is not exported: its data is %T", m.Name, m.Data)
			}
			scope.Metrics = append(scope.Metrics, metric)
		}
		process.ScopeMetrics = append(process.ScopeMetrics, scope)
	}
	err := e.Client.send(ctx, &metrics.MetricsData{ResourceMetrics: []*metrics.ResourceMetrics{process}})
	e.Client.Report(cmp.Or(err, unknown))
	return nil
}

// aggregate adds the data to a metric. It reports whether its kind is known.
func aggregate(m *metrics.Metric, data metricdata.Aggregation) (known bool) {
	switch a := data.(type) {
	case metricdata.Gauge[int64]:
		m.Data = &metrics.Metric_Gauge{Gauge: &metrics.Gauge{DataPoints: numbers(a.DataPoints)}}
	case metricdata.Gauge[float64]:
		m.Data = &metrics.Metric_Gauge{Gauge: &metrics.Gauge{DataPoints: numbers(a.DataPoints)}}
	case metricdata.Sum[int64]:
		m.Data = sum(&a)
	case metricdata.Sum[float64]:
		m.Data = sum(&a)
	case metricdata.Histogram[int64]:
		m.Data = histogram(&a)
	case metricdata.Histogram[float64]:
		m.Data = histogram(&a)
	case metricdata.ExponentialHistogram[int64]:
		m.Data = exponential(&a)
	case metricdata.ExponentialHistogram[float64]:
		m.Data = exponential(&a)
	default:
		return false
	}
	return true
}

// A number is a value of a metric.
type number interface{ int64 | float64 }

func sum[N number](s *metricdata.Sum[N]) *metrics.Metric_Sum {
	return &metrics.Metric_Sum{Sum: &metrics.Sum{
		DataPoints: numbers(s.DataPoints), AggregationTemporality: temporality(s.Temporality),
		IsMonotonic: s.IsMonotonic,
	}}
}

func numbers[N number](points []metricdata.DataPoint[N]) (all []*metrics.NumberDataPoint) {
	for _, p := range points {
		n := &metrics.NumberDataPoint{Attributes: attributes(p.Attributes.ToSlice()), Exemplars: exemplars(p.Exemplars),
			StartTimeUnixNano: nanos(p.StartTime), TimeUnixNano: nanos(p.Time)}
		switch v := any(p.Value).(type) {
		case int64:
			n.Value = &metrics.NumberDataPoint_AsInt{AsInt: v}
		case float64:
			n.Value = &metrics.NumberDataPoint_AsDouble{AsDouble: v}
		}
		all = append(all, n)
	}
	return all
}

func histogram[N number](h *metricdata.Histogram[N]) *metrics.Metric_Histogram {
	out := &metrics.Histogram{AggregationTemporality: temporality(h.Temporality)}
	for _, p := range h.DataPoints {
		out.DataPoints = append(out.DataPoints, &metrics.HistogramDataPoint{
			Attributes: attributes(p.Attributes.ToSlice()), Exemplars: exemplars(p.Exemplars),
			StartTimeUnixNano: nanos(p.StartTime), TimeUnixNano: nanos(p.Time),
			Count: p.Count, Sum: new(float64(p.Sum)), Min: extreme(p.Min), Max: extreme(p.Max),
			BucketCounts: p.BucketCounts, ExplicitBounds: p.Bounds,
		})
	}
	return &metrics.Metric_Histogram{Histogram: out}
}

func exponential[N number](h *metricdata.ExponentialHistogram[N]) *metrics.Metric_ExponentialHistogram {
	out := &metrics.ExponentialHistogram{AggregationTemporality: temporality(h.Temporality)}
	for _, p := range h.DataPoints {
		out.DataPoints = append(out.DataPoints, &metrics.ExponentialHistogramDataPoint{
			Attributes: attributes(p.Attributes.ToSlice()), Exemplars: exemplars(p.Exemplars),
			StartTimeUnixNano: nanos(p.StartTime), TimeUnixNano: nanos(p.Time),
			Count: p.Count, Sum: new(float64(p.Sum)), Min: extreme(p.Min), Max: extreme(p.Max),
			Scale: p.Scale, ZeroCount: p.ZeroCount, ZeroThreshold: p.ZeroThreshold,
			Positive: buckets(p.PositiveBucket), Negative: buckets(p.NegativeBucket),
		})
	}
	return &metrics.Metric_ExponentialHistogram{ExponentialHistogram: out}
}

func buckets(b metricdata.ExponentialBucket) *metrics.ExponentialHistogramDataPoint_Buckets {
	return &metrics.ExponentialHistogramDataPoint_Buckets{Offset: b.Offset, BucketCounts: b.Counts}
}

// extreme returns a minimum or maximum, nil if it is unknown.
func extreme[N number](e metricdata.Extrema[N]) *float64 {
	if v, ok := e.Value(); ok {
		return new(float64(v))
	}
	return nil
}

func exemplars[N number](from []metricdata.Exemplar[N]) (all []*metrics.Exemplar) {
	for _, e := range from {
		out := &metrics.Exemplar{FilteredAttributes: attributes(e.FilteredAttributes), TimeUnixNano: nanos(e.Time),
			SpanId: e.SpanID, TraceId: e.TraceID}
		switch v := any(e.Value).(type) {
		case int64:
			out.Value = &metrics.Exemplar_AsInt{AsInt: v}
		case float64:
			out.Value = &metrics.Exemplar_AsDouble{AsDouble: v}
		}
		all = append(all, out)
	}
	return all
}

func temporality(t metricdata.Temporality) metrics.AggregationTemporality {
	if t == metricdata.DeltaTemporality {
		return metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA
	}
	return metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE
}

func nanos(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }

// attributes returns attributes of metrics. Types that the program does not use, such as lists, become
// texts.
func attributes(from []attribute.KeyValue) (all []*common.KeyValue) {
	for _, a := range from {
		value := &common.AnyValue{}
		switch a.Value.Type() {
		case attribute.BOOL:
			value.Value = &common.AnyValue_BoolValue{BoolValue: a.Value.AsBool()}
		case attribute.INT64:
			value.Value = &common.AnyValue_IntValue{IntValue: a.Value.AsInt64()}
		case attribute.FLOAT64:
			value.Value = &common.AnyValue_DoubleValue{DoubleValue: a.Value.AsFloat64()}
		default:
			value.Value = &common.AnyValue_StringValue{StringValue: a.Value.String()}
		}
		all = append(all, &common.KeyValue{Key: string(a.Key), Value: value})
	}
	return all
}
