package oauth

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// metadataMaxAge is how long metadata may be cached, in seconds.
const metadataMaxAge = "300"

// NewMetadataHandler returns a handler that serves the metadata of a protected resource at both of
// its well-known paths: for https://example.com/mcp, /.well-known/oauth-protected-resource/mcp and
// /.well-known/oauth-protected-resource. Every web page may read it. The handler is for a mux that
// does not route these paths to the middleware of [Require], which serves them as well:
//
//	mux.Handle("/.well-known/oauth-protected-resource/", oauth.NewMetadataHandler(metadata))
//
// It panics if the metadata names no authorization server or is otherwise invalid.
//
// Spec: RFC 9728, section 3;
// basic/authorization#protected-resource-metadata-discovery-requirements.
func NewMetadataHandler(metadata ResourceMetadata) http.Handler {
	p, err := newProtectedResource(&metadata)
	if err == nil {
		err = p.describe(&metadata)
	}
	if err != nil {
		panic("oauth: NewMetadataHandler: " + err.Error())
	}
	return p
}

type protectedResource struct {
	url      *url.URL
	name     string // the canonical URI, for comparison with audiences
	path     string // of the metadata
	document []byte // may be nil
}

func newProtectedResource(metadata *ResourceMetadata) (*protectedResource, error) {
	u, err := url.Parse(metadata.Resource)
	switch {
	case err != nil:
		return nil, errors.New("invalid Resource: must be a URL")
	case !netx.IsHTTP(u) || u.User != nil:
		return nil, fmt.Errorf("invalid Resource %q: must be the URL of the server as clients know it", u.Redacted())
	case strings.ContainsAny(metadata.Resource, "?#"):
		return nil, errors.New("invalid Resource: must not have a query or a fragment")
	}
	p := &protectedResource{url: u, name: canonicalURI(metadata.Resource), path: oauthwire.WellKnownResource}
	if u.Path != "/" {
		p.path += u.Path
	}
	return p, nil
}

func (p *protectedResource) describe(metadata *ResourceMetadata) error {
	m := *metadata
	if len(m.AuthorizationServers) == 0 {
		return errors.New("AuthorizationServers is empty: clients need to know where to get tokens")
	}
	for _, issuer := range m.AuthorizationServers {
		u, err := url.Parse(issuer)
		if err != nil || !netx.IsHTTP(u) || strings.ContainsAny(issuer, "?#") {
			return fmt.Errorf(
				"invalid AuthorizationServers: %q must be an http or https URL without query and fragment", issuer)
		}
	}
	for _, scope := range m.ScopesSupported {
		if err := checkScope(scope); err != nil {
			return fmt.Errorf("ScopesSupported: %w", err)
		}
	}
	if m.BearerMethodsSupported == nil {
		m.BearerMethodsSupported = []string{"header"}
	}
	document, err := json.Marshal(&m)
	p.document = document
	return err
}

func (p *protectedResource) metadataURL() string {
	u := url.URL{Scheme: strings.ToLower(p.url.Scheme), Host: p.url.Host, Path: p.path}
	if p.url.RawPath != "" {
		u.RawPath = oauthwire.WellKnownResource + p.url.RawPath
	}
	return u.String()
}

func (p *protectedResource) isWellKnown(path string) bool {
	return path == p.path || path == oauthwire.WellKnownResource
}

func (p *protectedResource) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if p.document == nil || !p.isWellKnown(r.URL.Path) {
		http.NotFound(w, r)
		return
	}
	head := w.Header()
	head.Set("Access-Control-Allow-Origin", "*") // public, and requested without credentials
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		head.Set("Content-Type", "application/json")
		head.Set("Cache-Control", "public, max-age="+metadataMaxAge)
		_, _ = w.Write(p.document)
	case http.MethodOptions:
		head.Set("Allow", "GET, HEAD, OPTIONS")
		head.Set("Access-Control-Allow-Methods", "GET")
		head.Set("Access-Control-Allow-Headers", "*") // clients send MCP-Protocol-Version
		head.Set("Access-Control-Max-Age", "600")
		w.WriteHeader(http.StatusNoContent)
	default:
		head.Set("Allow", "GET, HEAD, OPTIONS")
		w.WriteHeader(http.StatusMethodNotAllowed)
	}
}

// canonicalURI returns the form in which URIs of resources are compared: scheme and host in lower
// case, without a slash at the end. Default ports, escapes and paths are not normalized. Spec:
// basic/authorization (2025-06-18 and later), Canonical Server URI.
func canonicalURI(uri string) string {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	host, path, _ := strings.Cut(rest, "/")
	if path != "" {
		path = "/" + strings.TrimSuffix(path, "/")
	}
	return netx.LowerASCII(scheme) + "://" + netx.LowerASCII(host) + path
}

// target returns the URL that the client sent a request to.
func (p *protectedResource) target(r *http.Request) *url.URL {
	base := strings.TrimSuffix(p.url.Path, "/")
	if r.URL.Path != base && !strings.HasPrefix(r.URL.Path, base+"/") {
		return p.url // a proxy rewrote the path
	}
	u := *p.url
	u.Path, u.RawPath = r.URL.Path, r.URL.RawPath
	return &u
}
