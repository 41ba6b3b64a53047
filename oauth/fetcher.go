package oauth

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthwire"
)

// FetcherOptions configures a [Fetcher]. The zero value is right for most programs.
type FetcherOptions struct {
	// TLSConfig is for servers whose certificates the system does not trust. It is cloned. Default:
	// the system's roots, TLS 1.2 and later.
	TLSConfig *tls.Config
	// AllowedHosts may resolve to any address, such as an identity provider within a company. URLs
	// must still be https. Each is a name or an address as in a URL, with a port (":8443") to allow
	// only that host. Default: none.
	AllowedHosts []string
	// Proxy returns the proxy for a request, as that of [http.Transport] does. A host that resolves
	// here is refused, before the proxy is asked, unless all its addresses are allowed. The proxy
	// resolves names itself, so it must refuse internal addresses, too. Default: no proxy, not
	// even from the environment.
	Proxy func(*http.Request) (*url.URL, error)
	// Timeout bounds each exchange as a whole, and each discovery, which consists of several.
	// Default: 10 seconds.
	Timeout time.Duration
	// Logger receives warnings about ignored values, such as a challenge with a URL that is
	// refused. Default: slog.Default().
	Logger *slog.Logger
	// Wrap returns the http.RoundTripper of each request, which may record the request with its
	// secrets. It must send the request with base, unchanged and once. Default: base.
	Wrap func(base http.RoundTripper) http.RoundTripper
	// InsecureAnyAddress allows every address, and plain http. It is for tests only: servers can
	// then make the client call everything that it can reach.
	InsecureAnyAddress bool
}

// A Fetcher fetches the documents and calls the endpoints of OAuth. Their URLs come from servers
// that are not trusted, so it guards against server-side request forgery:
//
//   - A URL must be https, and contain neither user nor fragment.
//   - The address of a host is checked when it is dialled, so that DNS rebinding does not help.
//     Public addresses are allowed. Private networks (RFC 1918, RFC 4193, RFC 6598) and this machine
//     are refused, except for AllowedHosts. Other special-purpose addresses, such as link-local
//     addresses, where clouds serve credentials, are always refused.
//   - A URL that a server names (see [Fetcher.For]) may resolve to a private address only if all
//     addresses of the server are private, and to this machine only if they all do, too. So a
//     server within a company can name an identity provider there, a server on the Internet cannot.
//   - http is only for URLs on this machine that a server at localhost or a loopback address names.
//   - No cookies, no proxy by default, at most 3 redirects of a GET within its origin, at most 1
//     MiB, JSON of at most 16 levels, 10 seconds.
//
// A Fetcher keeps no connections, so it need not be closed. All methods are safe for concurrent
// use.
//
// Spec: basic/security_best_practices, Server-Side Request Forgery (2026-07-28).
type Fetcher oauthfetch.Fetcher

// NewFetcher returns a Fetcher. opts may be nil.
func NewFetcher(opts *FetcherOptions) *Fetcher {
	return (*Fetcher)(oauthfetch.New((*oauthfetch.Options)(opts)))
}

func (f *Fetcher) fetcher() *oauthfetch.Fetcher { return (*oauthfetch.Fetcher)(f) }

// For returns a Fetcher with the same options for URLs that the server at an endpoint names: an MCP
// server, or an issuer that the caller trusts. The server's addresses are looked up when they are
// needed, and again after a minute.
func (f *Fetcher) For(endpoint *url.URL) *Fetcher { return (*Fetcher)(f.fetcher().For(endpoint)) }

// HTTPClient returns a client that keeps the rules of the Fetcher, for libraries that take a
// client. It follows no redirects; reading a body larger than 1 MiB returns an error.
func (f *Fetcher) HTTPClient() *http.Client { return f.fetcher().HTTPClient() }

// A FetchError reports a document that could not be fetched or an endpoint that could not be
// called. URL has scheme, host and path; Status is the status of the HTTP response, 0 without a
// response; Err is the reason, nil if it is the status.
type FetchError = oauthfetch.Error

// ErrURLRefused is wrapped by the error of every request that the rules of a [Fetcher] forbid.
var ErrURLRefused = oauthfetch.ErrURLRefused

// ErrNoMetadata is wrapped by the error of a discovery without the metadata that it needs.
var ErrNoMetadata = errors.New("no authorization metadata")

// A DiscoveryError is metadata that was found and cannot be used.
type DiscoveryError struct {
	URL string // of the document, without its query
	Err error
}

// Error names the document and the reason.
func (e *DiscoveryError) Error() string {
	return fmt.Sprintf("oauth: invalid metadata at %s: %v", e.URL, e.Err)
}

// Unwrap returns Err.
func (e *DiscoveryError) Unwrap() error { return e.Err }

// FetchServerMetadata fetches and checks the metadata of an authorization server, at the well-known
// paths for its issuer in the order of [basic/authorization]. The error is a [*DiscoveryError], a
// [*FetchError], or an error that wraps [ErrNoMetadata].
//
// [basic/authorization]:
// https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization
func (f *Fetcher) FetchServerMetadata(ctx context.Context, issuer string) (*ServerMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, f.fetcher().Timeout())
	defer cancel()
	addresses, err := f.metadataURLs(issuer)
	if err != nil {
		return nil, err
	}
	for _, address := range addresses {
		m, err := f.fetchServerMetadata(ctx, address, issuer)
		if m != nil || err != nil {
			return m, err
		}
	}
	return nil, fmt.Errorf("oauth: %w of %.200q at %s", ErrNoMetadata, issuer, strings.Join(addresses, ", "))
}

// fetchServerMetadata returns nil if there is no document at an address.
func (f *Fetcher) fetchServerMetadata(ctx context.Context, address, issuer string) (*ServerMetadata, error) {
	var m ServerMetadata
	_, err := f.fetcher().GetJSON(ctx, address, &m)
	failed, ok := errors.AsType[*FetchError](err)
	switch {
	case err == nil:
	case ok && (oauthfetch.IsMissing(failed) || oauthfetch.IsNotJSON(failed)):
		return nil, nil
	case ok && oauthfetch.IsInvalid(failed):
		return nil, &DiscoveryError{URL: failed.URL, Err: failed.Err}
	default:
		return nil, err
	}
	if err := f.CheckServerMetadata(&m, issuer); err != nil {
		return nil, &DiscoveryError{URL: address, Err: err}
	}
	return &m, nil
}

// metadataURLs returns the URLs at which the metadata of an issuer can be, in order. Spec:
// basic/authorization (2025-11-25), Authorization Server Metadata Discovery; RFC 8414, section 3.1.
func (f *Fetcher) metadataURLs(issuer string) ([]string, error) {
	u, err := f.fetcher().CheckURL(issuer)
	if err == nil && (u.RawQuery != "" || u.ForceQuery) {
		err = errors.New("must not have a query")
	}
	if err != nil {
		return nil, &DiscoveryError{URL: oauthfetch.ShownURL(u), Err: fmt.Errorf("invalid issuer: %w", err)}
	}
	origin, path := netx.Origin(u), strings.TrimSuffix(u.EscapedPath(), "/")
	all := []string{origin + oauthwire.WellKnownServer + path, origin + oauthwire.WellKnownOpenID + path}
	if path != "" {
		all = append(all, origin+path+oauthwire.WellKnownOpenID)
	}
	return all, nil
}

// CheckServerMetadata returns an error if metadata names another issuer, lacks a token
// endpoint, or contains a URL that the rules of the Fetcher forbid.
//
// Spec: RFC 8414, section 3.3; basic/authorization#authorization-server-metadata-discovery.
func (f *Fetcher) CheckServerMetadata(m *ServerMetadata, issuer string) error {
	if !oauthwire.IsSameIssuer(m.Issuer, issuer) {
		return fmt.Errorf("invalid issuer %.200q: must be %q, for which it was fetched", m.Issuer, issuer)
	}
	if m.TokenEndpoint == "" {
		return errors.New("token_endpoint is missing")
	}
	for _, endpoint := range []struct{ name, text string }{
		{"authorization_endpoint", m.AuthorizationEndpoint},
		{"token_endpoint", m.TokenEndpoint},
		{"registration_endpoint", m.RegistrationEndpoint},
		{"revocation_endpoint", m.RevocationEndpoint},
		{"introspection_endpoint", m.IntrospectionEndpoint},
		{"userinfo_endpoint", m.UserinfoEndpoint},
		{"jwks_uri", m.JWKSURI},
	} {
		if _, err := f.fetcher().CheckURL(endpoint.text); err != nil && endpoint.text != "" {
			return fmt.Errorf("invalid %s: %w", endpoint.name, err)
		}
	}
	return nil
}
