package catalogue

import (
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/uritemplate"
)

// Beginnings of mapped URIs. The id of the server follows. Clients recognize views by ui://.
const (
	mappedURI = "patchbay://"
	mappedUI  = "ui://patchbay/"
)

// mapURI returns the public form of a URI or template whose own text is in use by another server.
//
// A URI is percent-encoded, so that clients neither resolve its dots nor cut its fragment. A
// template stays as it is, because its expansions must lead back to the expansions of the original:
// percent-encoding would not tell the template's text from the values. An encoded URI contains no
// colon, and an expansion begins with a scheme, so the two differ.
func mapURI(id, uri string, template bool) string {
	prefix := mappedURI
	if strings.HasPrefix(uri, "ui://") {
		prefix = mappedUI
	}
	if template {
		return prefix + id + "/" + uri
	}
	return prefix + id + "/" + uritemplate.Escape(uri)
}

// isMapped reports whether a URI or template looks mapped. Servers must not use such URIs.
func isMapped(uri string) bool {
	return strings.HasPrefix(uri, mappedURI) || strings.HasPrefix(uri, mappedUI)
}

// unmapURI returns the server's id and the original of a mapped URI or expansion.
func unmapURI(public string) (id, original string, ok bool) {
	rest, ok := strings.CutPrefix(public, mappedURI)
	if !ok {
		rest, ok = strings.CutPrefix(public, mappedUI)
	}
	id, escaped, found := strings.Cut(rest, "/")
	if !ok || !found {
		return "", "", false
	}
	if strings.Contains(escaped, ":") {
		return id, escaped, true
	}
	original, err := url.PathUnescape(escaped)
	return id, original, err == nil
}
