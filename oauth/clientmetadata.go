package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/netx"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/visible"
)

const (
	// maxClientName limits the name of a client, in bytes: pages show it on a single line.
	maxClientName = 200
	// maxRedirectURIs limits the redirect URIs of a client. Real clients use a handful.
	maxRedirectURIs = 32
	// defaultDocumentLifetime is for documents without cache directives.
	defaultDocumentLifetime, maxDocumentLifetime = 5 * time.Minute, 24 * time.Hour
)

// Validate returns an error if the metadata cannot be the Client ID Metadata Document of a
// client_id: the client_id must be an https URL with a path, and the document must contain it byte
// for byte, a name, redirect URIs and no shared secret.
//
// Spec: basic/authorization/client-registration (2025-11-25), Client ID Metadata Documents.
func (m *ClientMetadata) Validate(clientID string) error {
	if err := CheckClientIDURL(clientID); err != nil {
		return err
	}
	if err := m.checkDocument(clientID); err != nil {
		return fmt.Errorf("oauth: invalid client metadata: %w", err)
	}
	return nil
}

// CheckClientIDURL returns an error if a client_id cannot be the URL of a Client ID Metadata
// Document: it must be https and contain a path without dot segments.
//
// Spec: basic/authorization/client-registration (2025-11-25), Client ID Metadata Documents.
func CheckClientIDURL(clientID string) error {
	u, err := oauthfetch.CheckURL(clientID)
	if err == nil {
		err = checkClientIDPath(u)
	}
	if err != nil {
		return fmt.Errorf("oauth: invalid client_id %.200q: %w", clientID, err)
	}
	return nil
}

func checkClientIDPath(u *url.URL) error {
	path := u.EscapedPath()
	if path == "" || path == "/" {
		return fmt.Errorf("%w: must have a path", ErrURLRefused)
	}
	if netx.HasDotSegments(path) {
		return fmt.Errorf("%w: must not have dot segments", ErrURLRefused)
	}
	return nil
}

func (m *ClientMetadata) checkDocument(clientID string) error {
	switch {
	case m.ClientID != clientID:
		return fmt.Errorf("invalid client_id %.200q: must be the URL of the document", m.ClientID)
	case m.Name == "":
		return errors.New("client_name is missing")
	case len(m.Name) > maxClientName || !isPrintable(m.Name):
		return fmt.Errorf("invalid client_name: must be at most %d bytes of printable text", maxClientName)
	case len(m.RedirectURIs) == 0:
		return errors.New("redirect_uris is missing")
	case len(m.RedirectURIs) > maxRedirectURIs:
		return fmt.Errorf("%d redirect_uris: must be at most %d", len(m.RedirectURIs), maxRedirectURIs)
	case strings.HasPrefix(m.TokenEndpointAuthMethod, "client_secret_"):
		return fmt.Errorf("invalid token_endpoint_auth_method %.64q: must not need a shared secret",
			m.TokenEndpointAuthMethod)
	}
	for _, uri := range m.RedirectURIs {
		if err := CheckRedirectURI(uri); err != nil {
			return err
		}
	}
	for _, link := range []struct{ name, text string }{
		{"client_uri", m.URI}, {"logo_uri", m.LogoURI}, {"tos_uri", m.TermsURI},
		{"policy_uri", m.PolicyURI}, {"jwks_uri", m.JWKSURI},
	} {
		u, err := oauthfetch.ParseURL(link.text)
		if link.text != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil) {
			return fmt.Errorf("invalid %s: must be an https URL", link.name)
		}
	}
	return nil
}

// isPrintable reports whether a text is a single line of printable characters, without marks that
// change its direction.
func isPrintable(text string) bool {
	return utf8.ValidString(text) &&
		!strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) || visible.Hidden(r) })
}

// FetchClientMetadata fetches and validates the Client ID Metadata Document of a client_id. It also
// returns how long the document may be cached: by the response's header, at most a day; by default
// 5 minutes; 0 if it must not be cached. Redirects are not followed. The error is a [*FetchError]
// if there is no document, and a [*DiscoveryError] if it is invalid.
//
// Spec: basic/authorization/client-registration (2025-11-25), Client ID Metadata Documents.
func (f *Fetcher) FetchClientMetadata(ctx context.Context, clientID string) (*ClientMetadata, time.Duration, error) {
	u, err := f.fetcher().CheckURL(clientID)
	if err == nil {
		err = checkClientIDPath(u)
	}
	if err != nil {
		return nil, 0, &FetchError{URL: oauthfetch.ShownURL(u), Err: err}
	}
	var doc struct {
		ClientMetadata `json:",inline"`
		Secret         jsontext.Value `json:"client_secret"`
		SecretExpires  jsontext.Value `json:"client_secret_expires_at"`
	}
	header, err := f.fetcher().WithoutRedirects().GetJSON(ctx, clientID, &doc)
	if err != nil {
		return nil, 0, err
	}
	if doc.Secret != nil || doc.SecretExpires != nil {
		err = errors.New("must not contain client_secret")
	} else {
		err = doc.checkDocument(clientID)
	}
	if err != nil {
		return nil, 0, &DiscoveryError{URL: oauthfetch.ShownURL(u), Err: err}
	}
	return &doc.ClientMetadata, freshness(header, time.Now()), nil
}

// freshness returns how long a response may be cached. Spec: RFC 9111, sections 4.2 and 5.2.2.
func freshness(header http.Header, now time.Time) time.Duration {
	directives := map[string]string{}
	for directive := range strings.SplitSeq(strings.ToLower(strings.Join(header.Values("Cache-Control"), ",")), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		if _, duplicate := directives[name]; !duplicate {
			directives[name] = value
		}
		if name == "no-store" || name == "no-cache" || name == "private" {
			return 0
		}
	}
	age, _ := strconv.ParseUint(header.Get("Age"), 10, 31)
	lifetime := defaultDocumentLifetime
	for _, name := range []string{"s-maxage", "max-age"} {
		if text, ok := directives[name]; ok {
			seconds, err := strconv.ParseUint(strings.Trim(text, `"`), 10, 31)
			if err != nil {
				return 0
			}
			return min(max(time.Duration(seconds)-time.Duration(age), 0)*time.Second, maxDocumentLifetime)
		}
	}
	if header.Get("Expires") != "" {
		expires, _ := http.ParseTime(header.Get("Expires")) // the zero time if invalid
		lifetime = expires.Sub(now)
	}
	return min(max(lifetime, 0), maxDocumentLifetime)
}

// CheckRedirectURI returns an error if a redirect URI is not allowed: it must be https, or http on
// the user's own machine, or use a scheme that an application registered for itself, which contains
// a dot. It must not contain a fragment, a user, a wildcard or white space. Redirect URIs are
// compared as they are written, so ambiguous URIs are refused, too.
//
// Spec: RFC 8252, section 7; basic/authorization, Communication Security; RFC 9700, section 2.1.
func CheckRedirectURI(text string) error {
	refuse := func(rule string) error { return fmt.Errorf("%w: %s", ErrURLRefused, rule) }
	u, err := oauthfetch.ParseURL(text)
	switch {
	case err != nil:
	case strings.Contains(text, "*"):
		err = refuse("must not have a wildcard")
	case u.User != nil:
		err = refuse("must not have a user")
	case u.Scheme == "https", u.Scheme == "http":
		err = checkWebRedirect(u)
	case !strings.Contains(u.Scheme, "."):
		err = refuse("scheme must be https, http on this machine, or that of an application, with a dot")
	}
	if err != nil {
		return fmt.Errorf("oauth: invalid redirect URI %.200q: %w", text, err)
	}
	return nil
}

func checkWebRedirect(u *url.URL) error {
	if err := oauthfetch.CheckHost(u); err != nil {
		return err
	}
	if u.Scheme == "http" && !netx.IsLoopback(u.Hostname()) {
		return fmt.Errorf("%w: must be https, unless the host is localhost or a loopback address", ErrURLRefused)
	}
	if a, err := netip.ParseAddr(u.Hostname()); err == nil && oauthfetch.ScopeOf(a) == oauthfetch.Unusable {
		return fmt.Errorf("%w: host %s is a special-purpose address", ErrURLRefused, a)
	}
	return nil
}
