package login

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
)

type authorizationKey struct{}

// WithAuthorization returns a context with the header Authorization of a caller.
func WithAuthorization(ctx context.Context, value string) context.Context {
	return context.WithValue(ctx, authorizationKey{}, value)
}

// Forwarded contains the headers of a caller for a server with "auth": "forward": the headers of its last
// request, which requests of the host use, such as requests for lists. The zero value is ready to use. It
// is safe for concurrent use.
type Forwarded struct{ last atomic.Pointer[http.Header] }

type forwardedKey struct{ headers *Forwarded }

// With returns the context of a request with the headers that the server receives.
func (s *Server) With(ctx context.Context, f *Forwarded, req *mcp.Request) context.Context {
	settings := s.opts.Entry().Settings
	if settings.Auth != config.AuthForward {
		return ctx
	}
	header := http.Header{}
	for _, name := range settings.ForwardHeaders {
		if values := req.Header[name]; len(values) > 0 {
			header[name] = append([]string(nil), values...)
		}
	}
	if value, _ := ctx.Value(authorizationKey{}).(string); settings.InsecureForwardAuthorization && value != "" {
		header["Authorization"] = []string{value}
		_, token, _ := strings.Cut(value, " ")
		if len(token) >= minToken {
			s.opts.KeepSecrets([]string{token})
		}
	}
	f.last.Store(&header)
	return context.WithValue(ctx, forwardedKey{f}, header)
}

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
