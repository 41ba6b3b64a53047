package otelmcp

import (
	"context"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// metrics are the instruments of an Observer.
type metrics struct {
	requests [roles]metric.Float64Histogram
	sessions [roles]metric.Float64Histogram // of server and client
	refusals metric.Int64Counter

	mu      sync.RWMutex // guards the field below
	refused map[refusal][]metric.AddOption
}

// A refusal contains the labels of a refused HTTP request. The set of refusals is fixed.
type refusal struct {
	status int
	reason string
}

func (m *metrics) init(o *Observer) (err error) {
	for r, h := range [...]struct{ request, session, of string }{
		server:  {metricServerRequest, metricServerSession, "as the server sees it"},
		client:  {metricClientRequest, metricClientSession, "as the client sees it"},
		taskRun: {metricTaskRun, "", "of a task, without the time in which it waits"},
	} {
		if m.requests[r], err = o.duration(h.request, "The duration of a request, "+h.of+"."); err != nil {
			return err
		}
		if h.session == "" {
			continue
		}
		if m.sessions[r], err = o.duration(h.session, "The duration of a session, "+h.of+"."); err != nil {
			return err
		}
	}
	m.refusals, err = o.meter.Int64Counter(metricRefusals, metric.WithUnit("{request}"),
		metric.WithDescription("HTTP requests that were refused before a handler has seen them."))
	if err != nil {
		return err
	}
	active, err := o.meter.Int64ObservableUpDownCounter(metricActive, metric.WithUnit("{request}"),
		metric.WithDescription("Requests in progress."))
	if err != nil {
		return err
	}
	sessions, err := o.meter.Int64ObservableUpDownCounter(metricSessions, metric.WithUnit("{session}"),
		metric.WithDescription("Open sessions of revisions before 2026-07-28."))
	if err != nil {
		return err
	}
	_, err = o.meter.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for r, name := range [...]string{server: roleServer, client: roleClient} {
			label := metric.WithAttributes(attribute.String(attrRole, name))
			to.ObserveInt64(active, o.active[r].Load(), label)
			to.ObserveInt64(sessions, o.sessions[r].Load(), label)
		}
		return nil
	}, active, sessions)
	return err
}

// duration returns a histogram with the buckets of the conventions.
func (o *Observer) duration(name, description string) (metric.Float64Histogram, error) {
	return o.meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(description),
		metric.WithExplicitBucketBoundaries(buckets...))
}

func (m *metrics) refuse(status int, reason string) {
	key := refusal{status, reason}
	m.mu.RLock()
	labels := m.refused[key]
	m.mu.RUnlock()
	if labels == nil {
		labels = []metric.AddOption{metric.WithAttributeSet(attribute.NewSet(
			attribute.Int(attrStatus, status), attribute.String(attrReason, reason)))}
		m.mu.Lock()
		if m.refused == nil {
			m.refused = map[refusal][]metric.AddOption{}
		}
		m.refused[key] = labels
		m.mu.Unlock()
	}
	m.refusals.Add(context.Background(), 1, labels...)
}
