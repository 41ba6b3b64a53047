package mcp

import "context"

// Functions of a [driver.Server].
var (
	AppendResult = appendResult
)

// NewDialTransport returns a Transport that dials again when its Conn has ended, as that of Command.
func NewDialTransport(dial func(context.Context) (Conn, error)) Transport {
	t := &connTransport{}
	t.init(dial)
	return t
}

// IsPlain reports whether the results of a server need not be copied for other handlers, and its
// subscriptions are served when they have returned.
func IsPlain(s *Server) bool { return plainServer(s) == s }

func AppendResponse(dst []byte, ctx context.Context, h Handler, req *Request) ([]byte, *Error) {
	return (&serverDriver{h}).AppendResponse(dst, ctx, req)
}
