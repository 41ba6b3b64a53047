package mcphttp

import (
	"net"
	"net/http"

	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// An httpVia is an HTTP request that carries a request of a client.
type httpVia http.Request

// Via is for [mcp.Request.Via].
func (r *httpVia) Via() driver.Via {
	v := driver.Via{Network: "tcp", Protocol: "http", ProtocolVersion: "1.1", Peer: r.RemoteAddr}
	switch {
	case r.ProtoMajor > 1:
		v.ProtocolVersion = "2"
	case r.ProtoMinor == 0:
		v.ProtocolVersion = "1.0"
	}
	ctx := (*http.Request)(r).Context()
	if addr, ok := ctx.Value(http.LocalAddrContextKey).(net.Addr); ok && addr.Network() == "unix" {
		v.Network = "unix"
	}
	return v
}

// Via is for [mcp.Request.Via].
func (t *Transport) Via() driver.Via {
	return driver.Via{Sent: true, Network: "tcp", Protocol: "http", Peer: t.target.Host}
}
