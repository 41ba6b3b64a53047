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
	AuthForward ServerAuth = "forward" // by headers that the caller sends: those of ForwardHeaders
)

// An OAuthClient identifies the program to authorization servers. The zero value is right for a program
// that is registered nowhere.
type OAuthClient struct {
	// ClientID is the id of a client that is registered in advance at Issuer. Default: the program
	// registers itself.
	ClientID string
	// ClientSecret is the name of a variable of the environment with the secret of that client. Default:
	// it has none.
	ClientSecret string
	// Issuer is the only authorization server that is used. ClientID requires it.
	Issuer string
	// Scopes are requested in addition to those that the server asks for.
	Scopes []string
	// InsecureUnlistedPKCE allows logins at Issuer if its metadata does not list PKCE methods.
	// OmitResource omits the parameter resource, which some authorization servers reject. Both
	// require Issuer; see [oauthclient.Identity].
	InsecureUnlistedPKCE bool
	OmitResource         bool
}

// A Connect configures how the users of callers log in to servers with AuthCaller.
type Connect struct {
	// Links shows the page of a login in the result of a call whose client cannot open it: models, and
	// the logs of clients, get it too. Default: only clients that support URL elicitation get it.
	Links bool
}

type oauthClientJSON struct {
	ClientID string `json:"clientId,omitzero" jsonschema:"id of a client registered at issuer,minLength=1"`

	ClientSecret string `json:"clientSecret,omitzero" jsonschema:"its variable name,pattern=^[A-Za-z_][A-Za-z0-9_]*$"`

	Issuer string `json:"issuer,omitzero" jsonschema:"the only authorization server,pattern=^https?://"`

	Scopes []string `json:"scopes,omitzero" jsonschema:"scopes to request,minLength=1,maxLength=256"`

	InsecureUnlistedPKCE bool `json:"insecureUnlistedPKCE,omitzero" jsonschema:"accept missing PKCE methods"`

	OmitResource bool `json:"omitResource,omitzero" jsonschema:"for an issuer that refuses the parameter resource"`
}

type connectJSON struct {
	Links bool `json:"links" jsonschema:"show pages of logins in results,default=false"`
}

// credentials reads what authorizes the requests to a server.
func (r *settingsReader) credentials(name string, given *serverJSON, s *ServerSettings) {
	at := func(member ...string) string { return pointer(append([]string{"servers", name}, member...)...) }
	s.Auth, s.ForwardHeaders = given.Auth, nil
	s.InsecureForwardAuthorization, s.InsecureHTTP = given.InsecureForwardAuthorization, given.InsecureHTTP
	if given.OAuth != nil {
		s.OAuth = OAuthClient(*given.OAuth)
	}
	for i, header := range given.ForwardHeaders {
		r.checkForwarded(header, at("forwardHeaders", strconv.Itoa(i)))
		s.ForwardHeaders = append(s.ForwardHeaders, http.CanonicalHeaderKey(header))
	}
	switch perCaller := s.Auth == AuthCaller || s.Auth == AuthForward; {
	case perCaller && s.Share == ShareShared:
		r.problem(at("share"), "got \"shared\" with \"auth\": %q: the credentials of a caller are for its own "+
			"instance, want \"caller\", \"session\" or \"call\"", s.Auth)
	case s.Auth != AuthForward && len(given.ForwardHeaders) > 0:
		r.problem(at("forwardHeaders"), "is for \"auth\": \"forward\"")
	case s.Auth != AuthForward && s.InsecureForwardAuthorization:
		r.problem(at("insecureForwardAuthorization"), "is for \"auth\": \"forward\"")
	case s.Auth == AuthForward && len(given.ForwardHeaders) == 0 && !s.InsecureForwardAuthorization:
		r.problem(at("auth"), "got \"forward\" without forwardHeaders: name the headers to pass on")
	case given.OAuth != nil && s.Auth != AuthCaller && s.Auth != AuthGateway:
		r.problem(at("oauth"), "is for \"auth\": \"caller\" or \"gateway\"")
	case s.OAuth.ClientID != "" && s.OAuth.Issuer == "":
		r.problem(at("oauth"), "has clientId without issuer, the only authorization server that gets it")
	case (s.OAuth.InsecureUnlistedPKCE || s.OAuth.OmitResource) && s.OAuth.Issuer == "":
		r.problem(at("oauth"), "has insecureUnlistedPKCE or omitResource without issuer, which they are for")
	case s.OAuth.ClientID == "" && s.OAuth.ClientSecret != "":
		r.problem(at("oauth"), "has clientSecret without clientId")
	}
	entry, err := r.file.Server(name)
	if err != nil {
		return // an error of the server
	}
	r.checkAuth(entry, s, at)
}

// checkAuth checks the credentials against the entry of the server.
func (r *settingsReader) checkAuth(entry *Server, s *ServerSettings, at func(member ...string) string) {
	if entry.UsesCaller() && s.Share == ShareShared {
		r.problem(at("share"), "got \"shared\", and the server has ${caller:subject}: want \"caller\", \"session\" or "+
			"\"call\"")
	}
	switch s.Auth {
	case AuthGateway, AuthCaller, AuthForward:
		if entry.Type == TypeStdio {
			r.problem(at("auth"), "got %q, and the server is a command: want \"none\" or \"static\"", s.Auth)
			return
		}
	}
	switch s.Auth {
	case AuthNone, AuthGateway, AuthCaller:
		for header := range entry.Header {
			if strings.EqualFold(header, "Authorization") {
				r.problem(at("auth"), "got %q, and the server has a header Authorization: want \"static\"", s.Auth)
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

func (r *settingsReader) checkForwarded(header, at string) {
	name := http.CanonicalHeaderKey(header)
	switch {
	case !netx.IsToken(header):
		r.problem(at, "got %.64q, want the name of a header", header)
	case name == "Authorization":
		r.problem(at, "got \"Authorization\": set \"insecureForwardAuthorization\" to pass on what authorizes callers "+
			"at the gateway; the server can use it as they do")
	case slices.Contains(notForwarded, name) || strings.HasPrefix(name, "Mcp-") || strings.HasPrefix(name, "Sec-"):
		r.problem(at, "got %.64q: this header is not that of the caller alone, and cannot be passed on", header)
	}
}
