package otelmcp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	otelbaggage "go.opentelemetry.io/otel/baggage"
	"go.opentelemetry.io/otel/propagation"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/otelmcp"
)

const parentID = "00f067aa0ba902b7"

// overHTTP runs body with a client of the server of newServer, over HTTP. wrap may be nil.
func overHTTP(t *testing.T, r *telemetry, wrap func(http.Handler) http.Handler,
	body func(ctx context.Context, t *testing.T, c *mcp.Client)) {
	t.Helper()
	h := mcphttp.NewHandler(newServer(t, r), nil)
	outer := http.Handler(h)
	if wrap != nil {
		outer = wrap(h)
	}
	web := httptest.NewServer(outer)
	defer web.Close()
	c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(web.URL, nil), &mcp.ClientOptions{Observer: r})
	if err != nil {
		t.Fatal(err)
	}
	body(t.Context(), t, c)
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if err := h.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// span returns the only ended span of a kind and name.
func (r *telemetry) span(t *testing.T, kind trace.SpanKind, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	var found sdktrace.ReadOnlySpan
	for _, s := range r.spans.Ended() {
		if s.SpanKind() == kind && s.Name() == name {
			if found != nil {
				t.Fatalf("two spans %s %s", kind, name)
			}
			found = s
		}
	}
	if found == nil {
		t.Fatalf("no span %s %s in:\n%s", kind, name, r.spansText(""))
	}
	return found
}

func TestHTTPSpanIsLinked(t *testing.T) {
	r := newTelemetry(t, nil)
	wrap := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			ctx, span := r.tracer.Start(req.Context(), "POST")
			defer span.End()
			next.ServeHTTP(w, req.WithContext(ctx))
		})
	}
	overHTTP(t, r, wrap, func(ctx context.Context, t *testing.T, c *mcp.Client) {
		mustCall(ctx, t, c, "add", map[string]int{"a": 1, "b": 2})
	})
	sent, served := r.span(t, trace.SpanKindClient, "tools/call add"), r.span(t, trace.SpanKindServer, "tools/call add")
	if served.Parent().SpanID() != sent.SpanContext().SpanID() || !served.Parent().IsRemote() {
		t.Errorf("the parent is %v, want the span of the client", served.Parent())
	}
	if links := served.Links(); len(links) != 1 || links[0].SpanContext.TraceID() == sent.SpanContext().TraceID() {
		t.Errorf("links %v, want one to the span of the HTTP request", links)
	}
}

// serve sends a call with a trace context to a server.
func serve(ctx context.Context, t *testing.T, o mcp.Observer, meta mcp.Meta) {
	t.Helper()
	c, err := mcp.Connect(t.Context(), mcp.InMemory(newServer(t, o)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mustCall(mcp.WithCallOptions(ctx, mcp.CallOptions{Meta: meta}), t, c, "add", map[string]int{"a": 1, "b": 2})
}

func TestSpansOfPublicEndpointsAreRoots(t *testing.T) {
	r := newTelemetry(t, &otelmcp.Options{PublicEndpoint: true}, sdktrace.ParentBased(sdktrace.AlwaysSample()))
	serve(t.Context(), t, r, mcp.Meta{"traceparent": strings.TrimSuffix(benchParent, "1") + "0"}) // not sampled
	s := r.span(t, trace.SpanKindServer, "tools/call add")
	if s.Parent().IsValid() {
		t.Errorf("parent %v, want none", s.Parent())
	}
	if links := s.Links(); len(links) != 1 || links[0].SpanContext.SpanID().String() != parentID {
		t.Errorf("links %v, want one to the span of the client", links)
	}
}

func TestClientDecidesAboutSampling(t *testing.T) {
	r := newTelemetry(t, nil)
	serve(t.Context(), t, r, mcp.Meta{"traceparent": strings.TrimSuffix(benchParent, "1") + "0"})
	for _, s := range r.spans.Ended() {
		if s.Name() == "tools/call add" {
			t.Errorf("span %s %s is sampled", s.SpanKind(), s.Name())
		}
	}
	serve(t.Context(), t, r, mcp.Meta{"traceparent": benchParent, "tracestate": "a=1,b=2"})
	s := r.span(t, trace.SpanKindServer, "tools/call add")
	if s.Parent().SpanID().String() != parentID || s.SpanContext().TraceState().String() != "a=1,b=2" {
		t.Errorf("parent %v", s.Parent())
	}
}

func TestInvalidTraceContextIsIgnored(t *testing.T) {
	for _, meta := range []mcp.Meta{
		nil,
		{"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"},
		{"traceparent": "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"},
		{"traceparent": "00-00000000000000000000000000000000-00f067aa0ba902b7-01"},
		{"traceparent": 7},
		{"tracestate": "a=1"},
	} {
		r := newTelemetry(t, nil)
		serve(t.Context(), t, r, meta)
		if s := r.span(t, trace.SpanKindServer, "tools/call add"); s.Parent().IsValid() {
			t.Errorf("%v: parent %v, want none", meta, s.Parent())
		}
	}
	r := newTelemetry(t, nil)
	long := strings.Repeat("a=1,", 1) + "b=" + strings.Repeat("x", 250) + ",c=" + strings.Repeat("y", 250) + ",d=1234"
	serve(t.Context(), t, r, mcp.Meta{"traceparent": benchParent, "tracestate": long})
	if s := r.span(t, trace.SpanKindServer, "tools/call add"); s.SpanContext().TraceState().Len() != 0 ||
		s.Parent().SpanID().String() != parentID {
		t.Errorf("parent %v with the state %q, want none of %d bytes", s.Parent(), s.SpanContext().TraceState(), len(long))
	}
}

// received returns the _meta members that a server gets from a client with an Observer.
func received(ctx context.Context, t *testing.T, r *telemetry, keys ...string) map[string]string {
	t.Helper()
	got := map[string]string{}
	s := newServer(t, nil)
	s.Use(func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			for _, key := range keys {
				if v, ok := req.Meta(key); ok && req.Method == "tools/call" {
					got[key] = string(v)
				}
			}
			return next.ServeMCP(ctx, req)
		})
	})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(s), &mcp.ClientOptions{Observer: r})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	mustCall(ctx, t, c, "add", map[string]int{"a": 1, "b": 2})
	return got
}

// The trace context of CallOptions.Meta is that of the caller. It is replaced by the span of the client, which
// continues it if its context has no span and this is not a public endpoint.
func TestClientReplacesTraceContext(t *testing.T) {
	for name, test := range map[string]struct {
		opts   otelmcp.Options
		within bool // a span
		state  string
	}{
		"continued": {state: `"a=1"`}, "of another span": {within: true, state: `""`},
		"public": {opts: otelmcp.Options{PublicEndpoint: true}, state: `""`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newTelemetry(t, &test.opts)
			ctx := mcp.WithCallOptions(t.Context(), mcp.CallOptions{Meta: mcp.Meta{
				"traceparent": benchParent, "tracestate": "a=1", "example.com/x": 1}})
			if test.within {
				var span trace.Span
				ctx, span = r.tracer.Start(ctx, "app")
				defer span.End()
			}
			got := received(ctx, t, r, "traceparent", "tracestate", "baggage", "example.com/x")
			span := r.span(t, trace.SpanKindClient, "tools/call add")
			sent := span.SpanContext()
			want := `"00-` + sent.TraceID().String() + "-" + sent.SpanID().String() + `-01"`
			if got["traceparent"] != want || got["tracestate"] != test.state || got["example.com/x"] != "1" {
				t.Errorf("the server has received %v, want traceparent %s and state %s", got, want, test.state)
			}
			if continued := span.Parent().SpanID().String() == parentID; continued != (name == "continued") {
				t.Errorf("the parent of the span is %v", span.Parent())
			}
		})
	}
}

func TestBaggageIsSentByItsPropagatorOnly(t *testing.T) {
	member, err := otelbaggage.NewMember("user", "ann")
	if err != nil {
		t.Fatal(err)
	}
	b, err := otelbaggage.New(member)
	if err != nil {
		t.Fatal(err)
	}
	ctx := otelbaggage.ContextWithBaggage(t.Context(), b)
	if got := received(ctx, t, newTelemetry(t, nil), "baggage"); len(got) > 0 {
		t.Errorf("the server has received %v", got)
	}
	both := propagation.NewCompositeTextMapPropagator(propagation.TraceContext{}, propagation.Baggage{})
	r := newTelemetry(t, &otelmcp.Options{Propagator: both})
	if got := received(ctx, t, r, "baggage", "traceparent"); got["baggage"] != `"user=ann"` || got["traceparent"] == "" {
		t.Errorf("the server has received %v, want the baggage and a traceparent", got)
	}
	seen := ""
	s := mcp.NewServer("x", "1", &mcp.ServerOptions{Observer: r})
	mcp.AddTool(s, &mcp.Tool{Name: "who"}, func(ctx context.Context, _ struct{}) (string, error) {
		seen = otelbaggage.FromContext(ctx).Member("user").Value()
		return seen, nil
	})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(s), &mcp.ClientOptions{Observer: r})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if mustCall(ctx, t, c, "who", nil); seen != "ann" {
		t.Errorf("the handler sees the user %q", seen)
	}
}

// An odd propagator must not break requests.
func TestMembersOfPropagatorsAreChecked(t *testing.T) {
	r := newTelemetry(t, &otelmcp.Options{Propagator: oddPropagator{}})
	got := received(t.Context(), t, r, "b3", "progressToken", "bad key", "io.modelcontextprotocol/protocolVersion")
	if got["b3"] != `"1-2"` || got["progressToken"] != "" || got["io.modelcontextprotocol/protocolVersion"] != `"2026-07-28"` {
		t.Errorf("the server has received %v", got)
	}
}

type oddPropagator struct{}

func (oddPropagator) Inject(_ context.Context, c propagation.TextMapCarrier) {
	for key, value := range map[string]string{"b3": "1-2", "progressToken": "9", "bad key": "x", "": "x", "-x": "y",
		"io.modelcontextprotocol/protocolVersion": "1999", "long": strings.Repeat("x", 9000)} {
		c.Set(key, value)
	}
	_ = c.Keys()
}
func (oddPropagator) Extract(ctx context.Context, c propagation.TextMapCarrier) context.Context {
	_ = c.Get("b3")
	return ctx
}
func (oddPropagator) Fields() []string { return []string{"b3"} }

func TestOptionalAttributes(t *testing.T) {
	for _, on := range []bool{false, true} {
		r := newTelemetry(t, &otelmcp.Options{Arguments: on, SessionIDs: on})
		h := mcphttp.NewHandler(newServer(t, r), nil)
		web := httptest.NewServer(h)
		c, err := mcp.Connect(t.Context(), mcphttp.NewTransport(web.URL, nil), &mcp.ClientOptions{Revision: "2025-06-18"})
		if err != nil {
			t.Fatal(err)
		}
		mustCall(t.Context(), t, c, "add", map[string]int{"a": 1, "b": 2})
		_ = c.Close()
		if err := h.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		web.Close()
		attrs := map[attribute.Key]string{}
		for _, a := range r.span(t, trace.SpanKindServer, "tools/call add").Attributes() {
			attrs[a.Key] = a.Value.String()
		}
		if _, has := attrs["gen_ai.tool.call.arguments"]; has != on || on && attrs["gen_ai.tool.call.arguments"] != `{"a":1,"b":2}` {
			t.Errorf("arguments %q", attrs["gen_ai.tool.call.arguments"])
		}
		if n := len(attrs["mcp.session.id"]); on && n != 26 || !on && n != 16 {
			t.Errorf("session %q with SessionIDs %v", attrs["mcp.session.id"], on)
		}
	}
}

// A server must not choose the trace of a client.
func TestQuestionBelongsToTraceOfItsCall(t *testing.T) {
	s := mcp.NewServer("s", "1", nil)
	s.Use(func(next mcp.Handler) mcp.Handler {
		return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			if _, answered := req.Param("inputResponses"); req.Method != "tools/call" || answered {
				return next.ServeMCP(ctx, req)
			}
			return &mcp.InputRequiredResult{InputRequests: map[string]mcp.InputRequest{"roots": {
				Method: "roots/list", Params: []byte(`{"_meta":{"traceparent":"` + benchParent + `"}}`)}}}, nil
		})
	})
	addTools(s)
	r := newTelemetry(t, nil)
	c, err := mcp.Connect(t.Context(), mcp.InMemory(s), &mcp.ClientOptions{Observer: r,
		Roots: func(context.Context) ([]mcp.Root, error) { return nil, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r.within(t.Context(), "app", func(ctx context.Context) { mustCall(ctx, t, c, "add", map[string]int{"a": 1, "b": 2}) })
	app, question := r.span(t, trace.SpanKindInternal, "app"), r.span(t, trace.SpanKindServer, "roots/list")
	if question.Parent().SpanID() != app.SpanContext().SpanID() {
		t.Errorf("the parent is %v, want the span of the program", question.Parent())
	}
	if links := question.Links(); len(links) != 1 || links[0].SpanContext.SpanID().String() != parentID {
		t.Errorf("links %v, want one to the span that the server names", links)
	}
}
