package config

import (
	"net"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// isAddress reports whether text is host:port, with a port to listen on: 0 is a free one.
func isAddress(text string) bool {
	host, port, err := net.SplitHostPort(text)
	return err == nil && host != "" && (port == "0" || netx.IsPort(port))
}

// ops returns the member ops: an address, empty for none. It is not that of the gateway, whose clients
// would see the metrics, and with profiles it is one of loopback.
func (r *settingsReader) ops(ops, listen string, pprof bool) string {
	switch host, _, _ := net.SplitHostPort(ops); {
	case ops == "":
	case !isAddress(ops):
		r.problem("/ops", "got %.64q, want host:port, such as \"127.0.0.1:9464\"", ops)
	case ops == listen:
		r.problem("/ops", "got %q, which is also listen: want another port, which clients do not use", ops)
	case pprof && !netx.IsLoopback(host):
		r.problem("/pprof", "got true, and other machines reach ops, %q: want a loopback address for profiles", ops)
	}
	return ops
}
