package mcphttp

import (
	"net/http"
	"strings"
)

// A head is what the header of a request says to this package, read in one pass: most of it decides something more than
// once.
type head struct {
	id                    field // of the session
	version, method, name field
	contentType, encoding field
	origin, fetchSite     field
	accept                []string
	lines, size           int    // of the whole header block
	twice                 string // a header that decides something and stands twice; empty if none does
}

// A field is the first value of a header. It may be there and be empty.
type field struct {
	value string
	sent  bool
}

// read reads it in place: it is too large to be handed back.
func (h *head) read(r *http.Request) {
	h.size = len(r.RequestURI)
	for name, values := range r.Header {
		h.lines += len(values)
		for _, v := range values {
			h.size += len(name) + len(v) + len(": \r\n")
		}
		if len(values) > 1 && decides(name) {
			h.twice = name
		}
		if len(values) > 0 {
			h.note(name, values)
		}
	}
}

// note keeps the header of this canonical name, if anything here goes by it.
func (h *head) note(name string, values []string) {
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
		h.contentType = value
	case "Content-Encoding":
		h.encoding = value
	case "Origin":
		h.origin = value
	case "Sec-Fetch-Site":
		h.fetchSite = value
	case "Accept":
		h.accept = values
	}
}

// decides reports whether requests are routed, admitted or read by the header of this canonical name.
func decides(name string) bool {
	switch name {
	case headerSession, headerVersion, headerMethod, headerName, headerLastEvent,
		"Authorization", "Content-Type", "Content-Encoding", "Host", "Origin", "Sec-Fetch-Site":
		return true
	}
	return strings.HasPrefix(name, headerParam)
}
