package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// OAuth configures a [Gateway] that accepts access tokens of an authorization server, such as a
// company's identity provider (OIDC). Each path is a protected resource with its own metadata,
// whose URL is the PublicURL of the gateway with the path. A request's principal contains issuer,
// subject, scopes and claims of the token. All applications of a user are one caller, although
// their tokens differ in the claim client_id.
type OAuth struct {
	// Verifier verifies tokens; see [oauth.NewJWTVerifier] and [oauth.NewIntrospectionVerifier].
	Verifier oauth.Verifier
	// AuthorizationServers are the issuers whose tokens are accepted.
	AuthorizationServers []string
	// Audiences are accepted in addition to the URL of the requested path. A token for one path is
	// rejected at other paths.
	Audiences []string
	// Scopes are required of every request. Default: no scope is required.
	Scopes []string
	// Profiles maps scopes to profiles: a token grants the profiles of its scopes, and /mcp serves
	// the first of them in the order of the scopes. A token without any of these scopes gets the
	// status 403. Default: every token grants everything.
	Profiles map[string]string
	// ClientID and ClientSecret are the credentials of the gateway as an OAuth client of the first
	// of AuthorizationServers, which must be an OpenID provider. Its redirect URI is
	// PublicURL/connect/identity. A user who opens a login page of the gateway first logs in at
	// this provider, so that nobody can complete the login of another user. For each user, the
	// claim sub of ID tokens and access tokens must be equal. An empty ClientSecret means a public
	// client. An empty ClientID means that callers with tokens cannot log in to servers on a page,
	// unless ConnectPrincipal is set.
	ClientID     string
	ClientSecret string
	// Fetcher sends the requests of the client ClientID. Default: [oauth.NewFetcher] without
	// options.
	Fetcher *oauth.Fetcher
}

// wellKnown begins the paths of metadata. Spec: RFC 9728, section 3.
const wellKnown = "/.well-known/oauth-protected-resource"

const (
	// maxGuards bounds the paths whose checks are kept.
	maxGuards = 1000
)

// A tokenChecker serves requests with access tokens. It is safe for concurrent use.
type tokenChecker struct {
	gateway *Gateway
	opts    OAuth
	public  string
	scopes  []string // of the profiles, sorted

	mu     sync.Mutex                                      // guards the field below
	guards map[string]func(next http.Handler) http.Handler // by path
}

// usePublicURL checks the options that depend on the public URL.
func (g *Gateway) usePublicURL() error {
	o := g.opts.OAuth
	if g.opts.PublicURL == "" {
		if o != nil {
			return errors.New("OAuth needs PublicURL")
		}
		return nil
	}
	u, err := url.Parse(g.opts.PublicURL)
	if err != nil || !netx.IsHTTP(u) || u.User != nil || strings.TrimSuffix(u.Path, "/") != "" ||
		strings.ContainsAny(g.opts.PublicURL, "?#") || u.Scheme != "https" && !netx.IsLocalHost(u.Hostname()) {
		return fmt.Errorf("invalid PublicURL %.200q: must be https://HOST without a path, or http at a loopback "+
			"address", g.opts.PublicURL)
	}
	g.opts.HTTP.AllowedHosts = append(slices.Clone(g.opts.HTTP.AllowedHosts), u.Host)
	if o == nil {
		return nil
	}
	if o.Verifier == nil || len(o.AuthorizationServers) == 0 {
		return errors.New("OAuth needs Verifier and AuthorizationServers")
	}
	g.tokens = &tokenChecker{gateway: g, opts: *o, public: u.Scheme + "://" + u.Host,
		scopes: slices.Sorted(maps.Keys(o.Profiles)), guards: map[string]func(http.Handler) http.Handler{}}
	g.tokens.guard(pathAll) // an invalid option fails here
	return nil
}

// routePath returns the path of a request for a route, and /mcp for others.
func routePath(escaped string) (path string, isRoute bool) {
	rest, ok := strings.CutPrefix(escaped, pathAll)
	if ok && rest == "" {
		return pathAll, true
	}
	for _, prefix := range []string{"/p/", "/s/"} {
		if name, ok := strings.CutPrefix(rest, prefix); ok && name != "" && !strings.Contains(name, "/") {
			return escaped, true
		}
	}
	return pathAll, false
}

func (c *tokenChecker) metadata(path string) oauth.ResourceMetadata {
	return oauth.ResourceMetadata{Resource: c.public + path, AuthorizationServers: c.opts.AuthorizationServers,
		ScopesSupported: slices.Concat(c.opts.Scopes, c.scopes), Name: "Patchbay gateway"}
}

// serveMetadata serves the metadata of a path, even if its profile or server does not exist. It
// reports whether the request is for metadata.
func (c *tokenChecker) serveMetadata(w http.ResponseWriter, r *http.Request) bool {
	rest, ok := strings.CutPrefix(r.URL.EscapedPath(), wellKnown)
	path, isRoute := routePath(rest)
	if !ok || rest != "" && !isRoute {
		return false
	}
	oauth.NewMetadataHandler(c.metadata(path)).ServeHTTP(w, r)
	return true
}

// challenge returns the challenge for a request with an invalid key.
func (c *tokenChecker) challenge(r *http.Request) string {
	path, _ := routePath(r.URL.EscapedPath())
	return oauth.Challenge{Scheme: "Bearer", Params: map[string]string{"error": "invalid_token",
		"resource_metadata": c.public + wellKnown + path}}.String()
}

// guard returns middleware that checks the tokens of requests for a path. Middleware for unknown
// profiles and servers is not cached, because clients choose the names.
func (c *tokenChecker) guard(path string) func(next http.Handler) http.Handler {
	c.mu.Lock()
	defer c.mu.Unlock()
	protect := c.guards[path]
	if protect == nil {
		protect = oauth.Require(c.opts.Verifier, c.metadata(path), &oauth.RequireOptions{
			Scopes: oauth.AllOf(c.opts.Scopes...), Audiences: c.opts.Audiences,
			Logger: slog.New(errorsOnly{c.gateway.opts.Logger.Handler()}), Audit: c.audit,
		})
	}
	if len(c.guards) < maxGuards && c.gateway.exists(path) {
		c.guards[path] = protect
	}
	return protect
}

// exists reports whether the profile or the server of a path exists.
func (g *Gateway) exists(path string) bool {
	name := func(prefix string) string {
		escaped, _ := strings.CutPrefix(path, prefix)
		name, _ := url.PathUnescape(escaped)
		return name
	}
	switch {
	case strings.HasPrefix(path, pathAll+"/p/"):
		return g.check(Route{Profile: name(pathAll + "/p/")}) == nil
	case strings.HasPrefix(path, pathAll+"/s/"):
		return g.check(Route{Server: name(pathAll + "/s/")}) == nil
	}
	return path == pathAll
}

// serve serves a request with a valid token, and rejects other requests.
func (c *tokenChecker) serve(w http.ResponseWriter, r *http.Request, next http.Handler) {
	path, _ := routePath(r.URL.EscapedPath())
	c.guard(path)(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := mcp.PrincipalFrom(r.Context())
		a, ok := c.grant(p)
		if !ok {
			c.refuseScopes(w, path)
			return
		}
		next.ServeHTTP(w, withGrant(mcp.WithPrincipal(r.Context(), ofToken(p)), r, a))
	})).ServeHTTP(w, r)
}

// grant returns the profiles, servers and request kinds that a token allows.
func (c *tokenChecker) grant(p *mcp.Principal) (*grant, bool) {
	if len(c.scopes) == 0 {
		return localGrant, true
	}
	a := &grant{}
	for _, scope := range c.scopes {
		profile := c.opts.Profiles[scope]
		if slices.Contains(p.Scopes, scope) && !slices.Contains(a.profiles, profile) {
			a.profiles = append(a.profiles, profile)
		}
	}
	return a, len(a.profiles) > 0
}

// refuseScopes refuses a token that opens no profile.
func (c *tokenChecker) refuseScopes(w http.ResponseWriter, path string) {
	limitBodyTime(w)
	w.Header().Set("WWW-Authenticate", oauth.Challenge{Scheme: "Bearer", Params: map[string]string{
		"error": "insufficient_scope", "scope": strings.Join(c.scopes, " "),
		"error_description": "the token needs one of these scopes",
		"resource_metadata": c.public + wellKnown + path}}.String())
	c.gateway.refuseHTTP(w, http.StatusForbidden, "the token has no scope of a profile")
}

// changingClaims differ between the tokens of one caller, so they do not identify the caller.
var changingClaims = []string{"exp", "iat", "nbf", "jti", "auth_time", "sid", "nonce", "at_hash", "c_hash", "uti",
	"aio", "rh"}

// ofToken returns the principal of a token: the user, whatever the application is.
func ofToken(p *mcp.Principal) *mcp.Principal {
	claims := map[string]any{}
	for name, value := range p.Claims {
		if !slices.Contains(changingClaims, name) {
			claims[name] = value
		}
	}
	if p.ClientID != "" {
		claims["client_id"] = p.ClientID
	}
	return &mcp.Principal{Issuer: p.Issuer, Subject: p.Subject, Scopes: p.Scopes, Claims: claims}
}

// audit logs and records decisions about tokens: refusals within the limit that applies to keys,
// and one accepted request per principal and minute.
func (c *tokenChecker) audit(_ context.Context, d oauth.Decision) {
	g := c.gateway
	r := &http.Request{RemoteAddr: d.RemoteAddr}
	detail := loginDetail{Outcome: outcomeAccepted, Remote: remoteIP(r), Path: d.Target}
	var p *mcp.Principal
	if d.Principal != nil {
		p = ofToken(d.Principal)
	}
	if d.Status == 0 {
		if g.accepted.isDue(p) {
			g.recordLogin(p, detail)
		}
		return
	}
	g.observeRefusal(d.Status)
	if !g.refusals.Admit() {
		return
	}
	detail.Outcome, detail.Reason = outcomeRefused, cutText(d.Err.Error())
	g.opts.Logger.Warn("gateway: request refused", "reason", detail.Reason, "status", d.Status, "method", d.Method,
		"remote", d.RemoteAddr)
	g.recordLogin(p, detail)
}

// errorsOnly is a log handler that omits refusals, which audit logs within a limit.
type errorsOnly struct{ slog.Handler }

func (h errorsOnly) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError && h.Handler.Enabled(ctx, level)
}
