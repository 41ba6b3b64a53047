package telemetry_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlptest"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A recorder is a collector that stores the requests it receives.
type recorder struct {
	mu       sync.Mutex
	requests []*http.Request
	response []byte
}

func (c *recorder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r)
	w.Header().Set("Content-Type", "application/x-protobuf")
	_, _ = w.Write(c.response)
}

// exportWith exports a span and a metric, and returns the log.
func exportWith(t *testing.T, variables map[string]string) string {
	t.Helper()
	setVariables(t, variables)
	var l log
	e, err := telemetry.Start(t.Context(), options(&l))
	if err != nil {
		t.Fatal(err)
	}
	produce(t, e)
	e.Stop()
	return l.String()
}

// The endpoint for all signals has the paths of the signals below it. The endpoint of a signal is used as it is.
func TestEndpoints(t *testing.T) {
	for name, test := range map[string]struct {
		general, traces string
		want            []string
	}{
		"without a path":       {"", "-", []string{"/v1/metrics", "/v1/traces"}},
		"with a path":          {"/a/otlp/", "-", []string{"/a/otlp/v1/metrics", "/a/otlp/v1/traces"}},
		"with an escape":       {"/a%2Fb", "-", []string{"/a%2Fb/v1/metrics", "/a%2Fb/v1/traces"}},
		"of a signal":          {"/otlp", "/own/", []string{"/otlp/v1/metrics", "/own/"}},
		"of a signal, no path": {"", "", []string{"/", "/v1/metrics"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := &recorder{}
			server := httptest.NewServer(c)
			defer server.Close()
			variables := map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL + test.general}
			if test.traces != "-" {
				variables["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"] = server.URL + test.traces
			}
			text := exportWith(t, variables)
			var got []string
			for _, r := range c.requests {
				got = append(got, r.URL.EscapedPath())
			}
			if slices.Sort(got); !slices.Equal(got, test.want) || text != "" {
				t.Errorf("requests to %q, want %q; log %s", got, test.want, text)
			}
		})
	}
}

func TestVariablesOfASignalOverride(t *testing.T) {
	c := &recorder{}
	server := httptest.NewServer(c)
	defer server.Close()
	text := exportWith(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL,
		"OTEL_EXPORTER_OTLP_HEADERS": "key=general, team = a%2Cb ,", "OTEL_EXPORTER_OTLP_TRACES_HEADERS": "key=traces",
		"OTEL_EXPORTER_OTLP_COMPRESSION": "none", "OTEL_EXPORTER_OTLP_TRACES_COMPRESSION": "gzip"})
	if len(c.requests) != 2 || text != "" {
		t.Fatalf("%d requests; log %s", len(c.requests), text)
	}
	for _, r := range c.requests {
		want := []string{"general", "a,b", "", "patchbay-test/1.2.3"}
		if strings.HasSuffix(r.URL.Path, "traces") {
			want = []string{"traces", "", "gzip", "patchbay-test/1.2.3"}
		}
		var got []string
		for _, name := range []string{"Key", "Team", "Content-Encoding", "User-Agent"} {
			got = append(got, r.Header.Get(name))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", r.URL.Path, got, want)
		}
	}
}

// A collector may require a client certificate, and its certificate may be issued by an authority of its own.
func TestCertificates(t *testing.T) {
	mcptest.NoLeaks(t)
	dir := t.TempDir()
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	certificate, certErr := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	private, keyErr := x509.MarshalPKCS8PrivateKey(key)
	if certErr != nil || keyErr != nil {
		t.Fatal(certErr, keyErr)
	}
	c := &recorder{}
	server := httptest.NewUnstartedServer(c)
	server.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.StartTLS()
	defer server.Close()
	text := exportWith(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL,
		"OTEL_EXPORTER_OTLP_CERTIFICATE":        write("ca.pem", "CERTIFICATE", server.Certificate().Raw),
		"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE": write("cert.pem", "CERTIFICATE", certificate),
		"OTEL_EXPORTER_OTLP_CLIENT_KEY":         write("key.pem", "PRIVATE KEY", private)})
	if len(c.requests) != 2 || text != "" {
		t.Fatalf("%d requests; log %s", len(c.requests), text)
	}
	if peers := c.requests[0].TLS.PeerCertificates; len(peers) != 1 || !slices.Equal(peers[0].Raw, certificate) {
		t.Error("the client certificate is not presented")
	}
	c.requests = nil
	if text := exportWith(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL}); len(c.requests) > 0 ||
		!strings.Contains(text, "certificate") {
		t.Errorf("%d requests without certificates; log %s", len(c.requests), text)
	}
}

func TestInvalidVariablesOfCollectorsAreErrors(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.html")
	if err := os.WriteFile(page, []byte("<html>"), 0o600); err != nil {
		t.Fatal(err)
	}
	const prefix = "OTEL_EXPORTER_OTLP_"
	for _, test := range []struct{ name, value, want string }{
		{"COMPRESSION", "zstd", `invalid OTEL_EXPORTER_OTLP_COMPRESSION "zstd": must be gzip or none`},
		{"TRACES_COMPRESSION", "GZIP", `invalid OTEL_EXPORTER_OTLP_TRACES_COMPRESSION "GZIP": must be gzip or none`},
		{"TIMEOUT", "-1", `invalid OTEL_EXPORTER_OTLP_TIMEOUT "-1": must be a number of milliseconds`},
		{"TIMEOUT", "3000000000", `invalid OTEL_EXPORTER_OTLP_TIMEOUT "3000000000": must be`},
		{"METRICS_HEADERS", "a=b,c d=top-secret",
			`invalid OTEL_EXPORTER_OTLP_METRICS_HEADERS: header 2 must be name=value`},
		{"HEADERS", "=top-secret", `invalid OTEL_EXPORTER_OTLP_HEADERS: header 1 must be`},
		{"HEADERS", "key=top-secret%0Ax", `invalid OTEL_EXPORTER_OTLP_HEADERS: header 1 must be`},
		{"HEADERS", "key=top-secret%zz", `invalid OTEL_EXPORTER_OTLP_HEADERS: header 1 must be`},
		{"CERTIFICATE", page,
			"invalid OTEL_EXPORTER_OTLP_CERTIFICATE " + strconv.Quote(page) + ": must be a file with certificates"},
		{"CLIENT_CERTIFICATE", page,
			`invalid OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_CLIENT_KEY: must be`},
		{"TRACES_CLIENT_KEY", page,
			`invalid OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE and OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY: must be`},
		{"METRICS_TEMPORALITY_PREFERENCE", "Sometimes",
			`invalid OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE "Sometimes": must be cumulative, delta or`},
		{"METRICS_DEFAULT_HISTOGRAM_AGGREGATION", "none",
			`invalid OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION "none": must be explicit_bucket_`},
	} {
		t.Run(test.name+" "+test.value, func(t *testing.T) {
			setVariables(t, map[string]string{prefix + "ENDPOINT": "https://127.0.0.1:1"})
			t.Setenv(prefix+test.name, test.value)
			e, err := telemetry.Start(t.Context(), options(&log{}))
			if err == nil {
				e.Stop()
				t.Fatal("no error")
			}
			if !strings.HasPrefix(err.Error(), test.want) || strings.Contains(err.Error(), "top-secret") {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

// Certificates have no effect on an http endpoint, which the operator must learn.
func TestCertificatesNeedHTTPS(t *testing.T) {
	server := httptest.NewTLSServer(http.NotFoundHandler())
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	data := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	const general, traces = "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"
	for _, test := range []struct{ variable, value, wrong string }{
		{general, "http://127.0.0.1:1", general},
		{traces, "http://127.0.0.1:1/v1/traces", traces},
		{"OTEL_TRACES_EXPORTER", "otlp", general}, // whose default is not https
	} {
		setVariables(t, map[string]string{test.variable: test.value, "OTEL_EXPORTER_OTLP_CERTIFICATE": file})
		t.Setenv("OTEL_METRICS_EXPORTER", "none")
		_, err := telemetry.Start(t.Context(), options(&log{}))
		want := "invalid " + test.wrong + ": must be an https URL, because a certificate is set"
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", test.variable, err, want)
		}
	}
}

// A collector whose response begins with a large header is hostile or no collector.
func TestHeadersOfResponsesAreBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Large", strings.Repeat("x", 128<<10))
	}))
	defer server.Close()
	text := exportWith(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL})
	if strings.Count(text, "server response headers exceeded 65536 bytes") != 2 {
		t.Errorf("log:\n%s", text)
	}
}

func TestTemporalityAndAggregationOfMetrics(t *testing.T) {
	const delta = metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_DELTA
	for _, test := range []struct {
		temporality, aggregation string
		delta, exponential       bool
	}{
		{"", "", false, false},
		{"cumulative", "explicit_bucket_histogram", false, false},
		{"Delta", "base2_exponential_bucket_histogram", true, true},
		{"lowmemory", "", true, false},
	} {
		r := otlptest.New(t)
		setVariables(t, map[string]string{"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": r.URL + "/v1/metrics",
			"OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE":        test.temporality,
			"OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION": test.aggregation})
		e, err := telemetry.Start(t.Context(), options(&log{}))
		if err != nil {
			t.Fatal(err)
		}
		produce(t, e)
		duration, err := e.Metrics.Meter("test").Float64Histogram("duration")
		if err != nil {
			t.Fatal(err)
		}
		duration.Record(t.Context(), 0.3)
		e.Stop()
		if len(r.Metrics()) != 2 {
			t.Fatalf("%+v: %d metrics", test, len(r.Metrics()))
		}
		for _, m := range r.Metrics() {
			temporality := m.GetSum().GetAggregationTemporality()
			if m.Name == "duration" {
				temporality = max(m.GetHistogram().GetAggregationTemporality(),
					m.GetExponentialHistogram().GetAggregationTemporality())
				if (m.GetExponentialHistogram() != nil) != test.exponential {
					t.Errorf("%+v: the histogram is %T", test, m.Data)
				}
			}
			if temporality == 0 || (temporality == delta) != test.delta {
				t.Errorf("%+v: %s has the temporality %v", test, m.Name, temporality)
			}
		}
	}
}

// A collector that rejects a part of each export is a line of the log for each signal.
func TestPartialSuccessIsLoggedOnce(t *testing.T) {
	part := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 2)
	part = protowire.AppendString(protowire.AppendTag(part, 2, protowire.BytesType), "too old")
	c := &recorder{response: protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), part)}
	server := httptest.NewServer(c)
	defer server.Close()
	setVariables(t, map[string]string{"OTEL_EXPORTER_OTLP_ENDPOINT": server.URL, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE": "1"})
	var l log
	e, err := telemetry.Start(t.Context(), options(&l))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		produce(t, e)
	}
	e.Stop()
	text := l.String()
	if len(c.requests) != 4 || strings.Count(text, "\n") != 2 ||
		!containsAll(text, `traces metrics warning="2 spans or points were rejected: too old"`) {
		t.Errorf("%d requests; log:\n%s", len(c.requests), text)
	}
}
