package otelmcp

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A reading is the value of a gauge or counter with up to two labels at one moment.
type reading struct {
	metric string
	labels [2]label
	n      int
}

// A label is absent if its name is empty.
type label struct{ name, value string }

// observed lists the metrics of [Observer.ObserveStats]. Metrics with up are counters, others are
// gauges.
var observed = []struct {
	name, unit, description string
	up                      bool
}{
	{metricStreams, "{stream}", "Open streams of HTTP, by kind: those of sessions, and subscriptions.", false},
	{metricFeatures, "{feature}", "Registered tools, prompts, resources and resource templates.", false},
	{metricSubscriptions, "{subscription}", "Open subscriptions to changes of the server.", false},
	{metricTasks, "{task}", "Tasks of this process whose handler runs, or waits for its turn.", false},
	{metricServers, "{server}", "Servers of a host, by state.", false},
	{metricInstances, "{instance}", "Connections of a host with its servers.", false},
	{metricHostRequests, "{request}", "Requests of a host: at servers, and those that wait.", false},
	{metricBreakers, "{server}", "Servers of a host, by the state of the breaker of requests.", false},
	{metricRestarts, "{restart}", "Connections of a host that follow a failure or replace another one.", true},
	{metricHostErrors, "{request}", "Requests of a host without a valid response of their server, by code.", true},
	{metricLimited, "{request}", "Requests that a setting has refused.", true},
	{metricQuarantined, "{definition}", "Definitions of servers that were quarantined.", true},
	{metricDecisions, "{decision}", "Decisions of the policy about requests, results and questions.", true},
	{metricApprovals, "{request}", "Requests that needed an approval, by its outcome.", true},
	{metricSpilled, "{result}", "Large results that are kept for their callers.", false},
	{metricSpilledSize, "By", "The size of large results that are kept for their callers.", false},
	{metricRecordsWaiting, "{record}", "Records that wait to be stored.", false},
	{metricRecordsLost, "{record}", "Records that were not stored.", true},
}

// ObserveStats registers gauges and counters for the figures of servers and hosts, which are read
// each time that metrics are collected. A source is an [mcphttp.Handler], [mcp.Server],
// [tasks.Server], [host.Host] or another value with one of their methods Stats. Figures of sources
// of the same type are added. The sources are held until the MeterProvider is shut down. If a
// source is another value, ObserveStats returns an error, and registers no source. Call it once,
// with all sources.
func (o *Observer) ObserveStats(sources ...any) error {
	for i, source := range sources {
		if _, ok := read(source); !ok {
			return fmt.Errorf("otelmcp: ObserveStats: invalid source %d: %T: must have a method Stats that is known",
				i, source)
		}
	}
	instruments := map[string]metric.Int64Observable{}
	var all []metric.Observable
	for _, m := range observed {
		i, err := o.observable(m.name, m.unit, m.description, m.up)
		if err != nil {
			return fmt.Errorf("otelmcp: ObserveStats: %w", err)
		}
		instruments[m.name], all = i, append(all, i)
	}
	_, err := o.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for r, n := range sum(sources) {
			var labels []attribute.KeyValue
			for _, l := range r.labels {
				if l.name != "" {
					labels = append(labels, attribute.String(l.name, l.value))
				}
			}
			to.ObserveInt64(instruments[r.metric], int64(n), metric.WithAttributes(labels...))
		}
		return nil
	}, all...)
	if err != nil {
		return fmt.Errorf("otelmcp: ObserveStats: %w", err)
	}
	return nil
}

// sum returns the sums of the readings that differ in their values only.
func sum(sources []any) map[reading]int {
	sums := map[reading]int{}
	for _, source := range sources {
		readings, _ := read(source)
		for _, r := range readings {
			n := r.n
			r.n = 0
			sums[r] += n
		}
	}
	return sums
}

func (o *Observer) observable(name, unit, description string, up bool) (metric.Int64Observable, error) {
	if up {
		return o.meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
	}
	return o.meter.Int64ObservableUpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(description))
}

// read returns the figures of a source, and whether the value is a source.
func read(source any) ([]reading, bool) {
	switch s := source.(type) {
	case interface{ Stats() mcphttp.Stats }:
		st := s.Stats()
		return []reading{
			one(metricStreams, attrKind, "session", st.Streams),
			one(metricStreams, attrKind, "subscription", st.Subscriptions),
		}, true
	case interface{ Stats() mcp.ServerStats }:
		st := s.Stats()
		return []reading{
			one(metricFeatures, attrKind, "tool", st.Tools),
			one(metricFeatures, attrKind, "prompt", st.Prompts),
			one(metricFeatures, attrKind, "resource", st.Resources),
			one(metricFeatures, attrKind, "resource_template", st.Templates),
			{metric: metricSubscriptions, n: st.Subscriptions},
		}, true
	case interface{ Stats() tasks.Stats }:
		st := s.Stats()
		return []reading{
			one(metricTasks, attrPhase, "running", st.Running),
			one(metricTasks, attrPhase, "queued", st.Queued),
		}, true
	case interface{ Stats() host.Stats }:
		return readHost(s.Stats()), true
	}
	return nil, false
}

// one returns a reading with a single label.
func one(metric, name, value string, n int) reading {
	return reading{metric, [2]label{{name, value}}, n}
}
