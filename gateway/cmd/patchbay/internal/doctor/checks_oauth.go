package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/login"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxDocument bounds a document of metadata, in bytes. Real documents are below 10 kB.
	maxDocument = 256 << 10
	// maxIssuers limits the authorization servers that are tried, as a login does.
	maxIssuers = 4

	wellKnownResource = "/.well-known/oauth-protected-resource"
	wellKnownServer   = "/.well-known/oauth-authorization-server"
	wellKnownOpenID   = "/.well-known/openid-configuration"
)

// loginCheck is check for a server that requires a login.
func (w *web) loginCheck(name, action, needs string, f func(ctx context.Context, c *Check)) {
	w.check(name, action, needs, func(ctx context.Context, c *Check) {
		if c.ofLogin = true; !w.needsLogin() {
			c.skip("the server requires no login")
			return
		}
		f(ctx, c)
	})
}

// needsLogin reports whether the server refused the first message for lack of a token.
func (w *web) needsLogin() bool { return w.reply.status == http.StatusUnauthorized }

func (w *web) readChallenge(ctx context.Context, c *Check) {
	challenges := oauth.ParseChallenges(w.reply.header)
	forToken := false
	for _, ch := range challenges {
		c.see("WWW-Authenticate: %s", ch)
		if ch.Is("Bearer") || ch.Is("DPoP") {
			w.named, forToken = ch.Params["resource_metadata"], true
		}
	}
	mayNot := w.target.MayLogIn()
	switch {
	case w.header().Get("Authorization") != "":
		c.end(Fail, "replace the credentials of the Authorization header: the server does not accept them")
	case len(challenges) > 0 && !forToken:
		c.end(Fail, "pass credentials with --header: the server asks for no token of OAuth")
	case mayNot != nil:
		c.end(Fail, "%v", mayNot)
	case len(challenges) == 0:
		c.see("no valid WWW-Authenticate")
		c.end(Warn, "correct the server: the header must name the metadata, whose URL clients have to guess")
	}
	if c.Status == Fail {
		return
	}
	w.target.NoLogin = true // until the user asks for a login
	if err := w.Dialer.Login.Authorize(ctx, w.target); err != nil {
		c.see("stored login: %v", err)
	} else if login.IsMachineClient() {
		c.see("%s is set: a token for client credentials is requested", login.EnvClientID)
		w.canLogIn = true
	} else if now, err := w.target.Auth.Status(ctx); err == nil && now != nil {
		c.see("a login at %s is stored, scopes %q", now.Issuer, strings.Join(now.Scopes, " "))
		w.canLogIn = true
	}
}

// fetcher returns a client that keeps the rules for URLs that the server names.
func (w *web) fetcher() *oauth.Fetcher {
	f := w.Dialer.Net.NewFetcher(w.Dialer.IO.Logger(), capture.Fetches(w.ctx))
	return f.For(&url.URL{Scheme: w.url.Scheme, Host: w.url.Host})
}

// document fetches a document of metadata, and shows its URL and status.
func (w *web) document(ctx context.Context, c *Check, address string, into any) bool {
	status, err := w.fetch(ctx, address, into)
	seen := statusText(status)
	if failed, ok := errors.AsType[*url.Error](err); ok {
		seen = failed.Err.Error() // without the URL
	} else if err != nil {
		seen = err.Error()
	}
	c.see("GET %s -> %s", target.PublicURL(address), seen)
	return err == nil && status == http.StatusOK
}

func (w *web) fetch(ctx context.Context, address string, into any) (status int, err error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return 0, errors.New("invalid URL")
	}
	req.Header.Set("Accept", typeJSON)
	res, err := w.fetcher().HTTPClient().Do(req)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxDocument))
	if res.StatusCode == http.StatusOK && err == nil && json.Unmarshal(text, into) != nil {
		err = fmt.Errorf("200, but no metadata: %s", w.secrets.excerpt(text))
	}
	return res.StatusCode, err
}

// firstDocument fetches documents until one is found, and returns its address.
func (w *web) firstDocument(ctx context.Context, c *Check, into any, addresses ...string) string {
	for i, address := range addresses {
		if address != "" && !slices.Contains(addresses[:i], address) && w.document(ctx, c, address, into) {
			return address
		}
	}
	return ""
}

// fetchMetadata looks for the metadata of the resource where a login does. Spec: RFC 9728, section
// 3.
func (w *web) fetchMetadata(ctx context.Context, c *Check) {
	origin, path := w.url.Scheme+"://"+w.url.Host, strings.TrimSuffix(w.url.EscapedPath(), "/")
	var m oauth.ResourceMetadata
	found := w.firstDocument(ctx, c, &m, w.named, origin+wellKnownResource+path, origin+wellKnownResource)
	switch {
	case found != "":
		w.judgeMetadata(c, &m)
		if c.Status == OK && w.named != "" && found != w.named {
			c.end(Warn, "correct resource_metadata in WWW-Authenticate: there is no document at that URL")
		}
	case w.named != "":
		c.end(Fail, "serve protected resource metadata (RFC 9728) at the URL in WWW-Authenticate, or correct it")
	case w.document(ctx, c, origin+wellKnownServer, &oauth.ServerMetadata{}):
		w.issuers = []string{origin}
		c.end(Warn, "serve protected resource metadata (RFC 9728): only revision 2025-03-26 is without it")
	default:
		c.end(Fail, "serve protected resource metadata (RFC 9728) at %s; or pass a token in the "+
			"header Authorization, with --header or headers in the configuration",
			target.PublicURL(origin+wellKnownResource+path))
	}
}

// judgeMetadata compares the metadata with the URL. Spec: RFC 9728, section 3.3.
func (w *web) judgeMetadata(c *Check, m *oauth.ResourceMetadata) {
	c.see("resource %s", target.PublicURL(m.Resource))
	c.see("authorization_servers %q, scopes_supported %q", m.AuthorizationServers, m.ScopesSupported)
	w.issuers = m.AuthorizationServers[:min(len(m.AuthorizationServers), maxIssuers)]
	u, err := url.Parse(m.Resource)
	if err != nil {
		u = &url.URL{}
	}
	const next = "correct resource in the metadata: its %s is %q, and %q in the URL of the server"
	below := strings.TrimSuffix(w.url.EscapedPath(), "/") + "/"
	switch {
	case !strings.EqualFold(u.Scheme, w.url.Scheme):
		c.end(Fail, next, "scheme", u.Scheme, w.url.Scheme)
	case !strings.EqualFold(u.Host, w.url.Host):
		c.end(Fail, next, "host", u.Host, w.url.Host)
	case !strings.HasPrefix(below, strings.TrimSuffix(u.EscapedPath(), "/")+"/"):
		c.end(Fail, next, "path", u.EscapedPath(), w.url.EscapedPath())
	case len(w.issuers) == 0:
		c.end(Fail, "correct the metadata: authorization_servers is missing")
	}
}

func (w *web) fetchServerMetadata(ctx context.Context, c *Check) {
	for _, issuer := range w.issuers {
		u, err := url.Parse(issuer)
		if err != nil {
			c.see("invalid issuer %q", issuer)
			continue
		}
		origin, path := u.Scheme+"://"+u.Host, strings.TrimSuffix(u.EscapedPath(), "/")
		var m oauth.ServerMetadata
		if w.firstDocument(ctx, c, &m, origin+wellKnownServer+path, origin+wellKnownOpenID+path,
			origin+path+wellKnownOpenID) != "" {
			w.judgeServer(c, &m, issuer)
			return
		}
	}
	c.end(Fail, "serve metadata of the authorization server (RFC 8414) at the first of these URLs, or correct "+
		"authorization_servers in the metadata of the resource")
}

// judgeServer checks the metadata of an authorization server as a login does.
func (w *web) judgeServer(c *Check, m *oauth.ServerMetadata, issuer string) {
	c.see("issuer %s, PKCE %q", target.PublicURL(m.Issuer), m.CodeChallengeMethods)
	c.see("registration: client metadata document %t, dynamic %t", m.SupportsClientMetadata,
		m.RegistrationEndpoint != "")
	err := w.fetcher().CheckServerMetadata(m, issuer)
	switch {
	case err != nil:
		c.see("%v", err)
		c.end(Fail, "correct the metadata of the authorization server")
	case m.AuthorizationEndpoint == "":
		c.end(Fail, "correct the metadata: authorization_endpoint is missing")
	case !slices.Contains(m.CodeChallengeMethods, "S256"):
		c.end(Fail, `add "code_challenge_methods_supported": ["S256"] to the metadata: without it clients assume that `+
			"PKCE is missing, and refuse to log in (see patchbay auth login --insecure-unlisted-pkce)")
	case !m.SupportsClientMetadata && m.RegistrationEndpoint == "":
		c.end(Warn, "register a client at the authorization server, and pass it with patchbay auth login --client-id: "+
			"clients cannot register themselves")
	}
}
