package root

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/gateway/run"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/observe"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/secrets"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlptest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/userdir"
	"github.com/patchbay-mcp/patchbay/gateway/internal/freeport"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// startObserved runs a gateway with the ops listener, and returns its URL.
func startObserved(t *testing.T, args ...string) (g *runningGateway, ops string) {
	t.Helper()
	addr := freeport.Addr(t)
	return startGateway(t, nil, append([]string{"--ops", addr}, args...)...), "http://" + addr
}

// callDead calls a tool of the server of threeServers that does not start.
func callDead(t *testing.T, c *mcp.Client) {
	t.Helper()
	if res, err := c.CallTool(t.Context(), "dead__tool", nil); err == nil && !res.IsError {
		t.Errorf("dead__tool: %+v", res)
	}
}

// A failed server does not make a gateway unready. Its state is shown, and not why it failed.
func TestReadinessOfAGateway(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	file := threeServers(t, "mcp.json", "mcpServers")
	g, ops := startObserved(t, "--config", file)
	c := gatewayClient(t, g, "2026-07-28", false)
	useGateway(t, c)
	callDead(t, c)
	for _, revision := range connect.Revisions() {
		c := gatewayClient(t, g, revision, revision == "2024-11-05")
		if _, err := c.CallTool(t.Context(), "one__add", map[string]int{"a": 1, "b": 2}); err != nil {
			t.Errorf("%s: %v", revision, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if o := patchbay(t, "", "ping", g.url, "--header", "Authorization: Bearer wrong"); o.status == exit.OK {
		t.Errorf("a wrong key: %+v", o)
	}
	if status, body := fetch(t, ops+"/readyz"); status != 200 || body != `{"ready":true}`+"\n" {
		t.Errorf("readyz: %d %q", status, body)
	}
	status, body := fetch(t, ops+"/readyz?verbose")
	var r struct{ Details run.GatewayReadiness }
	if err := json.Unmarshal([]byte(body), &r); err != nil || status != 200 {
		t.Fatalf("%d %v: %s", status, err, body)
	}
	states := map[string]run.ServerReadiness{}
	for _, s := range r.Details.Servers {
		states[s.Name] = s
	}
	if states["one"].State != "ready" || states["dead"].State == "ready" || len(states) != 4 ||
		r.Details.Configuration != "current" {
		t.Errorf("details: %s", body)
	}
	if strings.Contains(body, "/nonexistent") || strings.Contains(body, g.key) {
		t.Errorf("the details have the text of a failure or a secret: %s", body)
	}
	all := scrape(t, ops)
	for name := range states {
		labels := map[string]string{"patchbay_server": name, "patchbay_state": "ready"}
		if m := all.find("patchbay_host_servers", labels); (m.GetGauge().GetValue() == 1) != (name != "dead") {
			t.Errorf("%s: %v", name, all["patchbay_host_servers"])
		}
	}
	if all.find("target_info", map[string]string{"service_name": "patchbay-gateway"}) == nil {
		t.Errorf("target_info: %v", all["target_info"])
	}
	checkGatewayMetrics(t, all)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if o := g.stop(); o.status != exit.OK || !strings.Contains(o.stdout, "Metrics and health are at "+ops+"/metrics") {
		t.Errorf("the gateway: %+v", o)
	}
	http.DefaultClient.CloseIdleConnections()
}

func checkGatewayMetrics(t *testing.T, all metricFamilies) {
	t.Helper()
	for _, revision := range connect.Revisions() {
		call := all.find("mcp_server_operation_duration_seconds", map[string]string{"mcp_method_name": "tools/call",
			"gen_ai_tool_name": "one__add", "mcp_protocol_version": revision})
		if call.GetHistogram().GetSampleCount() == 0 {
			t.Errorf("%s: no calls of one__add", revision)
		}
	}
	sent := all.find("mcp_client_operation_duration_seconds", map[string]string{"mcp_method_name": "tools/call",
		"gen_ai_tool_name": "add", "patchbay_server": "one"})
	if sent.GetHistogram().GetSampleCount() < uint64(len(connect.Revisions())) {
		t.Errorf("calls of the server one: %v", sent)
	}
	refused := all.find("patchbay_refusals_total", map[string]string{"http_response_status_code": "401"})
	if refused.GetCounter().GetValue() == 0 {
		t.Errorf("refusals: %v", all["patchbay_refusals_total"])
	}
	if all.find("patchbay_streams", map[string]string{"patchbay_kind": "session"}) == nil {
		t.Errorf("streams: %v", all["patchbay_streams"])
	}
	for name, family := range all {
		for _, m := range family.GetMetric() {
			for _, l := range m.GetLabel() {
				if strings.Contains(l.GetValue(), "/nonexistent") || strings.Contains(l.GetValue(), "Bearer") {
					t.Errorf("%s has the label %s=%q", name, l.GetName(), l.GetValue())
				}
			}
		}
	}
}

// While a gateway drains, /readyz says so, and /healthz and /metrics respond until its end.
func TestReadinessWhileAGatewayDrains(t *testing.T) {
	freshVault(t)
	begun, end := make(chan struct{}), make(chan struct{})
	s := mcp.NewServer("held", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "hold"}, func(ctx context.Context, _ struct{}) (string, error) {
		close(begun)
		select {
		case <-end:
			return "held", nil
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	})
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, `{"mcpServers": {"one": {"url": "`+listenHTTP(t, s)+`"}, "two": `+demoEntry(t)+`}}`)
	g, ops := startObserved(t, "--config", file)
	c := gatewayClient(t, g, "2026-07-28", false)
	finished := make(chan error, 1)
	go func() {
		res, err := c.CallTool(context.Background(), "one__hold", nil)
		if err == nil && res.Text() != "held" {
			err = fmt.Errorf("got %+v", res)
		}
		finished <- err
	}()
	select {
	case <-begun:
	case err := <-finished:
		t.Fatal(err)
	}
	stopped := make(chan outcome, 1)
	go func() { stopped <- patchbay(t, "", "gateway", "stop", "--config", file) }()
	awaitReadiness(t, ops, 503, "draining")
	if status, _ := fetch(t, ops+"/healthz"); status != 200 {
		t.Errorf("healthz while it drains: %d", status)
	}
	if scrape(t, ops)["patchbay_host_requests"] == nil {
		t.Error("no metrics while it drains")
	}
	close(end)
	if err := <-finished; err != nil {
		t.Errorf("the call in progress: %v", err)
	}
	_ = c.Close() // the gateway may have ended
	if o := <-stopped; o.status != exit.OK {
		t.Errorf("stop: %+v", o)
	}
	if o := g.stop(); o.status != exit.OK {
		t.Errorf("the gateway: %+v", o)
	}
}

func TestOpsOfTheSettings(t *testing.T) {
	freshVault(t)
	addr := freeport.Addr(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	withSettings := func(settings string) {
		t.Helper()
		writeFile(t, file, strings.TrimSuffix(demoServers(t, "one"), "}")+`, "patchbay": `+settings+`}`)
	}
	withSettings(`{"ops": "` + addr + `", "pprof": true}`)
	var printed messages
	g := startGateway(t, func(p *cmdutil.Factory) {
		printed.Writer = p.IO.Err.W
		p.IO.Err.W = &printed
	}, "--config", file)
	for path, want := range map[string]int{"/readyz": 200, "/metrics": 200, "/debug/pprof/heap": 200, "/mcp": 404} {
		if status, _ := fetch(t, "http://"+addr+path); status != want {
			t.Errorf("%s: %d, want %d", path, status, want)
		}
	}
	if status, _ := fetch(t, strings.TrimSuffix(g.url, connect.Endpoint)+"/metrics"); status != 404 {
		t.Errorf("/metrics at the port of clients: %d", status)
	}
	withSettings(`{"ops": "127.0.0.1:1"}`)
	printed.wait(t, "ops, pprof has changed: restart the gateway to use it", 1)
	if status, _ := fetch(t, "http://"+addr+"/debug/pprof/"); status != 200 {
		t.Errorf("pprof after the reload: %d", status)
	}
	writeFile(t, file, "{")
	printed.wait(t, "kept the previous configuration", 1)
	if _, body := fetch(t, "http://"+addr+"/readyz?verbose"); !strings.Contains(body, `"ready":true`) ||
		!strings.Contains(body, `"configuration":"rejected"`) {
		t.Errorf("readyz with an invalid file: %s", body)
	}
	if o := g.stop(); o.status != exit.OK {
		t.Errorf("the gateway: %+v", o)
	}
}

func TestInvalidOpsOfAGateway(t *testing.T) {
	freshVault(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	tests := []struct {
		settings string
		args     []string
		status   int
		want     string
	}{
		{`{}`, []string{"--stdio", "--ops", "127.0.0.1:0"}, exit.Usage, "--ops is for HTTP"},
		{`{}`, []string{"--ops", "127.0.0.1:7777"}, exit.Usage, "must not be that of the MCP server, 127.0.0.1:7777"},
		{`{"listen": "0.0.0.0:7999"}`, []string{"--ops", "localhost:7999"}, exit.Usage, "must not be that of the MCP server"},
		{`{"ops": "127.0.0.1:7999"}`, []string{"--addr", "127.0.0.1:7999"}, exit.Usage, "must not be that of the MCP server"},
		{`{"ops": "0.0.0.0:9464", "pprof": true}`, nil, exit.Usage, "other machines reach ops"},
		{`{"pprof": true}`, []string{"--ops", "0.0.0.0:9464"}, exit.Usage, "pprof needs a loopback address"},
		{`{"ops": 9464}`, nil, exit.Usage, "patchbay.ops: got the number 9464, want a string"},
	}
	for _, test := range tests {
		writeFile(t, file, strings.TrimSuffix(demoServers(t, "one"), "}")+`, "patchbay": `+test.settings+`}`)
		o := patchbay(t, "", append([]string{"gateway", "--config", file}, test.args...)...)
		if o.status != test.status || !strings.Contains(o.stderr, test.want) {
			t.Errorf("%s %v: %d %s, want %d %q", test.settings, test.args, o.status, o.stderr, test.status, test.want)
		}
	}
}

// The setting is for the gateway over HTTP: those on stdio are started by applications, several at once.
func TestAGatewayOnStdioHasNoOpsListener(t *testing.T) {
	freshVault(t)
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, strings.TrimSuffix(demoServers(t, "one"), "}")+`, "patchbay": {"ops": "`+taken.Addr().String()+`"}}`)
	if o := patchbay(t, "", "gateway", "--stdio", "--own", "--config", file); o.status != exit.OK {
		t.Errorf("got %+v", o)
	}
}

func TestMessagesOfAGatewayInJSON(t *testing.T) {
	freshVault(t)
	file := threeServers(t, "mcp.json", "mcpServers")
	g := startGateway(t, nil, "--config", file, "--log-format", "json", "--verbose")
	c := gatewayClient(t, g, "2026-07-28", false)
	useGateway(t, c)
	callDead(t, c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	o := g.stop()
	record := jsonRecord(t, o.stderr, "server dead: backoff: start server")
	if record["level"] != "WARN" || record["time"] == nil || record["server"] != "dead" || record["state"] != "backoff" {
		t.Errorf("record: %v", record)
	}
	for line := range strings.Lines(o.stderr) {
		if !json.Valid([]byte(line)) {
			t.Errorf("a line that is not JSON: %q", line)
		}
	}
}

// Over stdio, what applications set for themselves is a warning, and the gateway serves.
func TestInvalidVariablesOfAGateway(t *testing.T) {
	freshVault(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4317")
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, demoServers(t, "one"))
	const want = `invalid OTEL_EXPORTER_OTLP_PROTOCOL "grpc": must be http/protobuf`
	if o := patchbay(t, "", "gateway", "--config", file); o.status != exit.Usage || !strings.Contains(o.stderr, want) {
		t.Errorf("over HTTP: %+v", o)
	}
	if o := patchbay(t, "", "gateway", "--stdio", "--own", "--config", file); o.status != exit.OK ||
		!strings.Contains(o.stderr, "warning: traces and metrics are not exported: "+want) {
		t.Errorf("over stdio: %+v", o)
	}
}

// Each request of a client has a span at the gateway over HTTP, whatever the revisions of both sides.
func TestTracesOfAGatewayAreExported(t *testing.T) {
	mcptest.NoLeaks(t)
	freshVault(t)
	r := otlptest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, demoServers(t, "one", "two"))
	g := startGateway(t, nil, "--config", file)
	for _, revision := range connect.Revisions() {
		c := gatewayClient(t, g, revision, revision == "2024-11-05")
		if _, err := c.CallTool(t.Context(), "one__add", map[string]int{"a": 1, "b": 2}); err != nil {
			t.Errorf("%s: %v", revision, err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if o := g.stop(); o.status != exit.OK {
		t.Errorf("the gateway: %+v", o)
	}
	byRevision := map[string]*otlptest.Span{}
	clients := 0
	for _, span := range r.Spans() {
		switch {
		case span.Resource["service.name"] != observe.ServiceGateway:
			t.Errorf("span %s of %v", span.Name, span.Resource)
		case span.Kind.String() == "SPAN_KIND_SERVER" && strings.HasPrefix(span.Name, "tools/call"):
			byRevision[span.Attribute("mcp.protocol.version")] = span
		}
	}
	for _, revision := range connect.Revisions() {
		server := byRevision[revision]
		if server == nil {
			t.Errorf("%s: no span of the call", revision)
			continue
		}
		if slices.ContainsFunc(r.Spans(), func(s *otlptest.Span) bool {
			return s.Kind.String() == "SPAN_KIND_CLIENT" && string(s.ParentSpanId) == string(server.SpanId)
		}) {
			clients++
		}
	}
	if clients != len(connect.Revisions()) {
		t.Errorf("%d of %d calls have a span of the request to the server", clients, len(connect.Revisions()))
	}
}

// A call is one trace: the command, the gateway and the server on stdio, which are three programs, export to
// one collector.
func TestACallThroughAGatewayIsOneTrace(t *testing.T) {
	freshVault(t)
	r := otlptest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	entry, err := json.Marshal(map[string]any{"command": exe, "args": []string{"serve", "--stdio", "--tasks", "memory"},
		"env": map[string]string{mainEnv: "1", "OTEL_EXPORTER_OTLP_ENDPOINT": r.URL, "GORACE": "atexit_sleep_ms=0"}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, fmt.Sprintf(`{"mcpServers": {"one": %s, "two": %[1]s}}`, entry))
	g := startGateway(t, nil, "--config", file)
	o := patchbay(t, "", append([]string{"call", g.url, "one__add", "a=1", "b=2"}, g.header()...)...)
	if o.status != exit.OK || strings.TrimSpace(o.stdout) != "3" {
		t.Fatalf("call: %+v", o)
	}
	if o := g.stop(); o.status != exit.OK {
		t.Errorf("the gateway: %+v", o)
	}
	children := map[string]*otlptest.Span{} // calls by their parent; a trace of one call has one child each
	var root *otlptest.Span
	for _, span := range r.Spans() {
		switch {
		case !strings.HasPrefix(span.Name, "tools/call"):
		case span.Resource["service.name"] == observe.ServiceClient: // within the span of the command
			root = span
		default:
			children[string(span.ParentSpanId)] = span
		}
	}
	var trace []string
	for span := root; span != nil; span = children[string(span.SpanId)] {
		if !slices.Equal(span.TraceId, root.TraceId) {
			t.Errorf("%s is in another trace", span.Name)
		}
		trace = append(trace, span.Resource["service.name"]+" "+strings.TrimPrefix(span.Kind.String(), "SPAN_KIND_")+
			" "+span.Attribute("gen_ai.tool.name"))
	}
	want := []string{"patchbay CLIENT one__add", "patchbay-gateway SERVER one__add", "patchbay-gateway CLIENT add",
		"patchbay-demo SERVER add"}
	if !slices.Equal(trace, want) {
		t.Errorf("trace %q, want %q", trace, want)
	}
}

// The incident that a caller sees is in the log with the trace of its request.
func TestIncidentsOfAGatewayHaveTraceIDs(t *testing.T) {
	freshVault(t)
	t.Setenv(userdir.EnvState, t.TempDir())
	r := otlptest.New(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", r.URL)
	file := threeServers(t, "mcp.json", "mcpServers")
	g := startGateway(t, nil, "--config", file, "--log-format", "json")
	g.key = createKey(t, file, "ann").Key
	o := patchbay(t, "", append([]string{"rpc", g.url, "tools/call", `{"name": "dead__tool"}`}, g.header()...)...)
	if o.status == exit.OK && !strings.Contains(o.stdout, "isError") {
		t.Errorf("call: %+v", o)
	}
	record := jsonRecord(t, g.stop().stderr, "host: request failed")
	incident, _ := record["incident"].(string)
	known := slices.ContainsFunc(r.Spans(), func(s *otlptest.Span) bool {
		return s.Resource["service.name"] == observe.ServiceGateway && hex.EncodeToString(s.TraceId) == record["trace_id"] &&
			hex.EncodeToString(s.SpanId) == record["span_id"]
	})
	if !known || incident == "" || !strings.Contains(o.stdout+o.stderr, incident) || record["server"] != "dead" ||
		record["level"] != "ERROR" {
		t.Errorf("record %v of %+v", record, o)
	}
}

// A gateway on stdio, which an application starts, exports before it ends.
func TestTracesOfAGatewayOnStdioAreExported(t *testing.T) {
	freshVault(t)
	r := otlptest.New(t)
	file := filepath.Join(t.TempDir(), "mcp.json")
	writeFile(t, file, demoServers(t, "one", "two"))
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"call", "one__add", "a=1", "b=2", "--env", mainEnv + "=1", "--env", "GORACE=atexit_sleep_ms=0",
		"--env", "OTEL_EXPORTER_OTLP_ENDPOINT=" + r.URL}
	for _, name := range []string{userdir.EnvState, secrets.EnvDir, "HOME", "DBUS_SESSION_BUS_ADDRESS"} {
		args = append(args, "--env", name+"="+os.Getenv(name))
	}
	o := patchbay(t, "", append(args, "--", exe, "gateway", "--stdio", "--own", "--config", file)...)
	if o.status != exit.OK || strings.TrimSpace(o.stdout) != "3" {
		t.Fatalf("call: %+v", o)
	}
	isCall := func(s *otlptest.Span) bool {
		return s.Resource["service.name"] == observe.ServiceGateway && s.Attribute("gen_ai.tool.name") == "one__add" &&
			s.Attribute("network.transport") == "pipe" && s.Kind.String() == "SPAN_KIND_SERVER"
	}
	isHostMetric := func(m *otlptest.Metric) bool {
		return m.Resource["service.name"] == observe.ServiceGateway && m.Name == "patchbay.host.servers"
	}
	if !slices.ContainsFunc(r.Spans(), isCall) || !slices.ContainsFunc(r.Metrics(), isHostMetric) {
		t.Errorf("no span of the call or no metrics of the host: %d spans, %d metrics", len(r.Spans()), len(r.Metrics()))
	}
}
