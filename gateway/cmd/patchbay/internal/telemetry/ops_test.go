package telemetry_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
)

func TestOpsListener(t *testing.T) {
	setVariables(t, map[string]string{"OTEL_SDK_DISABLED": "true"}) // of what variables ask for
	var l log
	o := options(&l)
	o.Prometheus = true
	e, err := telemetry.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Stop()
	produce(t, e)
	var failure error
	ready := func() (any, error) { return map[string]string{"fs": "ready"}, failure }
	base := serve(t, &telemetry.Ops{Metrics: e.Gatherer, Ready: ready, Pprof: true, Logger: l.logger()}, "127.0.0.1:0")
	tests := []struct {
		path   string
		status int
		want   string
	}{
		{"/healthz", 200, "ok\n"}, {"/readyz", 200, `{"ready":true}`}, {"/readyz?verbose", 200, `"fs":"ready"`},
		{"/debug/pprof/goroutine?debug=1", 200, "goroutine profile"}, {"/debug/pprof/cmdline", 404, "Unknown profile"},
		{"/", 200, "/debug/pprof/"}, {"/mcp", 404, ""},
	}
	for _, test := range tests {
		if status, body := get(t, base+test.path, nil); status != test.status || !strings.Contains(body, test.want) {
			t.Errorf("%s: %d %.100q, want %d %q", test.path, status, body, test.status, test.want)
		}
	}
	failure = errors.New("draining")
	if status, body := get(t, base+"/readyz", nil); status != 503 || body != `{"ready":false,"reason":"draining"}`+"\n" {
		t.Errorf("readyz of a program that is not ready: %d %q", status, body)
	}
	families := scrape(t, base)
	if families["calls_total"].GetMetric()[0].GetCounter().GetValue() != 3 || families["go_goroutines"] == nil ||
		families["target_info"] == nil {
		t.Errorf("metrics: %v", families)
	}
	if l.String() != "" {
		t.Errorf("log: %s", &l)
	}
}

func TestOpsListenerRefusesWebPages(t *testing.T) {
	type headers = map[string]string
	tests := []struct {
		path    string
		headers headers
		status  int
	}{
		{"/metrics", headers{"Host": "evil.example"}, 403},
		{"/metrics", headers{"Host": "evil.example:9464"}, 403},
		{"/metrics", headers{"Host": "127.0.0.1.evil.example"}, 403},
		{"/metrics", headers{"Host": "localhost"}, 200},
		{"/metrics", headers{"Host": "[::1]:9464"}, 200},
		{"/metrics", headers{"Origin": "http://evil.example"}, 403},
		{"/metrics", headers{"Origin": "null"}, 403},
		{"/healthz", headers{"Origin": "http://localhost:9464", "Host": "localhost:9464"}, 200},
		{"/metrics", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403},
		{"/metrics", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200},
		{"/metrics", headers{"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, 200},
		{"/debug/pprof/heap", headers{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403},
		{"/debug/pprof/heap", headers{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate"}, 200},
		{"/metrics", headers{"X": strings.Repeat("x", 32<<10)}, 431},
	}
	base := serve(t, testOps(t, true), "127.0.0.1:0")
	for _, test := range tests {
		if status, body := get(t, base+test.path, test.headers); status != test.status {
			t.Errorf("%s with %.60v: %d %.100q, want %d", test.path, test.headers, status, body, test.status)
		}
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		req, err := http.NewRequestWithContext(t.Context(), method, base+"/metrics", strings.NewReader("{}"))
		if err != nil {
			t.Fatal(err)
		}
		if status, _ := do(t, req); status != 405 {
			t.Errorf("%s: %d, want 405", method, status)
		}
	}
}

// Other machines reach the listener by any name, such as that of a service, and never profiles.
func TestOpsListenerOnOtherAddresses(t *testing.T) {
	base := serve(t, testOps(t, false), "0.0.0.0:0")
	if status, _ := get(t, base+"/metrics", map[string]string{"Host": "gateway.prod.example:9464"}); status != 200 {
		t.Errorf("another host: %d, want 200", status)
	}
	if status, _ := get(t, base+"/metrics", map[string]string{"Origin": "http://evil.example"}); status != 403 {
		t.Errorf("another origin: %d, want 403", status)
	}
	if status, _ := get(t, base+"/debug/pprof/", nil); status != 404 {
		t.Errorf("pprof: %d, want 404", status)
	}
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := testOps(t, true).Serve(t.Context(), l); err == nil || !strings.Contains(err.Error(), "pprof needs a loopback") {
		t.Errorf("pprof at another address: %v", err)
	}
}

func TestAddressesOfTheOpsListener(t *testing.T) {
	tests := []struct {
		addr, server string
		pprof        bool
		want         string // in the error; "" for none
	}{
		{"127.0.0.1:9464", "127.0.0.1:7777", true, ""},
		{"localhost:9464", "127.0.0.1:7777", true, ""},
		{"[::1]:9464", "127.0.0.1:9464", true, ""},
		{"0.0.0.0:9464", "127.0.0.1:7777", false, ""},
		{"127.0.0.1:0", "127.0.0.1:0", true, ""},
		{"127.0.0.2:7777", "127.0.0.1:7777", false, ""},
		{"127.0.0.1:7777", "127.0.0.1:7777", false, "must not be that of the MCP server"},
		{"localhost:7777", "127.0.0.1:7777", false, "must not be that of the MCP server"},
		{"[::ffff:127.0.0.1]:7777", "127.0.0.1:7777", false, "must not be that of the MCP server"},
		{"0.0.0.0:7777", "127.0.0.1:7777", false, "must not be that of the MCP server"},
		{"127.0.0.1:7777", "[::]:7777", false, "must not be that of the MCP server"},
		{"metrics.example:7777", "metrics.example:7777", false, "must not be that of the MCP server"},
		{"0.0.0.0:9464", "127.0.0.1:7777", true, "pprof needs a loopback address"},
		{"metrics.example:9464", "127.0.0.1:7777", true, "pprof needs a loopback address"},
		{"9464", "127.0.0.1:7777", false, `invalid address "9464" of the ops listener: must be host:port`},
		{":9464", "127.0.0.1:7777", false, "must be host:port"},
		{"127.0.0.1:http", "127.0.0.1:7777", false, "must be host:port"},
		{"127.0.0.1:70000", "127.0.0.1:7777", false, "must be host:port"},
	}
	for _, test := range tests {
		err := telemetry.CheckAddr(test.addr, test.server, test.pprof)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%q with the server %q: got %v, want %q", test.addr, test.server, err, test.want)
		}
	}
}

func testOps(t *testing.T, pprof bool) *telemetry.Ops {
	t.Helper()
	setVariables(t, nil)
	var l log
	o := options(&l)
	o.Prometheus = true
	e, err := telemetry.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Stop)
	return &telemetry.Ops{Metrics: e.Gatherer, Ready: func() (any, error) { return nil, nil }, Pprof: pprof,
		Logger: l.logger()}
}

// serve serves until the end of the test.
func serve(t *testing.T, o *telemetry.Ops, addr string) (base string) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- o.Serve(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
	})
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return "http://127.0.0.1:" + port
}

// scrape reads metrics as Prometheus does.
func scrape(t *testing.T, base string) map[string]*dto.MetricFamily {
	t.Helper()
	_, body := get(t, base+"/metrics", nil)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	all, err := parser.TextToMetricFamilies(strings.NewReader(body))
	if err != nil {
		t.Fatalf("%v:\n%s", err, body)
	}
	return all
}

func get(t *testing.T, url string, headers map[string]string) (status int, body string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	req.Host = headers["Host"]
	return do(t, req)
}

func do(t *testing.T, req *http.Request) (status int, body string) {
	t.Helper()
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}
