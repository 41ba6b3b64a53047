package oauthclient

import (
	"context"
	"net/url"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// The internals that the external tests use.
type (
	Discovery      = discovery
	DiscoveryQuery = discoveryQuery
)

const MaxServers = maxServers

func Discover(ctx context.Context, f *oauth.Fetcher, q *DiscoveryQuery) (*Discovery, error) {
	return discover(ctx, (*oauthfetch.Fetcher)(f), q)
}

func CheckCodeFlow(d *Discovery) error { return d.checkCodeFlow(&Identity{}) }

func CheckCodeFlowOf(d *Discovery, c *Identity) error { return d.checkCodeFlow(c) }

func Register(
	ctx context.Context, f *oauth.Fetcher, server *oauth.ServerMetadata, meta *oauth.ClientMetadata,
) (*Registration, error) {
	var redirectURI string
	if len(meta.RedirectURIs) > 0 {
		redirectURI = meta.RedirectURIs[0]
	}
	return register(ctx, (*oauthfetch.Fetcher)(f), server, meta, redirectURI)
}

// Within returns a Fetcher for a server that had a network scope when it was discovered.
func Within(f *oauth.Fetcher, endpoint *url.URL, seen string) *oauth.Fetcher {
	var limit oauthfetch.NetworkScope
	_ = limit.UnmarshalText([]byte(seen))
	return (*oauth.Fetcher)((*oauthfetch.Fetcher)(f).Within(endpoint, limit))
}

func CheckResource(f *oauth.Fetcher, resource string, endpoint *url.URL) error {
	s := &search{fetcher: (*oauthfetch.Fetcher)(f), endpoint: endpoint}
	return s.checkResource(resource, endpoint.String())
}

// ReadTokenResponse returns the tokens and the lifetime of a response of a token endpoint.
func ReadTokenResponse(status int, body []byte) (access, refresh string, lifetime time.Duration, err error) {
	r, err := readTokenResponse(status, body, nil)
	if err != nil {
		return "", "", 0, err
	}
	return r.AccessToken, r.RefreshToken, r.lifetime(), nil
}

// IsHostOf reports whether a Host header is that of a redirect URI.
func IsHostOf(u *url.URL, host string) bool { return matchesHost(u, host) }

// TakeAnswer returns the code of a valid response to a login at an issuer.
func TakeAnswer(issuer string, sendsIssuer bool, state string, answer url.Values) (string, error) {
	server := &oauth.ServerMetadata{Issuer: issuer, SupportsIssuerParameter: sendsIssuer}
	l := &login{grantRequest: &grantRequest{discovery: &discovery{Issuer: issuer, Server: server}}, state: state}
	return l.authorizationCode(answer)
}

// CheckLoginPage checks the authorization endpoint of a discovery for an MCP server. configured is
// Identity.Issuer.
func CheckLoginPage(d *Discovery, server *url.URL, configured string) error {
	return d.checkLoginPage(server, configured)
}
