package upstream

import (
	"context"
	"net/http"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Keys of contexts: of the caller; of an [atomic.Bool] that becomes true when the caller is read; of the
// HTTP client of a connection; of servers with the setting insecureHTTP; of a clientObserver.
type (
	callerKey    struct{}
	callerUseKey struct{}
	clientKey    struct{}
	insecureKey  struct{}
	serverKey    struct{}
)

// WithCaller returns a context with the caller of a request.
func WithCaller(ctx context.Context, c *policy.Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// CallerFrom returns the caller of a context. It returns nil if the context contains no caller.
func CallerFrom(ctx context.Context) *policy.Caller {
	if used, ok := ctx.Value(callerUseKey{}).(*atomic.Bool); ok {
		used.Store(true)
	}
	c, _ := ctx.Value(callerKey{}).(*policy.Caller)
	return c
}

// ClientFrom returns the HTTP client of the connection that a context is for. It returns nil for
// other contexts.
func ClientFrom(ctx context.Context) *http.Client {
	c, _ := ctx.Value(clientKey{}).(*http.Client)
	return c
}

// IsInsecure reports whether the connection may send credentials over HTTP without TLS.
func IsInsecure(ctx context.Context) bool {
	_, insecure := ctx.Value(insecureKey{}).(bool)
	return insecure
}

// ServerFrom returns the name of the server whose client observes, empty for other contexts.
func ServerFrom(ctx context.Context) string {
	if o, ok := ctx.Value(serverKey{}).(*clientObserver); ok {
		return o.server
	}
	return ""
}

// A clientObserver is the observer of the clients of a server.
type clientObserver struct {
	mcp.Observer
	server string
}

// Begin adds the name of the server to the context.
func (o *clientObserver) Begin(ctx context.Context, req *mcp.Request) context.Context {
	return o.Observer.Begin(context.WithValue(ctx, serverKey{}, o), req)
}

// SessionBegan adds the name of the server to the context.
func (o *clientObserver) SessionBegan(ctx context.Context, v driver.Via) (ended func(cause error)) {
	if inner, ok := o.Observer.(driver.SessionObserver); ok {
		return inner.SessionBegan(context.WithValue(ctx, serverKey{}, o), v)
	}
	return func(error) {}
}
