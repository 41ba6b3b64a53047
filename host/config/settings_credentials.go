package config

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/netx"
)

// A ServerAuth chooses how requests to a server are authorized. The empty value is AuthStatic for a command and
// for a server with a header Authorization, and AuthGateway for others.
type ServerAuth string

// Ways to authorize requests.
const (
	AuthNone    ServerAuth = "none"    // not at all
	AuthStatic  ServerAuth = "static"  // by the headers or the environment of the server in the file
	AuthGateway ServerAuth = "gateway" // by a login of the local user, for all callers
	AuthCaller  ServerAuth = "caller"  // by a login of each caller, for this caller only
	AuthForward ServerAuth = "forward" // by the headers of the caller that ForwardHeaders names
)

// An OAuthClient identifies the program to authorization servers. The zero value suits a program that
// is registered nowhere.
type OAuthClient struct {
	// ClientID is the ID of a client that is registered in advance at Issuer. Default: the program
	// registers itself.
	ClientID string `json:"clientId,omitzero" jsonschema:"id of a client registered at issuer,minLength=1"`
	// ClientSecret names the environment variable that contains the secret of the client. Default: the
	// client is public.
	ClientSecret string `json:"clientSecret,omitzero" jsonschema:"its variable name,pattern=^[A-Za-z_][A-Za-z0-9_]*$"`
	// Issuer is the only authorization server that the program uses. ClientID requires it.
	Issuer string `json:"issuer,omitzero" jsonschema:"the only authorization server,pattern=^https?://"`
	// Scopes contains scopes to request in addition to the scopes that the server asks for.
	Scopes []string `json:"scopes,omitzero" jsonschema:"scopes to request,minLength=1,maxLength=256"`
	// InsecureUnlistedPKCE allows logins at Issuer if its metadata does not list PKCE methods.
	// OmitResource omits the parameter resource, which some authorization servers reject. Both
	// require Issuer; see [oauthclient.Identity].
	InsecureUnlistedPKCE bool `json:"insecureUnlistedPKCE,omitzero" jsonschema:"accept missing PKCE methods"`
	OmitResource         bool `json:"omitResource,omitzero" jsonschema:"for an issuer that refuses the parameter resource"` //nolint:lll // a tag
}

// credentials checks how requests to a server are authorized.
func (p *Problems) credentials(name string, s *ServerSettings, at func(member ...string) string) {
	for i, header := range s.ForwardHeaders {
		p.checkForwarded(header, at("forwardHeaders", strconv.Itoa(i)))
		s.ForwardHeaders[i] = http.CanonicalHeaderKey(header)
	}
	switch perCaller := s.Auth == AuthCaller || s.Auth == AuthForward; {
	case perCaller && s.Share == ShareShared:
		p.Add(at("share"), "got \"shared\" with \"auth\": %q: the credentials of a caller are for its own "+
			"instance, want \"caller\", \"session\" or \"call\"", s.Auth)
	case s.Auth != AuthForward && len(s.ForwardHeaders) > 0:
		p.Add(at("forwardHeaders"), "is for \"auth\": \"forward\"")
	case s.Auth != AuthForward && s.InsecureForwardAuthorization:
		p.Add(at("insecureForwardAuthorization"), "is for \"auth\": \"forward\"")
	case s.Auth == AuthForward && len(s.ForwardHeaders) == 0 && !s.InsecureForwardAuthorization:
		p.Add(at("auth"), "got \"forward\" without forwardHeaders: name the headers to pass on")
	case p.has("servers", name, "oauth") && s.Auth != AuthCaller && s.Auth != AuthGateway:
		p.Add(at("oauth"), "is for \"auth\": \"caller\" or \"gateway\"")
	case s.OAuth.ClientID != "" && s.OAuth.Issuer == "":
		p.Add(at("oauth"), "has clientId without issuer, the only authorization server that gets it")
	case (s.OAuth.InsecureUnlistedPKCE || s.OAuth.OmitResource) && s.OAuth.Issuer == "":
		p.Add(at("oauth"), "has insecureUnlistedPKCE or omitResource without issuer, which they are for")
	case s.OAuth.ClientID == "" && s.OAuth.ClientSecret != "":
		p.Add(at("oauth"), "has clientSecret without clientId")
	}
	entry, err := p.file.Server(name)
	if err != nil {
		return // an error of the server
	}
	p.checkAuth(entry, s, at)
}

// checkAuth checks the credentials against the entry of the server.
func (p *Problems) checkAuth(entry *Server, s *ServerSettings, at func(member ...string) string) {
	switch shared := s.Share == ShareShared || s.Share == ShareCluster; {
	case s.Share == ShareCluster && entry.Type != TypeStdio:
		p.Add(at("share"), "got \"cluster\", and the server has a URL, which all gateways can use: want \"shared\", "+
			"\"caller\", \"session\" or \"call\"")
	case shared && entry.UsesCaller():
		p.Add(at("share"), "got %q, and the server has ${caller:subject}: want \"caller\", \"session\" or "+
			"\"call\"", s.Share)
	}
	switch s.Auth {
	case AuthGateway, AuthCaller, AuthForward:
		if entry.Type == TypeStdio {
			p.Add(at("auth"), "got %q, and the server is a command: want \"none\" or \"static\"", s.Auth)
			return
		}
	}
	switch s.Auth {
	case AuthNone, AuthGateway, AuthCaller:
		for header := range entry.Header {
			if strings.EqualFold(header, "Authorization") {
				p.Add(at("auth"), "got %q, and the server has a header Authorization: want \"static\"", s.Auth)
			}
		}
	}
}

// notForwarded are headers that a connection, the protocol or the host needs. Cookies are for the
// gateway.
var notForwarded = []string{"Accept", "Accept-Encoding", "Connection", "Content-Encoding", "Content-Length",
	"Content-Type", "Cookie", "Expect", "Forwarded", "Host", "Keep-Alive", "Last-Event-Id", "Origin",
	"Proxy-Authenticate", "Proxy-Authorization", "Proxy-Connection", "Referer", "Te", "Trailer",
	"Transfer-Encoding", "Upgrade", "Via"}

func (p *Problems) checkForwarded(header, at string) {
	name := http.CanonicalHeaderKey(header)
	switch {
	case !netx.IsToken(header):
		p.Add(at, "got %.64q, want the name of a header", header)
	case name == "Authorization":
		p.Add(at, "got \"Authorization\": set \"insecureForwardAuthorization\" to pass on what authorizes callers "+
			"at the gateway; the server can use it as they do")
	case slices.Contains(notForwarded, name) || strings.HasPrefix(name, "Mcp-") || strings.HasPrefix(name, "Sec-"):
		p.Add(at, "got %.64q: this header does not belong to the caller alone, and cannot be passed on", header)
	}
}
