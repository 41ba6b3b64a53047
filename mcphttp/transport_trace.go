package mcphttp

import (
	"maps"
	"net/http"
	"slices"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Trace is for [mcp.Trace]. It must be called before the transport is used. f is called from
// several goroutines.
func (t *Transport) Trace(f func(mcp.Frame)) {
	before := t.trace
	t.trace = func(frame mcp.Frame) {
		if before != nil {
			before(frame)
		}
		f(frame)
	}
}

func (x *clientExchange) traceSent(method string, header http.Header, m *jsonrpc.Message) {
	if x.t.trace != nil {
		x.t.trace(mcp.Frame{Sent: true, Message: m, Method: method, Header: publicHeader(header)})
	}
}

func (x *clientExchange) traceReceived(m *jsonrpc.Message) {
	if x.t.trace != nil {
		x.t.trace(mcp.Frame{Message: m, Method: x.verb, Status: x.res.StatusCode, Header: publicHeader(x.res.Header)})
	}
}

// publicHeaders are the headers whose values are not secret. A list of secret headers could never
// be complete. Mcp-Session-Id is not among them: it gives access to the session.
var publicHeaders = []string{
	"Accept", "Accept-Encoding", "Allow", "Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Date",
	"Retry-After", "Server", "Transfer-Encoding", "User-Agent", "Vary", "Www-Authenticate",
	headerVersion, headerMethod, headerName, headerLastEvent,
}

func publicHeader(header http.Header) http.Header {
	isCopy := false // made only to hide a value
	public := header
	for name := range header {
		if slices.Contains(publicHeaders, name) || slices.Contains(publicHeaders, http.CanonicalHeaderKey(name)) {
			continue
		}
		if !isCopy {
			public, isCopy = maps.Clone(header), true
		}
		public[name] = []string{"[hidden]"}
	}
	return public
}
