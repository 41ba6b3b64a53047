package login

import (
	"net/http"
	"sync/atomic"
)

// Forwarded contains the headers of a caller for a server with "auth": "forward": the headers of its last
// request, which requests of the host use, such as requests for lists. The zero value is ready to use. It
// is safe for concurrent use.
type Forwarded struct{ last atomic.Pointer[http.Header] }

type forwardedKey struct{ headers *Forwarded }

// Forward returns a round tripper that adds the headers of a caller to requests.
func Forward(f *Forwarded, base http.RoundTripper) http.RoundTripper { return &forwarding{f, base} }

// A forwarding adds the headers of callers to requests.
type forwarding struct {
	headers *Forwarded
	base    http.RoundTripper
}

// RoundTrip sends a request with the headers of its caller: the headers of the caller's request in
// progress, or of its last request.
func (f *forwarding) RoundTrip(r *http.Request) (*http.Response, error) {
	header, ok := r.Context().Value(forwardedKey{f.headers}).(http.Header)
	if !ok {
		if last := f.headers.last.Load(); last != nil {
			header = *last
		}
	}
	if len(header) > 0 {
		r = r.Clone(r.Context())
		for name, values := range header {
			r.Header[name] = values
		}
	}
	return f.base.RoundTrip(r)
}

// CloseIdleConnections closes idle connections.
func (f *forwarding) CloseIdleConnections() {
	if c, ok := f.base.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}
