package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	// maxServers is how many authorization servers of one resource are looked at. Real ones have one or two.
	maxServers = 4
	// headerRevision says on the way to metadata for which revision of MCP it is.
	//
	// Spec: basic/authorization (2025-03-26), Server Metadata Discovery.
	headerRevision = "Mcp-Protocol-Version"

	wellKnownResource = "/.well-known/oauth-protected-resource"
	wellKnownServer   = "/.well-known/oauth-authorization-server"
	wellKnownOpenID   = "/.well-known/openid-configuration"
)

// ErrNoMetadata is within the error of a discovery that has found none, where there has to be some.
var ErrNoMetadata = errors.New("no authorization metadata")

// A DiscoveryError is metadata that was found and cannot be used. It ends a login: nothing is guessed in its place.
type DiscoveryError struct {
	URL string // of the document, without its query
	Err error
}

// Error says what is wrong with which document.
func (e *DiscoveryError) Error() string {
	return fmt.Sprintf("oauth: the metadata at %s cannot be used: %v", e.URL, e.Err)
}

// Unwrap returns Err.
func (e *DiscoveryError) Unwrap() error { return e.Err }

// A discovery is what is known of the authorization of one MCP server.
type discovery struct {
	// Resource is the server's identifier as it says itself, byte for byte. It is empty if it has none, which is so in
	// the 2025-03-26 way alone.
	Resource string
	// ResourceScopes are those that the resource's metadata lists.
	ResourceScopes []string
	// Issuer is the authorization server, as the resource's metadata names it.
	Issuer string
	Server *ServerMetadata
	// Conventional says that there is no metadata at all: Server holds the endpoints that 2025-03-26 gives by convention.
	Conventional bool
	Metadata     *ResourceMetadata // nil in the 2025-03-26 way
	// reach is how near the MCP server was, which bounds how near what it names may be from now on.
	reach zone
}

// A discoveryQuery is what is known before a discovery.
type discoveryQuery struct {
	Endpoint  string     // of the MCP server
	Challenge *Challenge // of its response, nil if there was none
	// Revision is the revision of MCP that the client speaks, if it knows. It is told to whoever has metadata.
	Revision string
	// Prefer are issuers to choose if the resource has them, the first first. Otherwise the resource's order is kept.
	Prefer []string
}

// discoverBy finds out who gives tokens for the server at an endpoint. The error is a *DiscoveryError if there is metadata
// which cannot be used, holds ErrNoMetadata if there is none and should be, and is a *FetchError if something could not be
// fetched.
func (f *Fetcher) discoverBy(ctx context.Context, q *discoveryQuery) (*discovery, error) {
	endpoint, err := url.Parse(q.Endpoint)
	if err != nil || endpoint.Host == "" {
		return nil, errors.New("oauth: the address of the MCP server is no URL")
	}
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	s := &search{fetcher: f.within(endpoint, loopback), endpoint: endpoint, header: http.Header{}}
	if q.Revision != "" {
		s.header.Set(headerRevision, q.Revision)
	}
	d, err := s.run(ctx, q)
	if err != nil {
		return nil, err
	}
	d.reach, _ = s.fetcher.policy.knownHomeZone() // where nothing needed to know, public
	return d, nil
}

// A search is one discovery.
type search struct {
	fetcher  *Fetcher
	endpoint *url.URL
	header   http.Header
	// refused says that a document was withheld, not missing: somebody guards it, so that nothing is to be guessed.
	refused bool
	missed  *FetchError // the first document that was not to be had
}

func (s *search) run(ctx context.Context, q *discoveryQuery) (*discovery, error) {
	pointer, pointed := s.pointer(q.Challenge)
	m, at, err := s.resource(ctx, pointer)
	switch {
	case err != nil:
		return nil, err
	case m != nil:
		return s.viaResource(ctx, m, at, q.Prefer)
	case pointed:
		return nil, fmt.Errorf("oauth: the MCP server says that it has metadata, and has not: %w at %s (HTTP %d)",
			ErrNoMetadata, s.missed.URL, s.missed.Status)
	}
	return s.viaOrigin(ctx)
}

// pointer returns where the challenge says that the resource's metadata is, "" if it does not or if that is another origin,
// and whether it says it at all.
func (s *search) pointer(ch *Challenge) (address string, pointed bool) {
	if ch == nil || ch.Params["resource_metadata"] == "" {
		return "", false
	}
	address = ch.Params["resource_metadata"]
	u, err := s.fetcher.policy.checkText(address)
	switch {
	case err != nil:
		s.fetcher.log.Warn("oauth: the resource_metadata of a challenge is ignored", "server", shown(s.endpoint), "error", err)
		return "", true
	case !isSameOrigin(u, s.endpoint):
		s.fetcher.log.Warn("oauth: the resource_metadata of a challenge is ignored, since it is at another origin",
			"server", shown(s.endpoint), "resource_metadata", shown(u))
		return "", true
	}
	return address, true
}

// resource returns the metadata of the resource and where it was, or nil if there is none.
//
// Spec: basic/authorization (2025-11-25), Protected Resource Metadata Discovery Requirements; RFC 9728, section 3.1.
func (s *search) resource(ctx context.Context, pointer string) (*ResourceMetadata, string, error) {
	var places []string
	if pointer != "" {
		places = append(places, pointer)
	}
	path := s.endpoint.EscapedPath()
	for _, path := range []string{path, strings.TrimSuffix(path, "/"), ""} {
		place := originOf(s.endpoint) + wellKnownResource + path
		if path != "/" && !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	for _, place := range places {
		var m ResourceMetadata
		found, err := s.fetch(ctx, place, &m)
		if err != nil {
			return nil, "", err
		}
		if found {
			return &m, place, nil
		}
	}
	return nil, "", nil
}

// fetch fetches a document. One that is not there is no error, and neither is one that may not be seen: servers that
// want a token for everything want it for what they do not have, too. Anything else that is no document ends the search.
func (s *search) fetch(ctx context.Context, address string, into any) (found bool, err error) {
	err = s.fetcher.getJSON(ctx, address, s.header, into)
	var failed *FetchError
	switch {
	case err == nil:
		return true, nil
	case !errors.As(err, &failed):
		return false, err
	case failed.Err != nil && failed.Status == http.StatusOK:
		return false, &DiscoveryError{URL: failed.URL, Err: failed.Err}
	case failed.Err != nil:
		return false, err
	case failed.Status == http.StatusRequestTimeout, failed.Status == http.StatusTooManyRequests, failed.Status/100 != 4:
		return false, err // it may be there at another time
	}
	if s.missed == nil {
		s.missed = failed
	}
	s.refused = s.refused || failed.Status != http.StatusNotFound
	return false, nil
}

// viaResource goes from the resource's metadata to its authorization server.
func (s *search) viaResource(ctx context.Context, m *ResourceMetadata, at string, prefer []string) (*discovery, error) {
	bad := func(err error) (*discovery, error) {
		u, _ := parseURL(at)
		return nil, &DiscoveryError{URL: shown(u), Err: err}
	}
	if err := s.fetcher.policy.checkResource(m.Resource, s.endpoint); err != nil {
		return bad(err)
	}
	servers := m.AuthorizationServers
	if len(servers) == 0 {
		return bad(errors.New("it names no authorization server"))
	}
	if i := slices.IndexFunc(prefer, func(issuer string) bool { return slices.Contains(servers, issuer) }); i >= 0 {
		servers = []string{prefer[i]}
	}
	for _, issuer := range servers[:min(len(servers), maxServers)] {
		server, err := s.server(ctx, issuer)
		if err != nil {
			return nil, err
		}
		if server != nil {
			return &discovery{
				Resource: m.Resource, ResourceScopes: m.ScopesSupported,
				Issuer: issuer, Server: server, Metadata: m,
			}, nil
		}
	}
	return nil, fmt.Errorf("oauth: the authorization servers that the MCP server names have none: %w", ErrNoMetadata)
}

// server returns the metadata of an authorization server, or nil if it has none.
//
// Spec: basic/authorization (2025-11-25), Authorization Server Metadata Discovery; RFC 8414, sections 3.1 and 3.3.
func (s *search) server(ctx context.Context, issuer string) (*ServerMetadata, error) {
	places, err := s.fetcher.serverPlaces(issuer)
	if err != nil {
		return nil, err
	}
	for _, place := range places {
		var m ServerMetadata
		found, err := s.fetch(ctx, place, &m)
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		if err := s.fetcher.policy.checkServer(&m, issuer); err != nil {
			return nil, &DiscoveryError{URL: place, Err: err}
		}
		return &m, nil
	}
	return nil, nil
}

// serverPlaces returns the URLs at which the metadata of an issuer may be, in the order in which to look.
func (f *Fetcher) serverPlaces(issuer string) ([]string, error) {
	u, err := f.policy.checkText(issuer)
	if err == nil && (u.RawQuery != "" || u.ForceQuery) {
		err = errors.New("it has a query")
	}
	if err != nil {
		return nil, &DiscoveryError{URL: shown(u), Err: fmt.Errorf("the issuer is none: %w", err)}
	}
	origin, path := originOf(u), strings.TrimSuffix(u.EscapedPath(), "/")
	places := []string{origin + wellKnownServer + path, origin + wellKnownOpenID + path}
	if path != "" {
		places = append(places, origin+path+wellKnownOpenID)
	}
	return places, nil
}

// viaOrigin looks for the authorization server at the MCP server itself.
//
// Spec: basic/authorization (2025-03-26), Authorization Base URL, Fallbacks for Servers without Metadata Discovery.
func (s *search) viaOrigin(ctx context.Context) (*discovery, error) {
	origin := originOf(s.endpoint)
	if err := s.fetcher.policy.check(&url.URL{Scheme: s.endpoint.Scheme, Host: s.endpoint.Host}); err != nil {
		return nil, &FetchError{URL: shown(s.endpoint), Err: err}
	}
	var m ServerMetadata
	found, err := s.fetch(ctx, origin+wellKnownServer, &m)
	switch {
	case err != nil:
		return nil, err
	case found:
		issuer := origin
		if m.Issuer == origin+"/" {
			issuer = m.Issuer // nobody has said how it is spelled, and both lead here
		}
		if err := s.fetcher.policy.checkServer(&m, issuer); err != nil {
			return nil, &DiscoveryError{URL: origin + wellKnownServer, Err: err}
		}
		return &discovery{Issuer: issuer, Server: &m}, nil
	case s.refused:
		return nil, fmt.Errorf("oauth: the MCP server does not let its metadata be seen: %w", ErrNoMetadata)
	}
	return &discovery{
		Issuer: origin, Conventional: true,
		Server: &ServerMetadata{
			Issuer:                   origin,
			AuthorizationEndpoint:    origin + "/authorize",
			TokenEndpoint:            origin + "/token",
			RegistrationEndpoint:     origin + "/register",
			TokenEndpointAuthMethods: []string{authNone, authBasic, authPost},
		},
	}, nil
}

// originOf returns scheme, host and port of a URL as they are written there.
func originOf(u *url.URL) string { return u.Scheme + "://" + u.Host }

// FetchServerMetadata fetches and checks the metadata of an authorization server of which only the issuer is known, in
// the places and the order of [basic/authorization]. The errors are those of metadata: a [*DiscoveryError], a
// [*FetchError], or one that holds [ErrNoMetadata].
//
// [basic/authorization]: https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
func (f *Fetcher) FetchServerMetadata(ctx context.Context, issuer string) (*ServerMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, f.timeout)
	defer cancel()
	s := &search{fetcher: f}
	m, err := s.server(ctx, issuer)
	if err == nil && m == nil {
		err = fmt.Errorf("oauth: the authorization server has none: %w", ErrNoMetadata)
	}
	return m, err
}
