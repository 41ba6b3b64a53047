package mcphttp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// sessionCore serves the requests that package legacy has translated, with an mcp.Handler.
type sessionCore struct {
	handler mcp.Handler
	server  server // serves with the sessionCore
}

// A server serves the requests of a handler.
type server = driver.Server[*mcp.Request, mcp.Result, mcp.Observer]

// Serve serves a request in the modern form.
func (c *sessionCore) Serve(
	ctx context.Context, dst []byte, r wire.Request, notify legacy.Notify,
) (_ []byte, isProjected bool, _ *mcp.Error) {
	req := newRequest(r)
	req.Notify = notify
	attribute(ctx, req)
	dst, err := c.server.AppendResult(dst, ctx, req)
	return dst, req.Driver().Projected, err
}

// ServeMCP serves a request, and records the HTTP challenge of its error.
func (c *sessionCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	res, err := c.handler.ServeMCP(ctx, req)
	if err != nil {
		if message := sessionContextFrom(ctx); message != nil {
			message.challenged.Store(challengeOf(err))
		}
	}
	return res, err
}

// Unwrap returns the handler behind this one, so that a subscription can continue after ServeMCP
// has returned.
func (c *sessionCore) Unwrap(driver.Wrapped) mcp.Handler { return c.handler }

// Listen registers a subscription. A handler that is not an [driver.Listener] is served on a goroutine
// of its own until stop is called.
func (c *sessionCore) Listen(ctx context.Context, r wire.Request, notify legacy.Notify) (stop func(), err error) {
	req := newRequest(r)
	attribute(ctx, req)
	if l, ok := c.handler.(driver.Listener[*mcp.Request]); ok {
		req.Notify = notify
		return l.Listen(ctx, req)
	}
	start := func(serve func()) { go serve() }
	return legacy.Subscribe(ctx, notify, start, func(ctx context.Context, notify legacy.Notify) *jsonrpc.Message {
		req.Notify = notify
		return mcp.Driver(c.handler).Respond(ctx, req)
	})
}

// newRequest returns a request whose envelope has been opened.
func newRequest(r wire.Request) *mcp.Request {
	req := &mcp.Request{ID: r.ID, Method: r.Method, Params: r.Params}
	req.Driver().Envelope = r.Envelope
	return req
}

func attribute(ctx context.Context, req *mcp.Request) {
	if c := sessionContextFrom(ctx); c != nil {
		req.Principal, req.Header = c.principal, c.request.Header
		req.Driver().Carrier = c
	} else {
		req.Principal = mcp.PrincipalFrom(ctx)
	}
}

// A sessionContext is the context of a message of a session. It returns the values of the HTTP
// request's context but does not end with it: a lost connection cancels no request. Spec:
// basic/transports#sending-messages-to-the-server
type sessionContext struct {
	context.Context
	of        *session
	principal *mcp.Principal // of the HTTP request
	request   *http.Request
	post      *sessionPost // for CloseStream; nil if the message is not a request of a POST
	// challenged is the challenge of an error response; may be nil.
	challenged atomic.Pointer[challenge]
	unsaved    atomic.Bool // the message changed the session, and its store failed
}

type sessionContextKey struct{}

func (s *session) newContext(r *http.Request) *sessionContext {
	c := &sessionContext{}
	c.begin(r, s, mcp.PrincipalFrom(r.Context()))
	return c
}

func (c *sessionContext) begin(r *http.Request, s *session, principal *mcp.Principal) {
	c.Context, c.of = context.WithoutCancel(r.Context()), s
	c.principal, c.request = principal, r
}

// A conversationContext is the context of the translator of a session, which keeps it.
type conversationContext struct {
	context.Context // without a Done channel
	of              *session
}

// Value returns the caller and the id of the session.
func (c *conversationContext) Value(key any) any {
	switch key {
	case callerKey{}:
		return c.of.caller
	case driver.SessionKey{}:
		return c.of.id
	}
	return c.Context.Value(key)
}

// Via is for [mcp.Request.Via].
func (c *sessionContext) Via() driver.Via {
	v := (*httpVia)(c.request).Via()
	v.Session = c.of.hash()
	return v
}

// Splice implements [wire.Splicer].
func (c *sessionContext) Splice(dst, part []byte, shared bool) bool {
	return c.post != nil && c.post.response.Splice(dst, part, shared)
}

// hash returns a hash of the id that does not reveal it, for traces.
func (s *session) hash() string {
	h := s.hashed.Load()
	if h == nil {
		sum := sha256.Sum256([]byte(s.id))
		text := hex.EncodeToString(sum[:8])
		h = &text
		s.hashed.Store(h)
	}
	return *h
}

func sessionContextFrom(ctx context.Context) *sessionContext {
	c, _ := ctx.Value(sessionContextKey{}).(*sessionContext)
	return c
}

// Value returns the sessionContext itself for its own key, and the id of the session.
func (c *sessionContext) Value(key any) any {
	switch key {
	case sessionContextKey{}:
		return c
	case driver.SessionKey{}:
		return c.of.id
	}
	return c.Context.Value(key)
}
