package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/patchbay-mcp/patchbay/gateway/internal/limitedlog"
	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
)

// Limits of the ops listener. Requests need no body; a profile of 30 seconds is the longest response.
const (
	readTimeout    = 5 * time.Second // for the headers of a request to arrive, and for a body
	idleTimeout    = time.Minute
	writeTimeout   = time.Minute
	opsHeaderBytes = 16 << 10 // browsers with cookies send a few KiB
	maxScrapes     = 4        // in progress; each may hold all metrics in memory
	closeTimeout   = time.Second
)

// Ops configures the ops listener. It requires no authorization, so responses contain no secrets.
type Ops struct {
	// Metrics are served on /metrics.
	Metrics prometheus.Gatherer
	// Ready returns the reason why the program cannot serve, or nil, and details for
	// /readyz?verbose, which are encoded as JSON.
	Ready func() (details any, err error)
	// Pprof serves profiles on /debug/pprof/, on a loopback address only.
	Pprof bool
	// Logger logs problems.
	Logger *slog.Logger
}

// CheckAddr returns an error for an address of the ops listener that is not host:port, that equals
// the address of the MCP server, or, with pprof, that other machines can reach.
func CheckAddr(addr, server string, pprof bool) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil || host == "" || port != "0" && !netx.ValidPort(port) {
		return fmt.Errorf("invalid address %.100q of the ops listener: must be host:port, such as 127.0.0.1:9464", addr)
	}
	if serverHost, serverPort, err := net.SplitHostPort(server); err == nil && port == serverPort && port != "0" &&
		sameHost(host, serverHost) {
		return fmt.Errorf("invalid address %q of the ops listener: must not be that of the MCP server, %s, whose "+
			"clients would see the metrics", addr, server)
	}
	if pprof && !netx.IsLocalHost(host) {
		return errPprof(addr)
	}
	return nil
}

// errPprof is the error of pprof at an address that other machines reach.
func errPprof(addr string) error {
	return fmt.Errorf("pprof needs a loopback address such as 127.0.0.1:9464: other machines reach %s, and profiles "+
		"have the memory of the process", addr)
}

// sameHost reports whether listeners at two hosts would accept the same connections at a port.
func sameHost(a, b string) bool {
	if a == b {
		return true
	}
	x, xErr := addrOf(a)
	y, yErr := addrOf(b)
	switch {
	case xErr != nil || yErr != nil:
		return false // names of other interfaces: the system refuses the second listener
	case x.IsUnspecified() || y.IsUnspecified():
		return true
	}
	return x.Unmap() == y.Unmap()
}

func addrOf(host string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(host)
	if err != nil && netx.IsLocalHost(host) {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	return addr, err
}

// Serve serves health, readiness, metrics and profiles on a listener until ctx ends, and closes it.
func (o *Ops) Serve(ctx context.Context, l net.Listener) error {
	host, _, err := net.SplitHostPort(l.Addr().String())
	local := err == nil && netx.IsLocalHost(host)
	if o.Pprof && !local {
		_ = l.Close() // it was not used
		return errPprof(l.Addr().String())
	}
	server := &http.Server{
		Handler: o.handler(local), MaxHeaderBytes: opsHeaderBytes,
		ReadHeaderTimeout: readTimeout, IdleTimeout: idleTimeout, WriteTimeout: writeTimeout,
		ErrorLog: slog.NewLogLogger(o.Logger.Handler(), slog.LevelDebug), // errors of clients are no problem
	}
	closed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(closed)
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		_ = server.Shutdown(ctx) // fails if a request takes longer
		_ = server.Close()
	})
	err = server.Serve(l)
	if stop() {
		return err // the listener failed
	}
	<-closed
	return nil
}

// handler returns the handler of all paths. local means that the listener is on loopback.
func (o *Ops) handler(local bool) http.Handler {
	mux := http.NewServeMux()
	paths := []string{"/metrics", "/healthz", "/readyz"}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { write(w, "ok\n") })
	mux.HandleFunc("GET /readyz", o.serveReady)
	log := &scrapeLog{limitedlog.Log{Logger: o.Logger, Summary: "ops: more errors of metrics", What: "errors"}}
	mux.Handle("GET /metrics", promhttp.HandlerFor(o.Metrics, promhttp.HandlerOpts{
		ErrorLog: log, ErrorHandling: promhttp.ContinueOnError, MaxRequestsInFlight: maxScrapes,
		EnableOpenMetrics: true, // OpenMetrics supports exemplars
	}))
	if o.Pprof { // without cmdline: the arguments may contain secrets
		paths = append(paths, "/debug/pprof/")
		mux.HandleFunc("GET /debug/pprof/", pprof.Index)
		mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	}
	index := strings.Join(paths, "\n") + "\n"
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { write(w, index) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 { // the server reads it, but no handler does
			_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(readTimeout)) // fails only in tests
		}
		if reason := refusal(r, local); reason != "" {
			http.Error(w, reason, http.StatusForbidden)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// refusal returns why a request is refused, or "": web pages must not read data or start profiles.
// A listener on loopback rejects other host names, against DNS rebinding: the name of a page may
// resolve to this machine.
func refusal(r *http.Request, local bool) string {
	host := r.Host
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if local && !netx.IsLocalHost(strings.Trim(host, "[]")) {
		return "host is not allowed: this listener is for programs of this machine"
	}
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return "origin is not allowed: web pages cannot use this listener"
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "none", "same-origin":
		return ""
	}
	if r.Header.Get("Sec-Fetch-Mode") == "navigate" && !strings.HasPrefix(r.URL.Path, "/debug/") {
		return "" // a link to the metrics
	}
	return "site is not allowed: web pages cannot use this listener"
}

func write(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = w.Write([]byte(text)) // fails only if the client is gone
}

// A readiness is the response of /readyz.
type readiness struct {
	Ready   bool   `json:"ready"`
	Reason  string `json:"reason,omitempty"`
	Details any    `json:"details,omitempty"`
}

func (o *Ops) serveReady(w http.ResponseWriter, r *http.Request) {
	details, err := o.Ready()
	body, status := readiness{Ready: err == nil}, http.StatusOK
	if err != nil {
		body.Reason, status = err.Error(), http.StatusServiceUnavailable
	}
	if r.URL.Query().Has("verbose") {
		body.Details = details
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // fails only if the client is gone
}

// A scrapeLog logs errors of /metrics.
type scrapeLog struct{ lines limitedlog.Log }

// Println implements promhttp.Logger.
func (l *scrapeLog) Println(v ...any) {
	if l.lines.Admit() {
		l.lines.Logger.Warn("ops: metrics not complete", "error", shorten(fmt.Sprint(v...)))
	}
}
