// Package otelmcp records traces and metrics of servers and clients with OpenTelemetry.
//
//	o := otelmcp.New(nil) // uses the global providers of package otel
//	s := mcp.NewServer("calc", "1.0.0", &mcp.ServerOptions{Observer: o})
//	addTools(s)
//	transport = mcp.InMemory(s)
//	c, err := mcp.Connect(ctx, transport, &mcp.ClientOptions{Observer: o})
//
// It depends only on the API of OpenTelemetry. A program chooses the SDK, the exporters and the
// sampler.
//
// # Spans
//
// Each request is a span: of kind SERVER at a server, and CLIENT at a client. A request that asks
// for input is a span for each round. The name is the method, followed by the tool or prompt once a
// request for it succeeded; a sampler sees the name, the kind and the links. The span of the client
// is the parent of the server's span, by the members traceparent and tracestate of `_meta`, in
// every revision and over every transport. The span of an HTTP request is a link. Each run of a
// task is a separate trace, with a link to the span of the request that created the task.
//
// # Metrics
//
// The durations of requests and sessions are the histograms that the conventions define. Names of
// tools and prompts are labels if the server contains them, and methods if the protocol or the
// server defines them; other names share the label _OTHER. No session, URI or caller is a label.
//
// Names follow the semantic conventions for MCP, whose status is Development: they may change.
package otelmcp
