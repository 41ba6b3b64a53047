package mcp

import "context"

// Functions that package mcphttp calls by internal/mcpint.
var (
	AppendResponse = appendResponse
	AppendResult   = appendResult
)

// NewDialTransport returns a Transport that dials again when its Conn has ended, as that of Command.
func NewDialTransport(dial func(context.Context) (Conn, error)) Transport {
	t := &connTransport{}
	t.init(dial)
	return t
}
