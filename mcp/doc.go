// Package mcp implements the Model Context Protocol: servers that offer tools, resources and
// prompts to AI applications, and the clients that use them.
//
// # Servers
//
// A tool is an ordinary function. Its input and output schemas are derived from its types, and its
// arguments are validated before it is called:
//
//	s := mcp.NewServer("calc", "1.0.0", nil)
//	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two integers."},
//		func(ctx context.Context, in Sum) (int, error) { return in.A + in.B, nil })
//	err := s.Run(ctx, mcp.Stdio())
//
// A result that is not text or a [ContentBlock] becomes structured content, with an output schema;
// [Structured] contains a value and content for the model. An error of the function becomes a tool
// error (isError) that the model can see and correct. An [*Error] becomes a protocol error. A panic
// fails one call. [AddResource], [AddResourceTemplate] (URI templates of RFC 6570), [AddFS] and
// [AddPrompt] register other features; a Complete function adds completion for their arguments.
// Each returns a [Registration], which changes or removes the feature while clients are connected
// and sends them the list changed notification. [SetTool] and its like return an error instead of a
// panic and replace a feature by its name.
//
// Inside a handler the context identifies the call: [RequestFrom] returns the request, [Progress]
// sends progress notifications, and [Logger] sends log messages to the client. The context ends
// when the client cancels ([ErrCancelled]) or disconnects ([ErrDisconnected]), and when the server
// shuts down ([ErrShutdown]).
//
// # Schemas
//
// The JSON Schema of an input or output type is derived by these rules. A struct is an object
// without additional properties; the `json` tags name its properties. A field is required unless it
// is a pointer, is tagged omitempty or omitzero, or declares a default; optional does not mean
// nullable, and a nil slice is []. Slices are arrays, maps with string keys are objects, time.Time
// is a string of the format date-time, []byte is base64, and a type with a method Enum() []T is an
// enum of the values that it returns. A recursive type refers to itself.
//
// A `jsonschema` tag contains a description, followed by options key=value, each after a comma. A
// comma that is not followed by key=value belongs to the description:
//
//	Size  string `json:"size" jsonschema:"how large, roughly,enum=s|m|l,default=m"`
//	Count int    `json:"count,omitempty" jsonschema:"how many,minimum=1,maximum=50"`
//
// The keys are title, description, enum and titles (values separated by |), default, minimum,
// maximum, exclusiveMinimum, exclusiveMaximum, multipleOf, minLength, maxLength, pattern, format,
// minItems, maxItems, uniqueItems and header (HTTP clients repeat the argument in the header
// Mcp-Param-…). Registration refuses an unknown key, a key that does not fit the type, and the
// words required, optional and nullable. A schema that is set in [Tool] takes precedence;
// jsonschema.For returns the derived schema.
//
// # Elicitation, sampling and roots
//
// [Ask] and [AskURL] ask the client's user (elicitation), [Sample] asks its language model
// (sampling), and [Roots] asks for the folders that the client works in. [AskAll] asks several
// questions at once. A handler looks like a function that waits for the answer:
//
//	ok, err := mcp.Ask[bool](ctx, "confirm", "Deploy to production?", nil)
//
// It does not wait. Without an answer, Ask returns an error, the handler returns, and the client
// receives the question: as a result to which it responds by repeating its request, or, before
// 2026-07-28, as a request of the server. Then the handler runs again from its start. The code
// before a question therefore runs more than once: it must be free of side effects or wrapped in
// [Once]. In 2026-07-28 the client carries the answers so far as encrypted request state, so that
// any replica with the same [ServerOptions].StateKeys can continue.
//
// # Clients
//
// A [Client] is one connection to one server. [Connect] determines which revision the server
// implements; from then on the same calls work with all servers:
//
//	c, err := mcp.Connect(ctx, mcp.Command("npx", "-y", "@modelcontextprotocol/server-everything"), nil)
//	if err != nil {
//		return err
//	}
//	defer c.Close()
//	tools, err := mcp.Collect(c.Tools(ctx))
//	text, err := mcp.CallTool[string](ctx, c, "get-sum", map[string]any{"a": 1, "b": 2})
//
// [Command] starts a child process, [InMemory] is a server in this process, [NewConnTransport] uses
// any stream, and mcphttp.NewTransport connects to a URL. [ClientOptions] contains the functions
// that handle a server's elicitation and sampling requests; setting such a function declares the
// capability. [WithCallOptions] sets progress handlers and timeouts of single requests.
// [Client.Listen] opens a subscription and returns the server's notifications as an iterator.
//
// An error is a [*ToolError] if a tool failed, a [*TransportError] if there is no response or an
// HTTP status such as 403, and otherwise an [*Error] if the server returned it; see [Client]. The
// TransportError reports whether the request may have run, and so whether it is safe to repeat. In
// older revisions some errors differ in code or type: invalid arguments (see [AddTool]), a
// capability that the client did not declare, and the failure of a function such as Elicit.
//
// # Transports
//
// [Stdio] serves the client that started this process, [Pipe] connects within the process, and
// [NewStreamConn] uses any stream of bytes. HTTP is in package mcphttp, so that a server on stdio
// does not link it. A custom transport on streams implements [Conn]; package driver describes
// others.
//
// # Extensions
//
// Extensions are written on this package alone. On a server an extension declares itself with
// [Server.AddExtension], serves methods with [Server.HandleMethod], wraps all others with
// [Server.Use], and adds notifications to subscriptions with [Server.AddTopic]. [Request.Detach]
// lets it continue a call after the client received a response. On a client it is
// [ClientOptions.Extensions] and a [Middleware], which finds its client with [ClientFrom] and
// subscribes with [SubscriptionFilter].Topics.
//
// # Revisions
//
// A server answers clients of every published revision, and its code does not depend on the
// revision: features that the client's revision lacks are translated or left out. Sessions exist in
// revisions before 2026-07-28 only, and below this API. [Request.Revision] returns the revision of
// a request. A feature that cannot be translated, such as a form for a client whose revision lacks
// elicitation, is an error of the call.
//
// # Security
//
// All input of clients is validated and bounded. Errors that are not meant for a client are logged
// and sent as "internal error". [ServerOptions.Visible] hides features from callers that may not
// use them. Request state is encrypted, and bound to the caller, the method and the arguments.
//
// A client treats servers as hostile, as a server does clients: sizes, counts and times are
// bounded, schemas are never fetched, child processes get a short list of environment variables,
// and nothing is opened or shown to a user except by a function of the application.
package mcp
