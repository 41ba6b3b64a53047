package mcp

import (
	"context"
	"encoding/json"
	"log/slog"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// A Request is one request of a client, with the envelope that says which revision it speaks, who sent it and what it
// can do. Everything in it comes from the peer except Principal. A Request belongs to one call: handlers read it and
// do not keep it.
type Request struct {
	// Method is the method's name, such as "tools/call".
	Method string
	// ID is the request's id, exactly as it was sent.
	ID jsonrpc.ID
	// Params is the JSON object of the request's params, `_meta` included. Middleware may put another object in its place,
	// but does not write into it.
	Params json.RawMessage
	// Principal is the authenticated caller, nil when the transport authenticates nobody.
	Principal *Principal
	// Header holds the HTTP header of the request; nil on streams. It may be converted to http.Header.
	Header map[string][]string
	// Notify delivers a notification that belongs to this request to the side that made the request. params is a JSON
	// object. The side that serves the request calls it: at a server, the handler, possibly from several goroutines; at a
	// client, the transport, for each notification that it receives. It blocks while the other side is slow, and returns an
	// error if the notification cannot be delivered. Nil means that the request accepts no notifications.
	Notify func(ctx context.Context, method string, params json.RawMessage) error
	// HeaderParams are the arguments of a client's tools/call that an HTTP transport repeats in headers.
	HeaderParams []HeaderParam

	env      wire.Envelope
	server   *Server     // that answers; nil before one does
	first    *call       // room for one call; nil for none
	listen   *listenCall // receives a subscription that outlives its handler; nil if it must not
	detached *Detached   // nil for a client's own request
}

// NewRequest opens the envelope of a request message. The error is an [*Error] with code -32602 when params, `_meta`
// or one of its required members is missing or of the wrong type. The revision may be any that exists, or none:
// whoever receives messages decides which revisions it lets in. The request aliases msg.
//
// Spec: basic (2026-07-28), Request Metadata.
func NewRequest(msg *jsonrpc.Message) (*Request, error) {
	r := newServed()
	if err := r.env.Open(msg.Params); err != nil {
		return nil, err
	}
	if err := r.env.Complete(); err != nil {
		return nil, err
	}
	r.Method, r.ID, r.Params = msg.Method, msg.ID, msg.Params
	return r, nil
}

// newServed returns an empty request for a server, with room for the call that it becomes there.
func newServed() *Request {
	r := &struct {
		Request
		call call
	}{}
	r.first = &r.call
	return &r.Request
}

// Revision is the protocol revision that the request speaks, such as "2026-07-28".
func (r *Request) Revision() string { return r.env.VersionText }

// Client says what the client calls itself; the zero value when it does not say. It is the client's own word, fit for
// display and logs, never for decisions.
func (r *Request) Client() Implementation {
	var c Implementation
	if r.env.ClientInfo != nil {
		// A client that describes itself badly is only less well described.
		_ = jsonv2.Unmarshal(r.env.ClientInfo, &c)
	}
	return c
}

// Capabilities says what the client can do for this request, by its own declaration.
func (r *Request) Capabilities() ClientCapabilities {
	return parseClientCapabilities(r.env.Capabilities)
}

// LogLevel is the lowest level of log messages that the client wants for this request; empty when it wants none.
func (r *Request) LogLevel() LogLevel { return LogLevel(r.env.LogLevel) }

// Meta returns the raw JSON of one member of the request's `_meta`, such as "traceparent".
func (r *Request) Meta(key string) (json.RawMessage, bool) {
	if r.env.Meta == nil {
		return nil, false
	}
	v, ok := jsonscan.Get(r.env.Meta, key)
	return v, ok
}

// Param returns the raw JSON of one member of the request's params, such as "name".
func (r *Request) Param(key string) (json.RawMessage, bool) {
	return r.env.Member(r.Params, key)
}

// EncodeResult returns the JSON of a result of this request: its members, its `_meta` with the identity of the server, and
// its result type. It contains no line breaks.
func (r *Request) EncodeResult(res Result) (json.RawMessage, error) {
	return encodeResult(nil, res, r.frame())
}

// frame is what the server says of itself in each `_meta`; nil for no server.
func (r *Request) frame() []byte {
	if r.server == nil {
		return nil
	}
	return r.server.frame
}

// logger takes what goes wrong while the request is answered.
func (r *Request) logger() *slog.Logger {
	if r.server == nil {
		return slog.Default()
	}
	return r.server.log
}

// has reports whether the request's revision has a feature.
func (r *Request) has(f wire.Feature) bool { return r.env.Revision.Has(f) }

// A Principal is the authenticated caller of a request. Authorization middleware puts it into the context of the HTTP
// request; the transport hands it on as [Request.Principal]. A nil Principal is an anonymous caller.
//
// Issuer, Subject and ClientID together identify the principal: sessions, request state and subscriptions are bound to
// them and survive a new token for the same three. A Principal is not changed once it is in a context.
type Principal struct {
	Issuer   string         // who vouches for Subject
	Subject  string         // the user or machine
	ClientID string         // the application that acts for it
	Scopes   []string       // what the token allows
	Claims   map[string]any // further verified claims
}

// Key identifies the principal in one string: equal for two tokens of the same caller, different for different
// callers. It is empty for nil.
func (p *Principal) Key() string {
	if p == nil {
		return ""
	}
	// NUL cannot stand in any of the three, so no two principals share a key.
	return p.Issuer + "\x00" + p.Subject + "\x00" + p.ClientID
}

type principalKey struct{}

// WithPrincipal returns a context that carries the authenticated caller. It is for authorization middleware.
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns the authenticated caller of the context, or nil.
func PrincipalFrom(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}
