// Package mcphttp carries the Model Context Protocol over HTTP.
//
// # Servers
//
// A [Handler] serves an [mcp.Handler], such as an [mcp.Server], on one endpoint:
//
//	s := mcp.NewServer("calc", "1.0.0", nil)
//	http.Handle("/mcp", mcphttp.NewHandler(s, nil))
//
// or, with a server of its own that has safe timeouts and ends in good order:
//
//	err := mcphttp.ListenAndServe(ctx, ":8080", "/mcp", mcphttp.NewHandler(s, nil))
//
// There is nothing to choose: clients of every revision are served on the one endpoint, each request by what it says of
// itself. A request that carries its envelope is answered from that alone. A client that sends initialize gets a
// session, with everything that its revision has: streams of its own, resumption, batches. A client of the first
// revision, which connects with GET, gets the event stream and the address that it expects.
//
// Answers are JSON. One becomes an event stream as soon as something is sent before it: progress, a log message, or a
// question to a client that has a session.
//
// # Clients
//
// A [Transport] takes an [mcp.Client] to a server, of whatever revision that is:
//
//	c, err := mcp.Connect(ctx, mcphttp.NewTransport("https://example.com/mcp", nil), nil)
//
// Connections, proxies and authorization are those of an http.Client, which [TransportOptions] may bring along. Redirects
// are not followed but for a GET within the origin, and everything that a server sends is bounded.
//
// # Connections that break
//
// A request that carries its envelope ends with its connection: the context of the handler is cancelled, with
// [mcp.ErrDisconnected] as the cause. A request of a session does not: the call goes on, and what it sends is kept in
// an [EventStore] for the client that comes back. Such a client cancels with a message, if at all. A Transport does all
// of this by itself, and says of a request that remains without an answer whether it may have run: see
// [mcp.TransportError].
//
// # Security
//
// Every request, whatever its method, passes the same guard first. A server at a loopback address answers only to
// localhost, which stops pages that point their own name there (DNS rebinding). A request with an Origin is refused
// unless the origin is the server's own or is listed in [Options.AllowedOrigins]; those are also given the CORS headers
// that they need. Bodies are read only when they are plain JSON, and within limits of size and time. Headers that repeat
// the body have to agree with it, and none that decides something may stand twice.
//
// Who the caller is, is for middleware around the Handler to find out; it says so with [mcp.WithPrincipal]. Sessions,
// their streams and their events belong to the principal that opened them, and do not exist for others. Such middleware
// has to let OPTIONS pass: browsers ask before they send credentials. Package oauth has it: oauth.Require.
//
// What only the handler can know, such as that a tool needs more than the caller's token allows, is an error of the
// handler that holds an [mcp.Error] and has a method
//
//	RefuseHTTP() (status int, challenges []string)
//
// The answer then has that status, if it is 401 or 403, and those values of WWW-Authenticate: in both eras, unless
// something of the call was sent before, or it is one of a batch.
//
// Every limit has a default that suits an open port; see [Options]. Turning a protection off takes an option with
// Insecure in its name.
package mcphttp
