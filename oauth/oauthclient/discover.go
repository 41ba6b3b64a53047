package oauthclient

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxServers limits the authorization servers of a resource that are tried. Real resources name
	// one or two.
	maxServers = 4
	// headerRevision names the revision of MCP that metadata is fetched for. Spec:
	// basic/authorization (2025-03-26), Server Metadata Discovery.
	headerRevision = "Mcp-Protocol-Version"
)

type discovery struct {
	// Resource is the server's own identifier, byte for byte. It is empty only in revision
	// 2025-03-26, which lacks it.
	Resource string
	// ResourceScopes are the scopes_supported of the resource.
	ResourceScopes []string
	// Issuer is the authorization server, as the metadata of the resource names it.
	Issuer string
	Server *oauth.ServerMetadata
	// Conventional is set if there is no metadata at all: Server contains the default endpoints of
	// revision 2025-03-26.
	Conventional bool
	NotFound     error                   // names the metadata that was looked for if Conventional is set
	Metadata     *oauth.ResourceMetadata // nil in revision 2025-03-26
	// scope is the network scope of the MCP server. Addresses that it names may be no nearer from
	// now on.
	scope oauthfetch.NetworkScope
}

type discoveryQuery struct {
	Endpoint  string           // of the MCP server
	Challenge *oauth.Challenge // of its response, or nil
	Revision  string           // of MCP that the client speaks; empty if it is not known
	// Prefer are issuers to choose if the resource names them, the preferred issuer first.
	Prefer []string
}

// discover finds the authorization server of an MCP server. The error is a *DiscoveryError or a
// *FetchError, or wraps ErrNoMetadata.
func discover(ctx context.Context, f *oauthfetch.Fetcher, q *discoveryQuery) (*discovery, error) {
	endpoint, err := url.Parse(q.Endpoint)
	if err != nil || endpoint.Host == "" {
		return nil, errors.New("oauth: invalid address of the MCP server: must be a URL with a host")
	}
	ctx, cancel := context.WithTimeout(ctx, f.Timeout())
	defer cancel()
	s := &search{fetcher: f.Within(endpoint, oauthfetch.Loopback), endpoint: endpoint}
	if q.Revision != "" {
		s.fetcher = s.fetcher.WithHeader(http.Header{headerRevision: {q.Revision}})
	}
	d, err := s.run(ctx, q)
	if err != nil {
		return nil, err
	}
	d.scope = s.fetcher.SourceScope()
	return d, nil
}

type search struct {
	fetcher  *oauthfetch.Fetcher
	endpoint *url.URL
	named    string              // the address in the challenge
	withheld bool                // a document is missing with another status than 404
	missing  []*oauth.FetchError // of the documents that were looked for
}

// notFound returns the error for a server without any metadata.
func (s *search) notFound() error {
	var looked []string
	for _, missing := range s.missing {
		looked = append(looked, fmt.Sprintf("%s (HTTP %d)", missing.URL, missing.Status))
	}
	return fmt.Errorf("oauth: no authorization server found: %w at %s", oauth.ErrNoMetadata, strings.Join(looked, ", "))
}

func (s *search) run(ctx context.Context, q *discoveryQuery) (*discovery, error) {
	address, isNamed := s.metadataAddress(q.Challenge)
	m, at, err := s.resource(ctx, address)
	switch {
	case err != nil:
		return nil, err
	case m != nil:
		return s.fromResource(ctx, m, at, q.Prefer)
	case isNamed:
		return nil, s.notFound()
	}
	return s.fromOrigin(ctx)
}

// metadataAddress returns the resource_metadata of a challenge, empty if it may not be fetched. It
// may be at another origin: checkResource then requires that the document is about the endpoint
// itself. Spec: RFC 9728, sections 5.1 and 7.3.
func (s *search) metadataAddress(ch *oauth.Challenge) (address string, isNamed bool) {
	if ch == nil || ch.Params["resource_metadata"] == "" {
		return "", false
	}
	address = ch.Params["resource_metadata"]
	u, err := s.fetcher.CheckURL(address)
	if err == nil && !netx.SameOrigin(u, s.endpoint) {
		err = s.checkForeign(u)
	}
	if err != nil {
		s.logIgnored(err)
		return "", true
	}
	return address, true
}

// checkForeign returns an error unless an address at another origin is a well-known address of
// metadata. Otherwise a server could make the client send a request to any path of another machine
// in its network.
func (s *search) checkForeign(u *url.URL) error {
	rest, ok := strings.CutPrefix(u.EscapedPath(), oauthwire.WellKnownResource)
	switch {
	case !ok || rest != "" && rest[0] != '/' || strings.Contains(rest, "..") ||
		strings.Contains(strings.ToLower(rest), "%2e"):
		return fmt.Errorf("the path must begin with %s, because the URL is at another origin than the server",
			oauthwire.WellKnownResource)
	case u.Scheme != "https" && u.Hostname() != s.endpoint.Hostname():
		return errors.New("the URL must be https, because it is at another host than the server")
	}
	return nil
}

func (s *search) logIgnored(err error) {
	s.fetcher.Logger().Warn("oauth: ignoring the resource_metadata of a challenge",
		"server", oauthfetch.ShownURL(s.endpoint), "error", err)
}

// resource returns the metadata of the resource and its address, or nil if there is none. Spec:
// basic/authorization (2025-11-25), Protected Resource Metadata Discovery Requirements; RFC 9728,
// section 3.1.
func (s *search) resource(ctx context.Context, named string) (*oauth.ResourceMetadata, string, error) {
	var addresses []string
	if s.named = named; named != "" {
		addresses = append(addresses, named)
	}
	whole := s.endpoint.EscapedPath()
	for _, path := range []string{whole, strings.TrimSuffix(whole, "/"), ""} {
		address := netx.Origin(s.endpoint) + oauthwire.WellKnownResource + path
		if path != "/" && !slices.Contains(addresses, address) {
			addresses = append(addresses, address)
		}
	}
	for _, address := range addresses {
		var m oauth.ResourceMetadata
		found, err := s.fetch(ctx, address, &m)
		switch {
		case address == named && errors.Is(err, oauth.ErrURLRefused):
			s.logIgnored(err)
		case found || err != nil:
			return &m, address, err
		}
	}
	return nil, "", nil
}

func (s *search) fetch(ctx context.Context, address string, into any) (found bool, err error) {
	_, err = s.fetcher.GetJSON(ctx, address, into)
	failed, ok := errors.AsType[*oauth.FetchError](err)
	switch {
	case err == nil:
		return true, nil
	case !ok:
		return false, err
	case oauthfetch.IsNotJSON(failed) && address != s.named: // a web page, by a server that answers every path
	case oauthfetch.IsInvalid(failed):
		return false, &oauth.DiscoveryError{URL: failed.URL, Err: failed.Err}
	case !oauthfetch.IsMissing(failed):
		return false, err
	}
	s.missing = append(s.missing, failed)
	s.withheld = s.withheld || failed.Status != http.StatusNotFound
	return false, nil
}

func (s *search) fromResource(
	ctx context.Context, m *oauth.ResourceMetadata, at string, prefer []string,
) (*discovery, error) {
	invalid := func(err error) (*discovery, error) {
		u, _ := oauthfetch.ParseURL(at)
		return nil, &oauth.DiscoveryError{URL: oauthfetch.ShownURL(u), Err: err}
	}
	if err := s.checkResource(m.Resource, at); err != nil {
		return invalid(err)
	}
	issuers := m.AuthorizationServers
	if len(issuers) == 0 {
		return invalid(errors.New("authorization_servers is missing"))
	}
	for _, p := range prefer {
		i := slices.IndexFunc(issuers, func(issuer string) bool { return oauthwire.IsSameIssuer(p, issuer) })
		if i >= 0 {
			issuers = issuers[i : i+1]
			break
		}
	}
	for _, issuer := range issuers[:min(len(issuers), maxServers)] {
		server, err := (*oauth.Fetcher)(s.fetcher).FetchServerMetadata(ctx, issuer)
		if errors.Is(err, oauth.ErrNoMetadata) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &discovery{
			Resource: m.Resource, ResourceScopes: m.ScopesSupported, Issuer: server.Issuer, Server: server, Metadata: m,
		}, nil
	}
	return nil, fmt.Errorf("oauth: no authorization server found: %w of %.200q, which the MCP server names",
		oauth.ErrNoMetadata, issuers[:min(len(issuers), maxServers)])
}

// checkResource checks that the identifier in the metadata at an address shares the origin of the
// endpoint, and its path or a parent, up to a slash at the end. In metadata at another origin,
// which the server does not serve itself, a parent is not enough. Spec: RFC 9728, section 3.3; RFC
// 8707, section 2.
func (s *search) checkResource(resource, at string) error {
	u, err := s.fetcher.CheckURL(resource)
	switch {
	case err != nil:
		return fmt.Errorf("invalid resource: %w", err)
	case !netx.SameOrigin(u, s.endpoint):
		return fmt.Errorf("invalid resource %s: must have the origin of the MCP server", oauthfetch.ShownURL(u))
	case u.ForceQuery || u.RawQuery != "" && u.RawQuery != s.endpoint.RawQuery:
		return errors.New("invalid resource: must have the query of the MCP server, or none")
	case !netx.PathContains(u.EscapedPath(), s.endpoint.EscapedPath()):
		return fmt.Errorf("invalid resource %s: must have the path of the MCP server, or a parent",
			oauthfetch.ShownURL(u))
	}
	address, err := url.Parse(at)
	if (err != nil || !netx.SameOrigin(address, s.endpoint)) &&
		!netx.PathContains(s.endpoint.EscapedPath(), u.EscapedPath()) {
		return fmt.Errorf("invalid resource %s: must be the URL of the MCP server in metadata at another origin",
			oauthfetch.ShownURL(u))
	}
	return nil
}

// fromOrigin looks for the authorization server at the origin of the MCP server, and falls back to
// the default endpoints. Spec: basic/authorization (2025-03-26), Authorization Base URL, Fallbacks
// for Servers without Metadata Discovery.
func (s *search) fromOrigin(ctx context.Context) (*discovery, error) {
	origin := netx.Origin(s.endpoint)
	if err := s.fetcher.Check(&url.URL{Scheme: s.endpoint.Scheme, Host: s.endpoint.Host}); err != nil {
		return nil, &oauth.FetchError{URL: oauthfetch.ShownURL(s.endpoint), Err: err}
	}
	var m oauth.ServerMetadata
	found, err := s.fetch(ctx, origin+oauthwire.WellKnownServer, &m)
	switch {
	case err != nil:
		return nil, err
	case found:
		if err := (*oauth.Fetcher)(s.fetcher).CheckServerMetadata(&m, origin); err != nil {
			return nil, &oauth.DiscoveryError{URL: origin + oauthwire.WellKnownServer, Err: err}
		}
		return &discovery{Issuer: m.Issuer, Server: &m}, nil
	case s.withheld:
		return nil, s.notFound()
	}
	return &discovery{
		Issuer: origin, Conventional: true, NotFound: s.notFound(),
		Server: &oauth.ServerMetadata{
			Issuer:                   origin,
			AuthorizationEndpoint:    origin + "/authorize",
			TokenEndpoint:            origin + "/token",
			RegistrationEndpoint:     origin + "/register",
			TokenEndpointAuthMethods: []string{oauthwire.AuthNone, oauthwire.AuthBasic, oauthwire.AuthPost},
		},
	}, nil
}

// checkCodeFlow returns an error if the authorization code flow is not possible. A server whose
// metadata does not name S256 may not support PKCE, so that a stolen code could be redeemed.
// Without metadata no feature is known, and revision 2025-03-26 requires PKCE. Spec:
// basic/authorization (2025-11-25), Authorization Code Protection.
func (d *discovery) checkCodeFlow(c *Identity) error {
	m := d.Server
	switch {
	case m.AuthorizationEndpoint == "":
		return errors.New("oauth: the metadata of the authorization server has no authorization_endpoint")
	case d.Conventional:
		return nil
	case len(m.CodeChallengeMethods) == 0 && c.InsecureUnlistedPKCE: // S256 is sent nevertheless
	case !slices.Contains(m.CodeChallengeMethods, "S256"):
		return &PKCEError{Issuer: d.Issuer, Methods: m.CodeChallengeMethods}
	case len(m.ResponseTypesSupported) > 0 && !slices.Contains(m.ResponseTypesSupported, "code"):
		return errors.New("oauth: the authorization server does not support the authorization code flow " +
			"(response_types_supported)")
	}
	return nil
}

// checkLoginPage returns an error if another authorization server could have issued the code. An
// attacker's metadata can name the login page of an honest server, whose codes the client would
// then send to the attacker. The iss of the response shows who issued a code. Without it the page
// must be at the host of the issuer, which served the metadata, or below it: the owner of a domain
// controls the hosts below it. Or page and issuer must both be at the host of the MCP server, which
// named the issuer, or below it. Any other common parent domain is not enough, since customers
// share some, such as github.io. Neither is the MCP server's host alone: several servers may share
// it by path. An issuer in the configuration, which may be empty, is trusted. The token endpoint
// may be at any host, since the same metadata names it. Spec: RFC 9207, section 1; RFC 9700,
// section 4.4.
func (d *discovery) checkLoginPage(server *url.URL, configured string) error {
	page, err := url.Parse(d.Server.AuthorizationEndpoint)
	issuer, invalid := url.Parse(d.Issuer)
	switch {
	case err != nil || invalid != nil:
		return errors.New("oauth: invalid authorization_endpoint or issuer: must be a URL")
	case oauthwire.IsSameIssuer(configured, d.Issuer), d.Server.SupportsIssuerParameter,
		netx.IsLoopback(page.Hostname()) && netx.IsLoopback(issuer.Hostname()),
		netx.IsSubdomain(page.Hostname(), issuer.Hostname()),
		netx.IsSubdomain(page.Hostname(), server.Hostname()) && netx.IsSubdomain(issuer.Hostname(), server.Hostname()):
		return nil
	}
	return fmt.Errorf("oauth: invalid authorization_endpoint %s: must be at the host of the issuer %s or below it, "+
		"since the authorization server does not send iss: if it is right, configure the issuer of the client",
		oauthfetch.ShownURL(page), oauthfetch.ShownURL(issuer))
}
