package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"strconv"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/uritemplate"
)

// A Request is a request of a client, with the revision, the client's identity and capabilities.
// Everything except Principal comes from the client. Handlers must not change a Request, or keep it
// after the call.
type Request struct {
	// Method is the name of the method, such as "tools/call".
	Method string
	// ID is the id of the request, as it was sent.
	ID jsonrpc.ID
	// Params is the JSON object of the params, including `_meta`. Middleware may assign other
	// params, but must not write to their bytes.
	Params json.RawMessage
	// Principal is the authenticated caller, nil if the transport does not authenticate.
	Principal *Principal
	// Header is the HTTP header of the request, convertible to http.Header; nil on streams.
	Header map[string][]string
	// Notify is for the notifications that the server sends before it responds to this request;
	// params must be a JSON object.
	//
	// In a server, the handler calls Notify to send a notification, unless Notify is nil. It blocks
	// while the stream is full, fails when the stream is closed, and is safe for concurrent use.
	// Middleware may assign another function before it calls the handler.
	//
	// In a client, the [Transport] calls Notify for each notification that it receives, unless it
	// is nil.
	Notify func(ctx context.Context, method string, params json.RawMessage) error
	// HeaderParams are the arguments of a client's tools/call that an HTTP transport repeats in
	// headers.
	HeaderParams []driver.HeaderParam

	env      driver.Request
	server   *Server     // nil before a server serves the request
	listen   *listenCall // receives a subscription that outlives its handler; nil if the subscription must not
	detached *Detached   // nil for a request of a client
	plain    *Server     // a server whose result is only encoded: no other handler sees it; may be nil
}

// maxURI limits a resource URI.
const maxURI = uritemplate.MaxLength

// NewRequest returns the request of a message. The error is an [*Error] with code -32602 if params,
// `_meta` or a required member of `_meta` is missing or has the wrong type. The revision is not
// checked: the caller must decide which revisions it accepts. The request aliases msg.
//
// Spec: basic (2026-07-28), Request Metadata.
func NewRequest(msg *jsonrpc.Message) (*Request, error) {
	r := &Request{Method: msg.Method, ID: msg.ID, Params: msg.Params}
	if err := cmp.Or(r.env.Open(msg.Params), r.env.Complete()); err != nil {
		return nil, err
	}
	return r, nil
}

// Revision returns the protocol revision of the request, such as "2026-07-28".
func (r *Request) Revision() string { return r.env.VersionText }

// ClientInfo returns the name and version of the client, or the zero value. They are a claim of the
// client, for display and logs, not for decisions.
func (r *Request) ClientInfo() Implementation {
	var c Implementation
	_ = jsonv2.Unmarshal(r.env.ClientInfo, &c) // members that cannot be decoded stay empty
	return c
}

// Capabilities returns the capabilities that the client declared for this request.
func (r *Request) Capabilities() ClientCapabilities {
	return parseClientCapabilities(r.env.Capabilities)
}

// LogLevel returns the lowest level of log messages that the client asked for, or "".
func (r *Request) LogLevel() LoggingLevel { return LoggingLevel(r.env.LogLevel) }

// Meta returns the raw JSON of a member of the request's `_meta`, such as "traceparent". It returns
// false for a trace context (traceparent, tracestate and baggage) that violates the W3C format.
//
// Spec: basic (2026-07-28), _meta.
func (r *Request) Meta(key string) (json.RawMessage, bool) {
	if r.env.Meta == nil {
		return nil, false
	}
	v, ok := jsonscan.Get(r.env.Meta, key)
	if !ok || !wire.ValidTraceContext(key, v) {
		return nil, false
	}
	return v, true
}

// Param returns the raw JSON of a member of the request's params, such as "name".
func (r *Request) Param(key string) (json.RawMessage, bool) { return r.env.Member(r.Params, key) }

// EncodeResult returns the JSON of a result of this request: its members, its `_meta` with the
// identity of the server, and its result type. It contains no line breaks.
func (r *Request) EncodeResult(res Result) (json.RawMessage, error) {
	return encodeResult(nil, res, r.server, 0, nil)
}

// form returns the revision of a session if the result needs only its own members: the method is of
// the core protocol, and the revision lacks result types and cache hints. Otherwise it returns zero.
// A discover result always contains all members.
func (r *Request) form() wire.Revision {
	if r.has(wire.ResultType) || r.Method == wire.MethodDiscover || !coreMethod(r.Method) {
		return 0
	}
	return r.env.Revision
}

// isChecked reports whether a result is the same memory as the result that is known to be valid,
// and not only equal to it.
func (r *Request) isChecked(raw RawResult) bool {
	return len(raw) > 0 && len(raw) == len(r.env.Valid) && &raw[0] == &r.env.Valid[0]
}

func (r *Request) logger() *slog.Logger {
	if r.server == nil {
		return slog.Default()
	}
	return r.server.log
}

func (r *Request) has(f wire.Feature) bool { return r.env.Revision.Has(f) }

// A Principal is the authenticated caller of a request. Authorization middleware puts it into the
// context of the HTTP request, and the transport copies it to [Request.Principal]. A nil Principal
// is an anonymous caller.
//
// Issuer, Subject and ClientID identify the principal: sessions, request state and subscriptions
// are bound to these three fields and remain valid with a new token for the same values. A
// Principal in a context must not be changed.
type Principal struct {
	Issuer   string         // the authority that authenticated Subject
	Subject  string         // the user or machine
	ClientID string         // the application that acts for Subject
	Scopes   []string       // the permissions of the token
	Claims   map[string]any // further verified claims
}

// Key returns a string that identifies Issuer, Subject and ClientID, such as for a map: it is equal
// for two tokens of the same caller. The keys of two applications of a user differ; to store data
// per user, use Issuer and Subject instead. The key of nil is empty.
func (p *Principal) Key() string {
	if p == nil {
		return ""
	}
	// The lengths keep different principals apart, whatever characters the fields contain.
	key := make([]byte, 0, len(p.Issuer)+len(p.Subject)+len(p.ClientID)+len("999:999:999:"))
	for _, part := range [...]string{p.Issuer, p.Subject, p.ClientID} {
		key = append(append(strconv.AppendInt(key, int64(len(part)), 10), ':'), part...)
	}
	return string(key)
}

type principalKey struct{}

// WithPrincipal returns a context that carries the authenticated caller. It is for authorization
// middleware, and for clients of [InMemory].
func WithPrincipal(ctx context.Context, p *Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// PrincipalFrom returns the authenticated caller of the context, or nil. In a handler of an MCP
// request it equals [RequestFrom](ctx).Principal; HTTP middleware can use only PrincipalFrom.
func PrincipalFrom(ctx context.Context) *Principal {
	p, _ := ctx.Value(principalKey{}).(*Principal)
	return p
}

// coreMethod reports whether the core protocol defines the method. Tasks belong to an extension.
func coreMethod(method string) bool {
	switch method {
	case wire.MethodTasksGet, wire.MethodTasksResult, wire.MethodTasksList, wire.MethodTasksCancel:
		return false
	}
	return wire.InAnyRevision(method)
}
