package authserver

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/oauth"
)

// pathResource stands before the path of a resource where its metadata is, and alone for clients that look no further.
const pathResource = "/.well-known/oauth-protected-resource"

// A description is the metadata of a resource, ready to be served.
type description struct {
	host    string // of the resource, as plainHost gives it
	path    string // of the metadata
	handler http.Handler
}

// describeResources makes the metadata of all resources that have an address for it.
//
// Spec: RFC 9728, section 3; basic/authorization (2025-06-18 and later), Protected Resource Metadata Discovery.
func (s *Server) describeResources() []description {
	var all []description
	for _, res := range s.o.Resources {
		u, err := url.Parse(res.URL)
		if err != nil || strings.Contains(res.URL, "?") {
			continue // nothing that Require protects
		}
		d := description{host: plainHost(u.Host), path: pathResource}
		if u.Path != "/" {
			d.path += u.Path
		}
		d.handler = oauth.NewMetadataHandler(s.ResourceMetadata(res.URL))
		all = append(all, d)
	}
	return all
}

// plainHost returns the form in which hosts are compared.
func plainHost(host string) string {
	host = strings.ToLower(host)
	return strings.TrimSuffix(strings.TrimSuffix(host, ":443"), ":80")
}

// serveResource serves the metadata of the resource that has its own at the path of the request, at the host that was
// asked, or, if a proxy has changed that, at the issuer's.
func (s *Server) serveResource(w http.ResponseWriter, r *http.Request) {
	host := plainHost(r.Host)
	if !slices.ContainsFunc(s.described, func(d description) bool { return d.host == host }) {
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

// resourceHandler returns what serves the metadata at a path, nil if there is none. The path that names no resource is that
// of the only one of its host: where there are several, it would be wrong for all but one.
func (s *Server) resourceHandler(host, path string) http.Handler {
	var ofHost []http.Handler
	for _, d := range s.described {
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
