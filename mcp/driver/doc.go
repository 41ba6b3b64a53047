// Package driver contains the contracts between package mcp and the programs that implement transports
// or forward messages, such as gateways: the interfaces of servers and forwarders, and the names of
// revisions, methods and notifications. Programs that only call or provide tools do not need it.
//
// A transport for servers obtains a [Server] once for its handler, makes a request of each message, and
// appends the response to a buffer of its own, or sends the message that Respond returns. It uses the
// optional interfaces of handlers, [Listener] and [HeaderParamHandler], and of observers,
// [SessionObserver] and [RefusalObserver]:
//
//	server := mcp.Driver(handler)
//	req, err := mcp.NewRequest(message)
//	if err != nil {
//		log.Fatal(err)
//	}
//	response, failure := server.AppendResponse(buffer, ctx, req)
//
// A transport for clients implements mcp.Transport, and also mcp.SessionTransport for servers of the
// revisions that have sessions; [SessionConn] carries the messages of one session. It may implement
// [IdentifiedTransport], and [Lifetime] if it owns a connection. Middleware and transports that wait for
// a person call [PauseTimeouts].
//
// A forwarder uses mcp.Forward, whose result is a [Forwarder]: it states for whom a request is made, so
// that clients that share a connection to a server cannot answer each other's questions. The program
// examples/forwarder is a complete host on these interfaces.
package driver
