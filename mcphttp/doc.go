// Package mcphttp carries the Model Context Protocol over HTTP.
//
// # Servers
//
// A [Handler] serves an [mcp.Handler], such as an [mcp.Server], on an endpoint:
//
//	s := mcp.NewServer("calc", "1.0.0", nil)
//	http.Handle("/mcp", mcphttp.NewHandler(s, nil))
//
// or, with an HTTP server with safe timeouts and shuts down gracefully:
//
//	err := mcphttp.ListenAndServe(ctx, addr, "/mcp", mcphttp.NewHandler(s, nil))
//
// The endpoint serves clients of every revision. A request of revision 2026-07-28, whose
// `_meta` names its revision and the client's capabilities, is served without a session. A client
// that sends initialize gets a session with the features of its revision: streams, resumption,
// batches. A client of revision 2024-11-05, which connects with GET, gets the event stream and the
// endpoint of that transport.
//
// Responses are JSON. A response becomes an event stream as soon as something is sent before it:
// progress, a log message, or a request to a client with a session. The first event after a
// pause is written at once; events that follow closely share writes.
//
// # Clients
//
// A [Transport] connects an [mcp.Client] to a server of any revision:
//
//	c, err := mcp.Connect(ctx, mcphttp.NewTransport(url, nil), nil)
//
// Connections, proxies and authorization are those of an http.Client, which [TransportOptions] can
// set. Redirects are not followed, except for a GET within the origin. Everything that a server
// sends is limited in size.
//
// # Connections that break
//
// A request of revision 2026-07-28 ends with its connection: the context of the handler is
// canceled with the cause [mcp.ErrDisconnected]. A request of a session continues, and its messages
// are kept in an [EventStore] until the client resumes the stream; to cancel it, clients send a
// notification. A Transport resumes streams by itself. If a request receives no response, its error
// reports whether the request may have run: see [mcp.TransportError].
//
// # Security
//
// Every request passes the same checks first. A server at a loopback address accepts only local
// host names, which prevents DNS rebinding. A request with an Origin is refused unless the origin
// is the server's own or is listed in [Options.AllowedOrigins]; listed origins also get CORS
// headers. Bodies must be JSON, within limits of size and time. Headers that repeat values of the
// body must agree with it, and headers that affect routing or authentication must not occur twice.
//
// Middleware around the Handler authenticates the caller and calls [mcp.WithPrincipal]; package
// oauth contains such a middleware, oauth.Require. It must let OPTIONS pass, since browsers send
// CORS preflights without credentials. A session, its streams and their events belong to the
// principal that opened it, and do not exist for others.
//
// A handler can respond with an HTTP challenge, for instance if a tool needs a scope that the token
// lacks. It returns an error that wraps an [mcp.Error] and provides the method
//
//	RefuseHTTP() (status int, challenges []string)
//
// If the status is 401 or 403, the response contains that status and the values of
// WWW-Authenticate. This does not apply to a call that sent something before, or to a request of a
// batch.
//
// The default of every limit suits an open port; see [Options]. A limit of sessions, subscriptions,
// requests or bytes applies to each principal and to all callers. Anonymous callers together get at
// most half of it, so that they cannot lock out principals; [Options.AnonymousKey] gives each of
// them a share. The status is 429 at the limit of a caller, and 503 at the limit of all callers.
// Every option that turns a protection off has Insecure in its name.
package mcphttp
