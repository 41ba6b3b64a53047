package host

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
)

type authorizationKey struct{}

// WithAuthorization returns a context with the header Authorization of a caller. Middleware that
// removes the header keeps it by this function for servers with "insecureForwardAuthorization"; no
// other server gets it.
func WithAuthorization(ctx context.Context, value string) context.Context {
	return context.WithValue(ctx, authorizationKey{}, value)
}

// ForwardsAuthorization reports whether a server has "insecureForwardAuthorization".
func (h *Host) ForwardsAuthorization() bool { return h.set.Load().authorization }

type forwardedKey struct{ pool *pool }

// A forwarding adds the headers of callers to requests, for a server with "auth": "forward".
type forwarding struct {
	pool *pool
	base http.RoundTripper
}

// RoundTrip sends a request with the headers of its caller: those of the request that it is for, else
// those of the last one of the same caller, for requests of the host such as those for lists.
func (f *forwarding) RoundTrip(r *http.Request) (*http.Response, error) {
	header, ok := r.Context().Value(forwardedKey{f.pool}).(http.Header)
	if !ok {
		if last := f.pool.forwarded.Load(); last != nil {
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

// A forwardedHeader is the header that was last forwarded for a pool.
type forwardedHeader = atomic.Pointer[http.Header]

// noteForwarded keeps the headers of a request for those of the host itself, such as for lists.
func (v *View) noteForwarded(ctx context.Context, req *mcp.Request) {
	for _, p := range v.pools() {
		p.withForwarded(ctx, req)
	}
}

// withForwarded returns the context of a request with the headers that its server gets.
func (p *pool) withForwarded(ctx context.Context, req *mcp.Request) context.Context {
	s := p.up.entry().Settings
	if s.Auth != config.AuthForward {
		return ctx
	}
	header := http.Header{}
	for _, name := range s.ForwardHeaders {
		if values := req.Header[name]; len(values) > 0 {
			header[name] = append([]string(nil), values...)
		}
	}
	if value, _ := ctx.Value(authorizationKey{}).(string); s.InsecureForwardAuthorization && value != "" {
		header["Authorization"] = []string{value}
		_, token, _ := strings.Cut(value, " ")
		if len(token) >= minToken {
			p.up.keepSecrets([]string{token})
		}
	}
	p.forwarded.Store(&header)
	return context.WithValue(ctx, forwardedKey{p}, header)
}
