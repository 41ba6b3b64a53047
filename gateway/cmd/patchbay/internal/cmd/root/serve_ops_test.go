package root

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/build"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil/cmdtest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlptest"
	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/stores/bolt"
)

// An observedServer is a `patchbay serve`.
type observedServer struct {
	url, ops string // without a path
	stderr   *cmdtest.Buffer
	cancel   context.CancelFunc
	exited   func() outcome
}

var (
	serveURL = regexp.MustCompile(`running at (http://[^/]+)`)
	opsURL   = regexp.MustCompile(`Metrics and health are at (http://[^/]+)`)
)

// launchServe runs serve in the background.
func launchServe(t *testing.T, args ...string) (s *observedServer, out *announcement) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out = &announcement{ready: make(chan struct{})}
	s = &observedServer{stderr: &cmdtest.Buffer{}, cancel: cancel}
	status := make(chan int, 1)
	args = append([]string{"serve", "--insecure-no-auth", "--addr", "127.0.0.1:0", "--tasks", "memory"}, args...)
	go func() { status <- Run(ctx, args, strings.NewReader(""), out, s.stderr) }()
	s.exited = sync.OnceValue(func() outcome { return outcome{<-status, out.text.String(), s.stderr.String()} })
	t.Cleanup(func() {
		cancel()
		s.exited()
	})
	return s, out
}

// startServe runs serve, and returns when it serves.
func startServe(t *testing.T, args ...string) *observedServer {
	t.Helper()
	s, out := launchServe(t, args...)
	s.await(t, out)
	return s
}

func (s *observedServer) await(t *testing.T, out *announcement) {
	t.Helper()
	select {
	case <-out.ready:
	case <-time.After(time.Minute):
		s.cancel()
		t.Fatalf("serve has not started: %+v", s.exited())
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	if m := serveURL.FindStringSubmatch(out.text.String()); m != nil {
		s.url = m[1]
	}
	if m := opsURL.FindStringSubmatch(out.text.String()); m != nil {
		s.ops = m[1]
	}
}

// stop ends the server, which has to exit with 0.
func (s *observedServer) stop(t *testing.T) outcome {
	t.Helper()
	s.cancel()
	o := s.exited()
	if o.status != exit.OK {
		t.Errorf("exited with %+v", o)
	}
	return o
}

// fetch requests a URL on a connection of its own.
func fetch(t *testing.T, url string) (status int, body string) {
	t.Helper()
	status, body, err := tryFetch(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return status, body
}

func tryFetch(ctx context.Context, url string) (status int, body string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	req.Close = true
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return res.StatusCode, string(text), err
}

// awaitReadiness waits until /readyz has a status and a text.
func awaitReadiness(t *testing.T, ops string, status int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		got, body, err := tryFetch(ctx, ops+"/readyz")
		if err == nil && got == status && strings.Contains(body, text) {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("readyz: %d %q, %v, want %d %q", got, body, err, status, text)
		}
	}
}

type metricFamilies map[string]*dto.MetricFamily

// scrape reads /metrics as Prometheus does.
func scrape(t *testing.T, ops string) metricFamilies {
	t.Helper()
	status, body := fetch(t, ops+"/metrics")
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if status != http.StatusOK || err != nil {
		t.Fatalf("metrics: %d, %v\n%s", status, err, body)
	}
	return all
}

// find returns the metric with labels, nil without one.
func (f metricFamilies) find(name string, labels map[string]string) *dto.Metric {
	for _, m := range f[name].GetMetric() {
		found := 0
		for _, l := range m.GetLabel() {
			if want, ok := labels[l.GetName()]; ok && want == l.GetValue() {
				found++
			}
		}
		if found == len(labels) {
			return m
		}
	}
	return nil
}

// use connects to a server over HTTP and calls a tool.
func use(t *testing.T, url, revision string, opts *mcp.ClientOptions) {
	t.Helper()
	if opts == nil {
		opts = &mcp.ClientOptions{}
	}
	opts.Revision = revision
	transport := http.DefaultTransport.(*http.Transport).Clone()
	defer transport.CloseIdleConnections()
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(url+connect.Endpoint,
		&mcphttp.TransportOptions{Client: &http.Client{Transport: transport}}), opts)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := mcp.CallTool[int](t.Context(), c, "add", map[string]int{"a": 1, "b": 2}); err != nil || n != 3 {
		t.Errorf("%s: add: %d, %v", revision, n, err)
	}
}

func TestServeHasMetricsOfEveryRevision(t *testing.T) {
	mcptest.NoLeaks(t)
	s := startServe(t, "--ops", "127.0.0.1:0", "--pprof")
	if s.ops == "" || s.ops == s.url {
		t.Fatalf("MCP at %q, ops at %q", s.url, s.ops)
	}
	for _, revision := range connect.Revisions() {
		use(t, s.url, revision, nil)
	}
	refused, err := http.Post(s.url+connect.Endpoint, "text/plain", strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	refused.Body.Close()
	http.DefaultClient.CloseIdleConnections()
	all := scrape(t, s.ops)
	for _, revision := range connect.Revisions() {
		m := all.find("mcp_server_operation_duration_seconds", map[string]string{"mcp_method_name": "tools/call",
			"gen_ai_tool_name": "add", "mcp_protocol_version": revision, "network_transport": "tcp"})
		if m.GetHistogram().GetSampleCount() != 1 {
			t.Errorf("%s: calls of add: %v", revision, m)
		}
	}
	for _, name := range []string{"mcp_server_session_duration_seconds", "patchbay_requests_active", "patchbay_sessions",
		"patchbay_refusals_total", "patchbay_streams", "patchbay_features", "patchbay_subscriptions", "patchbay_tasks",
		"go_goroutines", "process_start_time_seconds"} {
		if all[name] == nil {
			t.Errorf("no metric %s", name)
		}
	}
	target := all.find("target_info", map[string]string{"service_name": "patchbay-demo", "service_version": build.Version()})
	if target == nil {
		t.Errorf("target_info: %v", all["target_info"])
	}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/debug/pprof/heap": 200, connect.Endpoint: 404} {
		if status, body := fetch(t, s.ops+path); status != want {
			t.Errorf("%s: %d %.100q, want %d", path, status, body, want)
		}
	}
	for _, path := range []string{"/metrics", "/healthz", "/debug/pprof/"} {
		if status, body := fetch(t, s.url+path); status == 200 && !strings.Contains(body, connect.Endpoint) {
			t.Errorf("the MCP server serves %s: %.100q", path, body)
		}
	}
	s.stop(t)
}

// /readyz says that a server starts, that it is ready, and that it drains while calls finish. /healthz
// answers all the time.
func TestReadinessFollowsTheServer(t *testing.T) {
	mcptest.NoLeaks(t)
	addr := freeport.Addr(t)
	ops := "http://" + addr
	file := filepath.Join(t.TempDir(), "tasks.db")
	held, err := bolt.OpenTasks(file, nil) // the server waits for it
	if err != nil {
		t.Fatal(err)
	}
	s, out := launchServe(t, "--ops", addr, "--tasks", file)
	awaitReadiness(t, ops, 503, "starting")
	if status, _ := fetch(t, ops+"/healthz"); status != 200 {
		t.Errorf("healthz during the start: %d", status)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	s.await(t, out)
	awaitReadiness(t, ops, 200, `{"ready":true}`)

	asked, answer := make(chan struct{}), make(chan struct{}) // the call goes on until it is answered
	finished := make(chan error, 1)
	go func() {
		c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(s.url+connect.Endpoint, nil), &mcp.ClientOptions{
			Revision: "2025-11-25",
			Elicit: func(ctx context.Context, _ *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
				close(asked)
				select {
				case <-answer:
				case <-ctx.Done():
				}
				return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: json.RawMessage(`{"name":"Ann"}`)}, nil
			},
		})
		if err != nil {
			finished <- err
			return
		}
		res, err := c.CallTool(t.Context(), "greet", nil)
		if err == nil && res.Text() != "Hello, Ann!" {
			err = fmt.Errorf("got %+v", res)
		}
		_ = c.Close() // the server may have ended
		finished <- err
	}()
	select {
	case <-asked:
	case err := <-finished:
		t.Fatal(err)
	}
	s.cancel()
	awaitReadiness(t, ops, 503, "draining")
	if status, body := fetch(t, ops+"/healthz"); status != 200 || body != "ok\n" {
		t.Errorf("healthz while it drains: %d %q", status, body)
	}
	if all := scrape(t, ops); all["mcp_server_operation_duration_seconds"] == nil {
		t.Error("no metrics while it drains")
	}
	close(answer)
	if err := <-finished; err != nil {
		t.Errorf("the call in progress: %v", err)
	}
	s.stop(t)
	http.DefaultClient.CloseIdleConnections()
	if _, _, err := tryFetch(t.Context(), ops+"/healthz"); err == nil {
		t.Error("the ops listener is open after the end")
	}
}

func TestInvalidOpsFlagsAreRefused(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	tests := []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--pprof"}, exit.Usage, "--pprof needs --ops"},
		{[]string{"--ops", "127.0.0.1:0", "--stdio"}, exit.Usage, "--ops is for HTTP"},
		{[]string{"--ops", "9464"}, exit.Usage, `invalid address "9464" of the ops listener: must be host:port`},
		{[]string{"--ops", ":8765"}, exit.Usage, "must not be that of the MCP server, 127.0.0.1:8765"},
		{[]string{"--ops", "localhost:8765"}, exit.Usage, "must not be that of the MCP server"},
		{[]string{"--ops", "0.0.0.0:9464", "--pprof"}, exit.Usage, "pprof needs a loopback address"},
		{[]string{"--ops", taken.Addr().String()}, exit.Failure, "use --ops for another address"},
		{[]string{"--ops", "127.0.0.1:0", "--addr", taken.Addr().String()}, exit.Failure, "use --addr for another address"},
		{[]string{"--log-format", "xml"}, exit.Usage, "want one of text, json"},
	}
	for _, test := range tests {
		o := patchbay(t, "", append([]string{"serve", "--tasks", "memory"}, test.args...)...)
		if o.status != test.status || !strings.Contains(o.stderr, test.want) {
			t.Errorf("%v: %d %s, want %d %q", test.args, o.status, o.stderr, test.status, test.want)
		}
	}
}

func TestOtherMachinesReachTheOpsListenerWithAWarning(t *testing.T) {
	s := startServe(t, "--ops", "0.0.0.0:0")
	if status, _ := fetch(t, s.ops+"/metrics"); status != 200 {
		t.Errorf("metrics: %d", status)
	}
	if o := s.stop(t); !strings.Contains(o.stderr, "warning: other machines reach the ops listener at 0.0.0.0:0") {
		t.Errorf("standard error: %s", o.stderr)
	}
}

// jsonRecord returns the line of standard error in JSON whose message has a text.
func jsonRecord(t *testing.T, stderr, message string) map[string]any {
	t.Helper()
	for line := range strings.Lines(stderr) {
		var record map[string]any
		if err := json.Unmarshal([]byte(line), &record); err != nil {
			t.Fatalf("standard error has a line that is not JSON: %q", line)
		}
		if text, _ := record["msg"].(string); strings.Contains(text, message) {
			return record
		}
	}
	t.Fatalf("no record %q in:\n%s", message, stderr)
	return nil
}

func TestTracesOfServeAreExported(t *testing.T) {
	mcptest.NoLeaks(t)
	r := otlptest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	s := startServe(t)
	for _, revision := range connect.Revisions() {
		use(t, s.url, revision, nil)
	}
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Meta: mcp.Meta{"traceparent": parent}})
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(s.url+connect.Endpoint, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.CallTool(ctx, "add", map[string]int{"a": 1, "b": 2}); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	s.stop(t)
	spans := map[string]int{}
	inTrace := false
	for _, span := range r.Spans() {
		if span.Resource["service.name"] != "patchbay-demo" || span.Kind.String() != "SPAN_KIND_SERVER" {
			t.Errorf("span %s of %v, kind %s", span.Name, span.Resource, span.Kind)
		}
		if span.Attribute("gen_ai.tool.name") == "add" {
			spans[span.Attribute("mcp.protocol.version")]++
		}
		inTrace = inTrace || hex.EncodeToString(span.TraceId) == parent[3:35] && hex.EncodeToString(span.ParentSpanId) == parent[36:52]
	}
	for _, revision := range connect.Revisions() {
		if spans[revision] == 0 {
			t.Errorf("no span of add in %s: %v", revision, spans)
		}
	}
	if !inTrace {
		t.Error("the span of the call is not in the trace of the client")
	}
	if len(r.Metrics()) == 0 {
		t.Error("no metrics were exported")
	}
}

func TestClientsExportTheirSpans(t *testing.T) {
	mcptest.NoLeaks(t)
	r := otlptest.New(t)
	s := startServe(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	if o := patchbay(t, "", "call", s.url+connect.Endpoint, "add", "a=1", "b=2"); o.status != exit.OK || o.stderr != "" {
		t.Fatalf("call: %+v", o)
	}
	if o := patchbay(t, "", "bench", s.url+connect.Endpoint, "add", "a=1", "b=2", "--count", "3"); o.status != exit.OK {
		t.Fatalf("bench: %+v", o)
	}
	if n := len(r.Spans()); n > 5 {
		t.Errorf("%d spans: those of bench are among them", n)
	}
	if o := patchbay(t, "", "__complete", "serve", "--log-format", "j"); !strings.Contains(o.stdout, "json") {
		t.Errorf("completion: %+v", o)
	}
	names := []string{}
	for _, span := range r.Spans() {
		names = append(names, span.Kind.String()+" "+span.Name+" "+span.Resource["service.name"])
	}
	if !slices.Contains(names, "SPAN_KIND_CLIENT tools/call add patchbay") {
		t.Errorf("spans: %q", names)
	}
	if n := len(r.Metrics()); n != 0 {
		t.Errorf("%d metrics of a command", n)
	}
}

// Applications start servers on stdio with variables that are for themselves: an invalid one is a warning
// there, as for a client, and an error of a server over HTTP.
func TestInvalidVariablesOfTelemetry(t *testing.T) {
	s := startServe(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	const want = `invalid OTEL_EXPORTER_OTLP_PROTOCOL "grpc": must be http/protobuf`
	if o := patchbay(t, "", "serve", "--addr", "127.0.0.1:0"); o.status != exit.Usage || !strings.Contains(o.stderr, want) {
		t.Errorf("serve: %+v", o)
	}
	o := patchbay(t, "", "call", s.url+connect.Endpoint, "add", "a=1", "b=2")
	if o.status != exit.OK || strings.TrimSpace(o.stdout) != "3" ||
		!strings.Contains(o.stderr, "warning: traces and metrics are not exported: "+want) {
		t.Errorf("call: %+v", o)
	}
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "")
	t.Setenv("OTEL_METRICS_EXPORTER", "prometheus")
	if o := patchbay(t, "", "serve", "--addr", "127.0.0.1:0"); o.status != exit.Usage ||
		!strings.Contains(o.stderr, "must be used with --ops ADDR") {
		t.Errorf("serve without --ops: %+v", o)
	}
}

// A collector that is down neither delays nor fails a command, and is one line of standard error.
func TestACollectorThatIsDownIsOneLine(t *testing.T) {
	mcptest.NoLeaks(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://"+freeport.Addr(t))
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	t.Setenv("OTEL_METRICS_EXPORTER", "none")
	s := startServe(t, "--quiet")
	for range 20 {
		use(t, s.url, "2026-07-28", nil)
	}
	begun := time.Now()
	o := s.stop(t)
	if took := time.Since(begun); took >= 5*time.Second { // what an end takes that waits for the collector
		t.Errorf("the end took %v", took)
	}
	if strings.Count(o.stderr, "\n") != 1 || !strings.Contains(o.stderr, "traces are not exported") {
		t.Errorf("standard error: %s", o.stderr)
	}
}

func TestMessagesInJSONHaveTraceIDs(t *testing.T) {
	r := otlptest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	s := startServe(t, "--log-format", "json", "--verbose")
	if o := patchbay(t, "", "call", s.url+connect.Endpoint, "crunch", "seconds=1"); o.status != exit.OK {
		t.Errorf("crunch: %+v", o)
	}
	o := s.stop(t)
	record := jsonRecord(t, o.stderr, "tasks: created")
	trace, _ := record["trace_id"].(string)
	span, _ := record["span_id"].(string)
	known := slices.ContainsFunc(r.Spans(), func(s *otlptest.Span) bool {
		return hex.EncodeToString(s.TraceId) == trace && hex.EncodeToString(s.SpanId) == span && s.Name == "tools/call crunch"
	})
	if record["tool"] != "crunch" || record["mcp.method"] != "tools/call" || !known || record["time"] == nil ||
		record["level"] != "DEBUG" {
		t.Errorf("record: %v", record)
	}
}

func TestErrorsInJSONAreRecords(t *testing.T) {
	var stdout, stderr bytes.Buffer
	status := Run(t.Context(), []string{"serve", "--log-format", "json", "--ops", "nowhere", "--color", "always"},
		strings.NewReader(""), &stdout, &stderr)
	record := jsonRecord(t, stderr.String(), "invalid address")
	if status != exit.Usage || record["level"] != "ERROR" || record["exit"] != float64(exit.Usage) {
		t.Errorf("%d: %v", status, record)
	}
}
