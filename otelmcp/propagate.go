package otelmcp

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"strings"

	"go.opentelemetry.io/otel/trace"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Members of `_meta` with the trace context. Spec: basic (2026-07-28), _meta; SEP-414.
const (
	traceParent = "traceparent"
	traceState  = "tracestate"
	baggage     = "baggage"
)

// Limits of these members, in bytes: the W3C specifies the length of a traceparent, and the length
// of the other members that every system must be able to pass on.
const (
	maxTraceParent = 55
	maxTraceState  = 512
	maxBaggage     = 8192
	// maxField bounds the members of other propagators.
	maxField = 512
)

func maxLength(key string) int {
	switch key {
	case traceParent:
		return maxTraceParent
	case baggage:
		return maxBaggage
	}
	return maxField
}

// A remoteSpan is the span of a client, as a parent.
type remoteSpan struct {
	trace.Span // without effects
	context    trace.SpanContext
}

var noSpan = trace.SpanFromContext(context.Background())

// SpanContext returns the ids of the span.
func (s *remoteSpan) SpanContext() trace.SpanContext { return s.context }

// parent returns the context whose span is the parent of a request that a server received, and
// options with the links to other spans.
//
// The parent is the client's span, by the trace context in `_meta`. A span that the context already
// contains, such as the span of the HTTP request, is a link, or the parent if `_meta` contains
// none. The roles are reversed for a question of a server, which must not choose the trace of a
// client.
func (o *Observer) parent(
	op *operation, req *mcp.Request, options []trace.SpanStartOption,
) (context.Context, []trace.SpanStartOption) {
	ambient := trace.SpanContextFromContext(op.Context)
	ctx := o.extract(op, req)
	remote := trace.SpanContextFromContext(ctx)
	sent := remote.IsValid() && !remote.Equal(ambient)
	var links []trace.Link
	link := func(sc trace.SpanContext) {
		if sc.IsValid() {
			links = append(links, trace.Link{SpanContext: sc})
		}
	}
	switch {
	case o.opts.PublicEndpoint || op.role == taskRun:
		if sent {
			link(remote)
		}
		link(ambient)
		ctx = op.Context // without the baggage of the client
		options = append(options[:len(options):len(options)], trace.WithNewRoot())
	case questions[req.Method] && ambient.IsValid(): // the call of the question, whatever the server claims
		if sent {
			link(remote)
		}
		ctx = op.Context
	case sent && ambient.SpanID() != remote.SpanID(): // in a single process the client's span is both
		link(ambient)
	}
	if len(links) > 0 {
		options = append(options[:len(options):len(options)], trace.WithLinks(links...))
	}
	return ctx, options
}

// extract returns the context with the span of the client.
func (o *Observer) extract(op *operation, req *mcp.Request) context.Context {
	if o.opts.Propagator != nil {
		return o.opts.Propagator.Extract(op.Context, carrier{req, o.opts.Propagator.Fields})
	}
	raw, _ := req.Meta(traceParent)
	c, ok := parseTraceParent(raw)
	if !ok {
		return op.Context
	}
	if state := (carrier{req: req}).Get(traceState); state != "" {
		c.TraceState, _ = trace.ParseTraceState(state)
	}
	op.remote = remoteSpan{noSpan, trace.NewSpanContext(c)}
	return trace.ContextWithSpan(op.Context, &op.remote)
}

// parseTraceParent parses a JSON string whose form was checked.
func parseTraceParent(raw []byte) (c trace.SpanContextConfig, ok bool) {
	if len(raw) != len(`""`)+maxTraceParent {
		return c, false
	}
	var flags [1]byte
	for _, part := range [...]struct {
		to   []byte
		from int
	}{{c.TraceID[:], 4}, {c.SpanID[:], 37}, {flags[:], 54}} {
		if _, err := hex.Decode(part.to, raw[part.from:part.from+2*len(part.to)]); err != nil {
			return c, false
		}
	}
	c.TraceFlags, c.Remote = trace.TraceFlags(flags[0])&(trace.FlagsSampled|trace.FlagsRandom), true
	return c, true
}

// inject writes the span of ctx into the `_meta` of a request.
func (o *Observer) inject(ctx context.Context, req *mcp.Request) {
	if o.opts.Propagator != nil {
		o.opts.Propagator.Inject(ctx, carrier{req, o.opts.Propagator.Fields})
		return
	}
	sc := trace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return
	}
	traceID, spanID := sc.TraceID(), sc.SpanID()
	flags := [1]byte{byte(sc.TraceFlags() & (trace.FlagsSampled | trace.FlagsRandom))}
	text := append(make([]byte, 0, len(`""`)+maxTraceParent), `"00-`...)
	text = append(hex.AppendEncode(text, traceID[:]), '-')
	text = append(hex.AppendEncode(text, spanID[:]), '-')
	text = append(hex.AppendEncode(text, flags[:]), '"')
	req.SetMeta(traceParent, text)
	state := sc.TraceState().String()
	if _, has := req.Meta(traceState); has || state != "" { // the state of another span must not stay
		carrier{req: req}.Set(traceState, state)
	}
}

// A carrier is the `_meta` of a request, for a propagator.
type carrier struct {
	req    *mcp.Request
	fields func() []string
}

// Get returns a member that is a string of a permitted length, or "".
func (c carrier) Get(key string) string {
	raw, ok := c.req.Meta(key)
	if !ok {
		return ""
	}
	var text string
	if json.Unmarshal(raw, &text) != nil || len(text) > maxLength(key) {
		return ""
	}
	return text
}

// Set sets a member, unless the key or the length is not permitted.
func (c carrier) Set(key, value string) {
	if len(value) > maxLength(key) || !isField(key) {
		return
	}
	if text, err := json.Marshal(value); err == nil {
		c.req.SetMeta(key, text)
	}
}

// Keys returns the members that the propagator reads.
func (c carrier) Keys() (keys []string) {
	for _, key := range c.fields() {
		if _, ok := c.req.Meta(key); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

// isField reports whether a key is a name without a prefix that `_meta` can contain, and is not
// reserved by the protocol.
func isField(key string) bool {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
	return key != "" && len(key) <= maxLabel && key != "progressToken" &&
		strings.Trim(key, letters+"0123456789-_.") == "" &&
		strings.Trim(key[:1]+key[len(key)-1:], letters+"0123456789") == ""
}
