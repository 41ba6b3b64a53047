// Package mcp is the Model Context Protocol: servers that offer tools, resources and prompts to AI applications, and the
// clients that reach them.
//
// # Servers
//
// A tool is an ordinary function. Its schemas come from its types, and its arguments are checked before it runs:
//
//	s := mcp.NewServer("calc", "1.0.0", nil)
//	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two integers."},
//		func(ctx context.Context, in Sum) (int, error) { return in.A + in.B, nil })
//	err := s.Run(ctx, mcp.Stdio())
//
// An error of the function is a failed call that the model reads and may mend. An [*Error] is a protocol error. A panic
// costs one call. [AddResource], [AddResourceTemplate], [AddFS] and [AddPrompt] offer the rest; each gives a
// [Registration] that changes or removes the feature while clients are connected.
//
// Inside a handler the context is the call: [RequestFrom] says who calls, [Progress] tells how far it is, [Logger] logs
// to the client. The context ends when the client cancels ([ErrCancelled]), goes away ([ErrDisconnected]) or the server
// shuts down ([ErrShutdown]).
//
// # Schemas
//
// The JSON Schema of what a function takes and gives is derived from its type. A struct is an object without further
// properties, its fields in their order under the names of their `json` tags. A field is required unless it is a
// pointer, has omitempty or omitzero, or has a default; optional is not nullable, and a nil slice is []. Slices are
// arrays, maps with string keys are objects, time.Time is a string of the format date-time, []byte is base64, and a type
// with a method Enum() []T has those values. A recursive type refers to itself.
//
// A `jsonschema` tag holds a description, and after it options: key=value, each behind a comma. A comma that no key=value
// follows belongs to the description:
//
//	Size  string `json:"size" jsonschema:"how large, roughly,enum=s|m|l,default=m"`
//	Count int    `json:"count,omitempty" jsonschema:"how many,minimum=1,maximum=50"`
//
// The keys are title, description, enum and titles (values apart by |), default, minimum, maximum, exclusiveMinimum,
// exclusiveMaximum, multipleOf, minLength, maxLength, pattern, format, minItems, maxItems, uniqueItems and header (the
// argument is repeated in the HTTP header Mcp-Param-…). A key that is none of them, or does not fit the type, panics at
// registration. A schema given by hand in [Tool] wins over all of it.
//
// # Asking the client
//
// [Ask], [AskURL], [Sample] and [Roots] put a question to the client's user, its model, or the client itself, and give
// the answer; [AskAll] asks several at once. A handler reads like a function that waits:
//
//	ok, err := mcp.Ask[bool](ctx, "confirm", "Deploy to production?", nil)
//
// It does not wait. The first time, Ask returns an error, the handler returns, and the client is told what is asked. It
// sends its request again with the answer, and the handler runs from its start, this time with the answer at hand. So
// the code before a question runs again: it has no effects, or stands in [Once]. The key names the question and is the
// same in each run. What was answered travels with the client, sealed, so any replica of the server can go on.
//
// # Clients
//
// A [Client] is one connection to one server. [Connect] finds out which revision the server speaks; after that all servers
// look the same:
//
//	c, err := mcp.Connect(ctx, mcp.Command("npx", "-y", "@modelcontextprotocol/server-everything"), nil)
//	defer c.Close()
//	for tool, err := range c.Tools(ctx) { … }
//	sum, err := mcp.Call[int](ctx, c, "get-sum", map[string]any{"a": 1, "b": 2})
//
// [Command] starts a child process, [InMemory] is a server in this process, [OverConn] takes any stream, and
// mcphttp.NewTransport reaches a URL. [ClientOptions] holds the functions that answer a server's questions; setting one
// declares its capability. [WithCallOptions] sets progress and timeouts for single requests. [Client.Listen] gives changes
// at the server as a loop.
//
// An error is an [*Error] if the server said it, a [*ToolError] if a tool failed, and a [*TransportError] if there is no
// answer; that one says whether the request may have run, which decides whether it is safe to repeat.
//
// # Transports
//
// [Stdio] serves a client that started this process, [Pipe] connects within it, [NewStream] speaks over any stream of
// bytes. HTTP is in package mcphttp, so that a server on stdio does not link it. A [Conn] is all that a further
// transport on streams needs; a server's that is not a stream calls a [Handler] itself, through [NewRequest] and
// [Answer], and a client's is a [Transport].
//
// # Extensions
//
// An extension is written on this package alone. On a server it declares itself with [Server.AddExtension], answers methods of
// its own with [Server.HandleMethod], stands around all others with [Server.Use], and tells of changes with
// [Server.AddTopic]. [Request.Detach] lets it carry a call on when the client has long had an answer. On a client it is
// [ClientOptions.Extensions] and a [Middleware], which finds its client with [ClientFrom] and listens with
// [Filter].Topics.
//
// # Revisions
//
// A server answers clients of every published revision and need not know which: whatever a client's revision lacks is
// translated or left out on the way. [Request.Revision] tells it all the same. What cannot be translated, such as a
// form that an old client cannot show, is an error of the call that says so.
//
// # Security
//
// Everything from a peer is checked and bounded. Errors that are not meant for the peer are logged and leave as
// "internal error". [ServerOptions.Visible] hides features from callers who may not use them. What travels with the
// client is encrypted and bound to the caller, the method and the arguments.
//
// A client takes what servers send for as hostile as a server takes what clients send: sizes, counts, rounds and times
// are bounded, schemas are never fetched, child processes get a short list of environment variables, and nothing is
// opened or shown to a user but by a function of the caller's.
package mcp
