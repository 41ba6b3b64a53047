// Package otlptest receives traces and metrics in tests, by OTLP over HTTP with protobuf.
package otlptest

import (
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collectormetrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// maxBody limits a request, in bytes. A batch of 512 spans takes about 200 KiB.
const maxBody = 4 << 20

// A Span is a received span, with the attributes of its process.
type Span struct {
	*trace.Span
	Resource map[string]string
}

// Attribute returns an attribute as text, or "" if the span lacks it.
func (s *Span) Attribute(key string) string { return texts(s.Attributes)[key] }

// A Metric is a received metric, with the attributes of its process.
type Metric struct {
	*metrics.Metric
	Resource map[string]string
}

// A Receiver is a collector that stores the data it receives. It is safe for concurrent use.
type Receiver struct {
	// URL is the value for OTEL_EXPORTER_OTLP_ENDPOINT.
	URL string

	mu      sync.Mutex // guards the fields below
	spans   []*Span
	metrics []*Metric
	headers http.Header // of the last request
	refuse  int         // a status that must be returned; 0 accepts requests
	refused int
	changed chan struct{} // closed by the next request
}

// New returns a Receiver that ends with the test.
func New(t testing.TB) *Receiver {
	t.Helper()
	r := &Receiver{changed: make(chan struct{})}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

// Refuse makes the Receiver respond with a status, or accept requests again with 0.
func (r *Receiver) Refuse(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = status
}

// Refused returns the number of requests that were refused.
func (r *Receiver) Refused() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.refused
}

// Spans returns the spans that were received so far.
func (r *Receiver) Spans() []*Span {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*Span(nil), r.spans...)
}

// Metrics returns the metrics of all exports so far.
func (r *Receiver) Metrics() []*Metric {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]*Metric(nil), r.metrics...)
}

// Header returns a header of the last request.
func (r *Receiver) Header(name string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.headers.Get(name)
}

// Wait waits until a condition holds, which is checked after each request, or until ctx ends.
func (r *Receiver) Wait(ctx context.Context, condition func() bool) error {
	for {
		r.mu.Lock()
		changed := r.changed
		r.mu.Unlock()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// ServeHTTP receives an export.
func (r *Receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body := io.Reader(req.Body)
	if req.Header.Get("Content-Encoding") == "gzip" {
		unzipped, err := gzip.NewReader(req.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		body = unzipped
	}
	data, err := io.ReadAll(io.LimitReader(body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if status := r.receive(req, data); status != http.StatusOK {
		http.Error(w, http.StatusText(status), status)
	}
}

func (r *Receiver) receive(req *http.Request, data []byte) (status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer func() {
		close(r.changed)
		r.changed = make(chan struct{})
	}()
	r.headers = req.Header.Clone()
	if r.refuse != 0 {
		r.refused++
		return r.refuse
	}
	var err error
	switch {
	case req.Method != http.MethodPost || req.Header.Get("Content-Type") != "application/x-protobuf":
		return http.StatusUnsupportedMediaType
	case req.URL.Path == "/v1/traces":
		err = r.addSpans(data)
	case req.URL.Path == "/v1/metrics":
		err = r.addMetrics(data)
	default:
		return http.StatusNotFound
	}
	if err != nil {
		return http.StatusBadRequest
	}
	return http.StatusOK
}

func (r *Receiver) addSpans(data []byte) error {
	var m collectortrace.ExportTraceServiceRequest
	if err := proto.Unmarshal(data, &m); err != nil {
		return err
	}
	for _, process := range m.ResourceSpans {
		for _, scope := range process.ScopeSpans {
			for _, span := range scope.Spans {
				r.spans = append(r.spans, &Span{span, texts(process.Resource.GetAttributes())})
			}
		}
	}
	return nil
}

func (r *Receiver) addMetrics(data []byte) error {
	var m collectormetrics.ExportMetricsServiceRequest
	if err := proto.Unmarshal(data, &m); err != nil {
		return err
	}
	for _, process := range m.ResourceMetrics {
		for _, scope := range process.ScopeMetrics {
			for _, metric := range scope.Metrics {
				r.metrics = append(r.metrics, &Metric{metric, texts(process.Resource.GetAttributes())})
			}
		}
	}
	return nil
}

// texts returns attributes as texts.
func texts(attributes []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range attributes {
		switch v := a.Value.GetValue().(type) {
		case *common.AnyValue_StringValue:
			all[a.Key] = v.StringValue
		default:
			all[a.Key] = a.Value.String()
		}
	}
	return all
}
