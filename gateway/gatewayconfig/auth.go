package gatewayconfig

import (
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// An Auth configures the credentials that a gateway accepts over HTTP.
type Auth struct {
	// Keys accepts keys, of the local user and of principals. Default: true.
	Keys bool `json:"keys" jsonschema:"accept keys,default=true"`
	// OIDC accepts access tokens; nil means that the gateway accepts none.
	OIDC *OIDC `json:"oidc,omitzero" jsonschema:"authorization server whose access tokens are accepted"`
}

// An OIDC is an authorization server whose access tokens a gateway accepts.
type OIDC struct {
	// Issuer is the URL of the server, as in the claim iss of tokens.
	Issuer string `json:"issuer" jsonschema:"URL of the authorization server,pattern=^https?://"`
	// Audience is accepted as the audience of tokens, besides the URL of the path of a request.
	Audience string `json:"audience" jsonschema:"accepted audience of tokens,minLength=1,maxLength=1024"`
	// Scopes contains the scopes that every request requires.
	Scopes []string `json:"scopes,omitzero" jsonschema:"needed by every request,pattern=^[!#-\\[\\]-~]{1,128}$"`
	// Profiles holds profiles by scope: a token grants only the profiles of its scopes. Nil means
	// no restriction.
	Profiles map[string]string `json:"profiles,omitzero" jsonschema:"profiles that tokens open, by scope"`
	// InsecureAnyTokenType accepts tokens whose header does not identify them as access tokens, as
	// some authorization servers issue them.
	InsecureAnyTokenType bool `json:"insecureAnyTokenType" jsonschema:"accept any typ of tokens,default=false"`
	// ClientID is the OAuth client ID of the gateway at Issuer. With it, the gateway identifies the
	// user who opens a login page. If it is empty, callers with access tokens cannot log in to
	// servers.
	ClientID string `json:"clientId,omitzero" jsonschema:"the gateway as a client that identifies users,maxLength=1024"`
	// ClientSecret is the name of the environment variable that contains the client secret.
	// Default: the gateway is a public client.
	ClientSecret string `json:"clientSecret,omitzero" jsonschema:"its variable name,pattern=^[A-Za-z_][A-Za-z0-9_]*$"`
}

// check checks the member auth of the settings.
func (a *Auth) check(p *config.Problems, s *Settings) {
	if a == nil {
		return
	}
	o := a.OIDC
	if o == nil {
		if !a.Keys && (s.TLS == nil || s.TLS.Clients == nil) {
			p.Add("/auth/keys", "got false without oidc and tls.clients: no client could use the gateway")
		}
		return
	}
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Host == "" || u.User != nil || strings.ContainsAny(o.Issuer, "?#") ||
		u.Scheme != "https" && !netx.IsLocalHost(u.Hostname()) {
		p.Add("/auth/oidc/issuer", "got %.100q, want an https URL without a query, such as "+
			"\"https://login.example.com\"", o.Issuer)
	}
	if o.ClientSecret != "" && o.ClientID == "" {
		p.Add("/auth/oidc", "has clientSecret without clientId")
	}
	for scope, profile := range o.Profiles {
		if _, known := s.Profiles[profile]; !known {
			p.Add(config.Pointer("auth", "oidc", "profiles", scope), "unknown profile %.64q", profile)
		}
		if strings.ContainsFunc(scope, isNotScope) {
			p.Add(config.Pointer("auth", "oidc", "profiles", scope), "invalid scope: must be ASCII without spaces and "+
				"quotes")
		}
	}
}

func isNotScope(c rune) bool { return c <= ' ' || c > '~' || c == '"' || c == '\\' }

// checkPublicURL returns a URL without a trailing slash.
func checkPublicURL(p *config.Problems, at, text string) string {
	if text != "" && !netx.IsOrigin(text) {
		p.Add(at, "got %.100q, want an https URL without a path, such as \"https://mcp.example.com\"", text)
	}
	return strings.TrimRight(text, "/")
}

func checkHosts(p *config.Problems, member string, all []string) {
	isInvalid := func(host string) bool {
		name, port, hasPort := strings.Cut(host, ":")
		if ip, err := netip.ParseAddrPort(host); err == nil && ip.Addr().Is6() {
			return false
		}
		return name == "" || strings.ContainsAny(host, "/@[] *?#") || hasPort && !netx.ValidPort(port)
	}
	if n := slices.IndexFunc(all, isInvalid); n >= 0 {
		p.Add(member, "got %.100q, want a name with or without a port, such as "+
			"\"mcp.example.com\"", all[n])
	}
}
