package authserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// pathResource is followed by the path of a resource in the path of its metadata. Clients also
// request it alone.
const pathResource = "/.well-known/oauth-protected-resource"

type resourceDocument struct {
	host    string // of the resource, normalized by plainHost
	path    string // of the metadata
	handler http.Handler
}

// newResourceDocuments returns the metadata of all resources with a URL that determines its path.
//
// Spec: RFC 9728, section 3; basic/authorization (2025-06-18 and later), Protected Resource
// Metadata Discovery.
func (s *Server) newResourceDocuments() []resourceDocument {
	var all []resourceDocument
	for _, res := range s.o.Resources {
		u, err := url.Parse(res.URL)
		if err != nil || strings.Contains(res.URL, "?") {
			continue // not a resource that oauth.Require protects
		}
		d := resourceDocument{host: plainHost(u.Host), path: pathResource}
		if u.Path != "/" {
			d.path += u.Path
		}
		d.handler = oauth.NewMetadataHandler(s.ResourceMetadata(res.URL))
		all = append(all, d)
	}
	return all
}

func plainHost(host string) string {
	host = strings.ToLower(host)
	return strings.TrimSuffix(strings.TrimSuffix(host, ":443"), ":80")
}

// serveResource serves the metadata that the path and the host of the request determine. If no
// resource is at that host, a proxy has replaced the header, and the host of the issuer is used.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request) {
	host := plainHost(r.Host)
	if !slices.ContainsFunc(s.resourceDocuments, func(d resourceDocument) bool { return d.host == host }) {
		host = plainHost(s.issuer.Host)
	}
	handler := s.resourceHandler(host, r.URL.Path)
	if handler == nil {
		http.NotFound(w, r)
		return
	}
	cacheable(w.Header())
	handler.ServeHTTP(w, r)
}

// resourceHandler returns the handler of the metadata at a path, nil if there is none. pathResource
// alone is the path of the only resource of a host.
func (s *Server) resourceHandler(host, path string) http.Handler {
	var ofHost []http.Handler
	for _, d := range s.resourceDocuments {
		switch {
		case d.host != host:
		case d.path == path:
			return d.handler
		default:
			ofHost = append(ofHost, d.handler)
		}
	}
	if path == pathResource && len(ofHost) == 1 {
		return ofHost[0]
	}
	return nil
}
