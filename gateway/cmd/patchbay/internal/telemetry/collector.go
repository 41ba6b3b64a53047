package telemetry

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/telemetry/otlp"
)

// The variables of a collector. A variable of a signal overrides the variable for all signals.
const (
	varEndpoint    = "OTEL_EXPORTER_OTLP_ENDPOINT"
	varHeaders     = "OTEL_EXPORTER_OTLP_HEADERS"
	varTimeout     = "OTEL_EXPORTER_OTLP_TIMEOUT"
	varCompression = "OTEL_EXPORTER_OTLP_COMPRESSION"
	varCertificate = "OTEL_EXPORTER_OTLP_CERTIFICATE"
	varClientCert  = "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE"
	varClientKey   = "OTEL_EXPORTER_OTLP_CLIENT_KEY"
	varTemporality = "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE"
	varAggregation = "OTEL_EXPORTER_OTLP_METRICS_DEFAULT_HISTOGRAM_AGGREGATION"
)

// defaultEndpoint is the collector if a variable requests an export and none contains the endpoint.
const defaultEndpoint = "http://localhost:4318"

// maxResponseHeader limits the header of a response, in bytes: it contains a status and a delay.
const maxResponseHeader = 64 << 10

// clientOf returns a client for the collector of a signal.
func (e *Exporters) clientOf(signal string) (*otlp.Client, error) {
	endpoint, endpointErr := endpointOf(signal)
	header, headerErr := headerOf(signal)
	timeout, timeoutErr := timeoutOf(signal)
	variable, compression := signalVariable(signal, varCompression)
	if compression != "" && compression != "gzip" && compression != exporterNone {
		return nil, fmt.Errorf("invalid %s %.64q: must be gzip or none", variable, compression)
	}
	security, securityErr := tlsOf(signal)
	if err := cmp.Or(endpointErr, headerErr, timeoutErr, securityErr); err != nil {
		return nil, err
	}
	if security != nil && endpoint.Scheme != "https" {
		variable, _ := signalVariable(signal, varEndpoint)
		return nil, fmt.Errorf("invalid %s: must be an https URL, because a certificate is set",
			cmp.Or(variable, varEndpoint))
	}
	log := &exportLog{log: e.opts.Logger, what: strings.ToLower(signal), hide: hiding(header)}
	header.Set("User-Agent", cmp.Or(header.Get("User-Agent"), e.opts.Service+"/"+e.opts.Version))
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig, transport.MaxResponseHeaderBytes = security, maxResponseHeader
	return &otlp.Client{URL: endpoint.String(), Header: header, Gzip: compression == "gzip", Timeout: timeout,
		Transport: transport, Over: e.over, Ending: e.ending.Done(), Report: log.done}, nil
}

// endpointOf returns the URL of a collector: the URL for the signal as it is, or the path of the
// signal below the URL for all signals.
func endpointOf(signal string) (*url.URL, error) {
	variable, value := signalVariable(signal, varEndpoint)
	u, err := url.Parse(cmp.Or(value, defaultEndpoint))
	if err == nil && (variable == "" || variable == varEndpoint) {
		u = u.JoinPath("v1", strings.ToLower(signal))
	}
	return u, err
}

// headerOf returns the headers of requests. Errors do not repeat values, which may be secret.
func headerOf(signal string) (http.Header, error) {
	const token = "!#$%&'*+-.^_`|~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	variable, value := signalVariable(signal, varHeaders)
	header := http.Header{}
	for n, pair := range list(value) {
		name, escaped, ok := strings.Cut(pair, "=")
		value, err := url.PathUnescape(escaped)
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		if !ok || err != nil || name == "" || strings.Trim(name, token) != "" ||
			strings.ContainsFunc(value, unicode.IsControl) {
			return nil, fmt.Errorf("invalid %s: header %d must be name=value, with %%20 for a space", variable, n+1)
		}
		header.Set(name, value)
	}
	return header, nil
}

func timeoutOf(signal string) (time.Duration, error) {
	variable, value := signalVariable(signal, varTimeout)
	milliseconds, err := strconv.ParseUint(cmp.Or(value, "10000"), 10, 31)
	if err != nil {
		return 0, fmt.Errorf("invalid %s %.64q: must be a number of milliseconds", variable, value)
	}
	return time.Duration(milliseconds) * time.Millisecond, nil
}

// tlsOf returns the certificates that connections trust and present, nil for the defaults.
func tlsOf(signal string) (*tls.Config, error) {
	authority, authorityFile := signalVariable(signal, varCertificate)
	cert, certFile := signalVariable(signal, varClientCert)
	key, keyFile := signalVariable(signal, varClientKey)
	cert, key = cmp.Or(cert, varClientCert), cmp.Or(key, varClientKey)
	if authorityFile == "" && certFile == "" && keyFile == "" {
		return nil, nil
	}
	c := &tls.Config{}
	if authorityFile != "" {
		text, err := os.ReadFile(authorityFile)
		if err != nil {
			return nil, fmt.Errorf("invalid %s: %w", authority, err)
		}
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("invalid %s %q: must be a file with certificates in PEM", authority, authorityFile)
		}
	}
	if (certFile == "") != (keyFile == "") {
		return nil, fmt.Errorf("invalid %s and %s: must be set together", cert, key)
	}
	if certFile != "" {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("invalid %s or %s: %w", cert, key, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// temporalityOf returns the temporality of metrics: cumulative, unless a variable says otherwise.
func temporalityOf() (sdkmetric.TemporalitySelector, error) {
	switch value := os.Getenv(varTemporality); strings.ToLower(strings.TrimSpace(value)) {
	case "", "cumulative":
		return sdkmetric.CumulativeTemporalitySelector, nil
	case "delta":
		return sdkmetric.DeltaTemporalitySelector, nil
	case "lowmemory":
		return sdkmetric.LowMemoryTemporalitySelector, nil
	default:
		return nil, fmt.Errorf("invalid %s %.64q: must be cumulative, delta or lowmemory", varTemporality, value)
	}
}

// aggregationOf returns the aggregation of histograms: explicit buckets, unless a variable says
// otherwise.
func aggregationOf() (sdkmetric.AggregationSelector, error) {
	switch value := os.Getenv(varAggregation); strings.ToLower(strings.TrimSpace(value)) {
	case "", "explicit_bucket_histogram":
		return sdkmetric.DefaultAggregationSelector, nil
	case "base2_exponential_bucket_histogram":
		return func(kind sdkmetric.InstrumentKind) sdkmetric.Aggregation {
			if kind == sdkmetric.InstrumentKindHistogram {
				return sdkmetric.AggregationBase2ExponentialHistogram{MaxSize: 160, MaxScale: 20} // as specified
			}
			return sdkmetric.DefaultAggregationSelector(kind)
		}, nil
	default:
		return nil, fmt.Errorf("invalid %s %.64q: must be explicit_bucket_histogram or "+
			"base2_exponential_bucket_histogram", varAggregation, value)
	}
}
