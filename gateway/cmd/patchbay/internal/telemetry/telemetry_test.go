package telemetry_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlptest"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// A log is a logger, and what it has logged.
type log struct{ cmdtest.Buffer }

func (l *log) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func options(l *log) *telemetry.Options {
	return &telemetry.Options{Service: "patchbay-test", Version: "1.2.3", Logger: l.logger()}
}

// setVariables sets the variables of a test, and removes those of the machine.
func setVariables(t *testing.T, variables map[string]string) {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OTEL_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range variables {
		t.Setenv(name, value)
	}
}

// produce makes a span and a metric.
func produce(t *testing.T, e *telemetry.Exporters) {
	t.Helper()
	counter, err := e.Metrics.Meter("test").Int64Counter("calls")
	if err != nil {
		t.Fatal(err)
	}
	counter.Add(t.Context(), 3)
	_, span := e.Traces.Tracer("test").Start(t.Context(), "tools/call add")
	span.End()
}

func TestVariablesChooseWhatIsExported(t *testing.T) {
	r := otlptest.New(t)
	tests := []struct {
		name           string
		variables      map[string]string
		spans, metrics int
		service        string
	}{
		{"endpoint", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL}, 1, 1, "patchbay-test"},
		{"service", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "OTEL_SERVICE_NAME": "team"}, 1, 1, "team"},
		{"resource", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL,
			"OTEL_RESOURCE_ATTRIBUTES": "service.name=other,region=eu"}, 1, 1, "other"},
		{"traces only", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "OTEL_METRICS_EXPORTER": "none"}, 1, 0,
			"patchbay-test"},
		{"endpoint of traces", map[string]string{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": r.URL + "/v1/traces"}, 1, 0,
			"patchbay-test"},
		{"endpoint of metrics", map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": r.URL + "/v1/metrics",
			"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf"}, 0, 1, ""},
		{"exporters", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "OTEL_TRACES_EXPORTER": "otlp",
			"OTEL_METRICS_EXPORTER": "otlp"}, 1, 1, "patchbay-test"},
		{"sampler", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "OTEL_TRACES_SAMPLER": "always_off"}, 0, 1, ""},
		{"ratio", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "OTEL_TRACES_SAMPLER": "traceidratio",
			"OTEL_TRACES_SAMPLER_ARG": "0"}, 0, 1, ""},
		{"compressed", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "OTEL_EXPORTER_OTLP_COMPRESSION": "gzip"}, 1, 1,
			"patchbay-test"},
		{"no variables", nil, 0, 0, ""},
		{"disabled", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "OTEL_SDK_DISABLED": "TRUE",
			"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, 0, 0, ""},
		{"no exporters", map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "OTEL_TRACES_EXPORTER": "none",
			"OTEL_METRICS_EXPORTER": "none", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, 0, 0, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			setVariables(t, test.variables)
			var l log
			spans, metrics := len(r.Spans()), len(r.Metrics())
			e, err := telemetry.Start(t.Context(), options(&l))
			if err != nil {
				t.Fatal(err)
			}
			produce(t, e)
			e.Stop()
			gotSpans, gotMetrics := r.Spans()[spans:], r.Metrics()[metrics:]
			if len(gotSpans) != test.spans || len(gotMetrics) != test.metrics || l.String() != "" {
				t.Fatalf("received %d spans and %d metrics, want %d and %d; log: %s", len(gotSpans), len(gotMetrics),
					test.spans, test.metrics, &l)
			}
			if len(gotSpans) > 0 && gotSpans[0].Resource["service.name"] != test.service {
				t.Errorf("service %q, want %q", gotSpans[0].Resource["service.name"], test.service)
			}
		})
	}
}

// Without a variable, an export costs nothing: no goroutine is started.
func TestNothingStartsWithoutVariables(t *testing.T) {
	setVariables(t, map[string]string{"OTEL_SERVICE_NAME": "team", "OTEL_TRACES_SAMPLER": "always_on"})
	before := runtime.NumGoroutine()
	var all []*telemetry.Exporters
	for range 10 {
		e, err := telemetry.Start(t.Context(), options(&log{}))
		if err != nil {
			t.Fatal(err)
		}
		if e.Exports() || e.Gatherer != nil {
			t.Error("something is exported")
		}
		all = append(all, e)
	}
	if after := runtime.NumGoroutine(); after >= before+len(all) {
		t.Errorf("%d goroutines, %d before", after, before)
	}
	for _, e := range all {
		e.Stop()
	}
}

func TestHeadersOfVariablesAreSent(t *testing.T) {
	r := otlptest.New(t)
	setVariables(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL,
		"OTEL_EXPORTER_OTLP_HEADERS": "api-key=top%20secret"})
	e, err := telemetry.Start(t.Context(), options(&log{}))
	if err != nil {
		t.Fatal(err)
	}
	produce(t, e)
	e.Stop()
	if got := r.Header("Api-Key"); got != "top secret" {
		t.Errorf("header %q", got)
	}
}

func TestInvalidVariablesAreErrors(t *testing.T) {
	const endpoint = "OTEL_EXPORTER_OTLP_ENDPOINT"
	tests := []struct{ name, value, want string }{
		{"OTEL_TRACES_EXPORTER", "jaeger", `invalid OTEL_TRACES_EXPORTER "jaeger": must be otlp or none`},
		{"OTEL_METRICS_EXPORTER", "console", `invalid OTEL_METRICS_EXPORTER "console": must be otlp, prometheus or none`},
		{"OTEL_METRICS_EXPORTER", "otlp,prometheus", `invalid OTEL_METRICS_EXPORTER "prometheus": must be used with --ops`},
		{"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc",
			`invalid OTEL_EXPORTER_OTLP_PROTOCOL "grpc": must be http/protobuf, which collectors receive at port 4318`},
		{"OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", "http/json",
			`invalid OTEL_EXPORTER_OTLP_METRICS_PROTOCOL "http/json": must be http/protobuf`},
		{endpoint, "localhost:4318", `invalid OTEL_EXPORTER_OTLP_ENDPOINT: must be an http or https URL`},
		{endpoint, "unix:///run/otel.sock", `invalid OTEL_EXPORTER_OTLP_ENDPOINT: must be an http or https URL`},
		{endpoint, "apikey:top-secret@collector.example:4318", `invalid OTEL_EXPORTER_OTLP_ENDPOINT: must be an http`},
		{endpoint, "http://[::1", `invalid OTEL_EXPORTER_OTLP_ENDPOINT: must be an http or https URL`},
		{endpoint, "http://me:top-secret@collector.example", `must have neither a user nor a query`},
		{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "grpc://a:top-secret@b",
			`invalid OTEL_EXPORTER_OTLP_TRACES_ENDPOINT: must be an http or https URL`},
		{"OTEL_EXPORTER_OTLP_HEADERS", "api-key: top-secret", `invalid OTEL_EXPORTER_OTLP_HEADERS: header 1 must be`},
		{"OTEL_EXPORTER_OTLP_TIMEOUT", "10s", `invalid OTEL_EXPORTER_OTLP_TIMEOUT "10s": must be a number`},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE", "/nonexistent/ca.pem", `invalid OTEL_EXPORTER_OTLP_CERTIFICATE: open`},
		{"OTEL_TRACES_SAMPLER", "sometimes", `invalid OTEL_TRACES_SAMPLER "sometimes": must be one of always_on`},
		{"OTEL_TRACES_SAMPLER_ARG", "2", `invalid OTEL_TRACES_SAMPLER_ARG "2": must be a number from 0 to 1`},
		{"OTEL_TRACES_SAMPLER_ARG", "NaN", `invalid OTEL_TRACES_SAMPLER_ARG "NaN"`},
		{"OTEL_PROPAGATORS", "b3", `invalid OTEL_PROPAGATORS "b3": must be tracecontext, baggage or none`},
		{"OTEL_RESOURCE_ATTRIBUTES", "region", `invalid OTEL_RESOURCE_ATTRIBUTES: must be name=value`},
	}
	for _, test := range tests {
		t.Run(test.name+" "+test.value, func(t *testing.T) {
			setVariables(t, map[string]string{endpoint: "http://127.0.0.1:1", "OTEL_TRACES_SAMPLER": "traceidratio"})
			t.Setenv(test.name, test.value)
			var l log
			e, err := telemetry.Start(t.Context(), options(&l))
			if err == nil {
				e.Stop()
				t.Fatal("no error")
			}
			if !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
			if strings.Contains(err.Error()+l.String(), "top-secret") {
				t.Errorf("the error or the log has a secret: %v\n%s", err, &l)
			}
		})
	}
}

func TestBaggageIsSentOnlyIfAskedFor(t *testing.T) {
	for value, want := range map[string]string{
		"": "traceparent tracestate", "tracecontext": "traceparent tracestate", "none": "",
		"tracecontext, baggage": "traceparent tracestate baggage",
	} {
		setVariables(t, map[string]string{"OTEL_TRACES_EXPORTER": "otlp", "OTEL_PROPAGATORS": value})
		e, err := telemetry.Start(t.Context(), options(&log{}))
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(e.Propagator.Fields(), " "); len(got) != len(want) || !containsAll(got, want) {
			t.Errorf("%q: fields %q, want %q", value, got, want)
		}
		e.Stop()
	}
}

func containsAll(text, words string) bool {
	for word := range strings.FieldsSeq(words) {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// A collector that refuses exports, or is gone, is one line of the log, and its return another.
func TestFailuresAreLoggedOnce(t *testing.T) {
	r := otlptest.New(t)
	setVariables(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "OTEL_METRICS_EXPORTER": "none",
		"OTEL_BSP_SCHEDULE_DELAY": "1"})
	r.Refuse(http.StatusForbidden)
	var l log
	e, err := telemetry.Start(t.Context(), options(&l))
	if err != nil {
		t.Fatal(err)
	}
	wait := func(condition func() bool) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Wait(ctx, condition); err != nil {
			t.Fatalf("%v: %d refused, %d received\n%s", err, r.Refused(), len(r.Spans()), &l)
		}
	}
	for n := range 30 {
		produce(t, e)
		wait(func() bool { return r.Refused() > n })
	}
	r.Refuse(0)
	produce(t, e)
	wait(func() bool { return len(r.Spans()) == 1 })
	e.Stop()
	text := l.String()
	if strings.Count(text, "traces are not exported") != 1 || strings.Count(text, "traces are exported again") != 1 ||
		strings.Count(text, "\n") != 2 || !strings.Contains(text, "403 Forbidden") || !strings.Contains(text, "failed=30") {
		t.Errorf("log:\n%s", text)
	}
}

// A failed export is not sent again, so the log must not say so. It hides secrets that a collector repeats, and
// shows characters that would control a terminal.
func TestFailuresAreLoggedWithoutSecrets(t *testing.T) {
	const echo = "\x1b]0;key top-secret, longer top-secret-2, Bearer: tok\u202een token-3 q: top  secret\x00 in 200"
	part := protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), echo)
	warning := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), part)
	for status, body := range map[int]string{
		http.StatusForbidden: echo, http.StatusServiceUnavailable: echo, http.StatusOK: string(warning),
	} {
		collector := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if w.Header().Set("Content-Type", "text/plain"); status == http.StatusOK {
				w.Header().Set("Content-Type", "application/x-protobuf")
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		defer collector.Close()
		setVariables(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL,
			"OTEL_EXPORTER_OTLP_HEADERS": "a=top-secret,b=top-secret-2,authorization=Bearer%20token-3," +
				"c=top%20%20secret,d=200"})
		l := &log{}
		e, err := telemetry.Start(t.Context(), options(l))
		if err != nil {
			t.Fatal(err)
		}
		produce(t, e)
		e.Stop()
		text := l.String()
		const want = `\\x1b]0;key [hidden], longer [hidden], Bearer: tok\\u{202e}en [hidden] q: [hidden]\\x00 in 200`
		if strings.Count(text, want) != 2 || strings.Contains(text, "again") ||
			status != http.StatusOK && strings.Count(text, "are not exported, and are lost") != 2 {
			t.Errorf("%d: log:\n%s", status, text)
		}
	}
}

// A collector that is gone does not delay the end of the program until an attempt after a pause.
func TestStopDoesNotWaitForPauses(t *testing.T) {
	server := httptest.NewServer(http.NotFoundHandler())
	server.Close()
	setVariables(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL})
	var l log
	o := options(&l)
	o.StopTimeout = time.Hour
	e, err := telemetry.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	produce(t, e)
	begun := time.Now()
	e.Stop()
	if took := time.Since(begun); took >= 2500*time.Millisecond { // the shortest pause
		t.Errorf("Stop took %v", took)
	}
	if text := l.String(); strings.Count(text, "are not exported, and are lost") != 2 ||
		!strings.Contains(text, "refused") {
		t.Errorf("log:\n%s", text)
	}
}

// A collector that accepts connections and responds to nothing delays the end by the timeout only.
func TestStopIsBounded(t *testing.T) {
	mcptest.NoLeaks(t)
	over := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-over:
		case <-r.Context().Done():
		}
	}))
	defer server.Close()
	defer close(over)
	setVariables(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL})
	var l log
	o := options(&l)
	o.StopTimeout = 100 * time.Millisecond
	e, err := telemetry.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 { // more than the queue has room for
		produce(t, e)
	}
	begun := time.Now()
	e.Stop()
	if took := time.Since(begun); took >= 5*time.Second { // the StopTimeout by default
		t.Errorf("Stop took %v", took)
	}
	if text := l.String(); strings.Count(text, "are not exported") != 2 || !strings.Contains(text, "the program has ended") {
		t.Errorf("log:\n%s", text)
	}
}

// A collector that is down costs requests nothing.
func TestRequestsDoNotWaitForTheCollector(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close() // never accepts
	setVariables(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": "http://" + l.Addr().String()})
	o := options(&log{})
	o.StopTimeout = time.Millisecond
	e, err := telemetry.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	for range 10_000 { // the queue has room for 2,048
		_, span := e.Traces.Tracer("test").Start(t.Context(), "tools/call add")
		span.End()
	}
	if took := time.Since(begun); took > time.Minute { // each of 15 batches would wait for 10 seconds
		t.Errorf("10,000 spans took %v", took)
	}
	e.Stop()
}

// The headers of exports have keys: they are not sent to another server.
func TestRedirectsOfCollectorsAreNotFollowed(t *testing.T) {
	for _, status := range []int{http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect} {
		var received atomic.Int32
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { received.Add(1) }))
		defer other.Close()
		collector := httptest.NewServer(http.RedirectHandler(other.URL+"/v1/traces", status))
		defer collector.Close()
		setVariables(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": collector.URL,
			"OTEL_EXPORTER_OTLP_HEADERS": "api-key=secret"})
		l := &log{}
		e, err := telemetry.Start(t.Context(), options(l))
		if err != nil {
			t.Fatal(err)
		}
		produce(t, e)
		e.Stop()
		if received.Load() > 0 {
			t.Errorf("%d: another server received %d requests", status, received.Load())
		}
		if text := l.String(); strings.Count(text, "redirect") != 2 || strings.Contains(text, "secret") {
			t.Errorf("%d: the log is %s, want one line for each signal", status, text)
		}
	}
}
