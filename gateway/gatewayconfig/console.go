package gatewayconfig

import (
	"net"

	"github.com/patchbay-mcp/patchbay/gateway/internal/netx"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// A Console configures the web console of a gateway.
type Console struct {
	// Listen is the address of the console as host:port. Default: 127.0.0.1:6280.
	Listen string `json:"listen" jsonschema:"address of the console as host:port,default=127.0.0.1:6280"`
	// PublicURL is the URL without a path by which other machines reach the console: the https URL
	// of a reverse proxy with TLS. If it is empty, only this machine reaches the console.
	PublicURL string `json:"publicURL,omitzero" jsonschema:"URL of the console for browsers,pattern=^https?://"`
	// Roles lets users of Auth.OIDC log in; nil means that only keys with a role log in.
	Roles *ConsoleRoles `json:"roles,omitzero" jsonschema:"roles of the users of auth.oidc; absent for none"`
}

// ConsoleRoles maps values of a claim of ID tokens, a text or a list of texts, to roles in the
// console.
type ConsoleRoles struct {
	// Claim is the name of the claim. Default: groups.
	Claim string `json:"claim" jsonschema:"claim of ID tokens,minLength=1,maxLength=256,default=groups"`
	// Viewer contains the values of users who may read, and Operator of users who may do
	// everything.
	Viewer   []string `json:"viewer,omitzero" jsonschema:"values of users who may read"`
	Operator []string `json:"operator,omitzero" jsonschema:"values of users who may do everything"`
}

// checkConsole checks the member console. Other machines must reach the console by TLS only.
func (s *Settings) checkConsole(p *config.Problems) {
	c := s.Console
	if c == nil {
		return
	}
	c.PublicURL = checkPublicURL(p, "/console/publicURL", c.PublicURL)
	switch host, _, _ := net.SplitHostPort(c.Listen); {
	case !isAddress(c.Listen) || c.Listen == s.Listen || c.Listen == s.Ops:
		p.Add("/console/listen", "got %.64q, want host:port, such as \"127.0.0.1:6280\", other than listen and ops",
			c.Listen)
	case c.PublicURL == "" && !netx.IsLocalHost(host):
		p.Add("/console/listen", "got %q, which other machines reach: want publicURL with an https URL", c.Listen)
	}
	if c.Roles != nil && (s.Auth == nil || s.Auth.OIDC == nil || s.Auth.OIDC.ClientID == "") {
		p.Add("/console/roles", "want auth.oidc with clientId, as which the console logs users in")
	}
}
