package mcphttp

import (
	"net/http"
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A head holds the request headers that this package uses, and the charge of the body. The headers
// are collected in a single pass, since most of them are needed more than once.
type head struct {
	id                    field // of the session
	version, method, name field
	contentType, encoding string
	origin, fetchSite     field
	accept                []string
	lines, size           int    // of the whole header block
	repeated              string // a header that must not be repeated and is; may be empty
	body                  bodyCharge
	principal             *mcp.Principal // set for a POST that the guard admits, as body.caller
}

// A field is the first value of a header. It may be sent and empty.
type field struct {
	value string
	sent  bool
}

// read fills the head in place, since it is large.
func (h *head) read(r *http.Request) {
	h.size = len(r.RequestURI)
	for name, values := range r.Header {
		h.lines += len(values)
		for _, v := range values {
			h.size += len(name) + len(v) + len(": \r\n")
		}
		if len(values) > 1 && isUnique(name) {
			h.repeated = name
		}
		if len(values) > 0 {
			h.set(name, values)
		}
	}
}

// set stores the header with this canonical name, if the head contains it.
func (h *head) set(name string, values []string) {
	value := field{values[0], true}
	switch name {
	case headerSession:
		h.id = value
	case headerVersion:
		h.version = value
	case headerMethod:
		h.method = value
	case headerName:
		h.name = value
	case "Content-Type":
		h.contentType = value.value
	case "Content-Encoding":
		h.encoding = value.value
	case "Origin":
		h.origin = value
	case "Sec-Fetch-Site":
		h.fetchSite = value
	case "Accept":
		h.accept = values
	}
}

// isUnique reports whether a header must not be repeated: requests are routed, admitted or read by
// it.
func isUnique(name string) bool {
	switch name {
	case headerSession, headerVersion, headerLastEvent,
		"Authorization", "Content-Type", "Content-Encoding", "Host", "Origin", "Sec-Fetch-Site":
		return true
	}
	return mirrorsBody(name)
}

// mirrorsBody reports whether a header repeats a value of the body. Spec:
// basic/transports/streamable-http#server-validation (2026-07-28)
func mirrorsBody(name string) bool {
	return name == headerMethod || name == headerName || strings.HasPrefix(name, headerParam)
}
