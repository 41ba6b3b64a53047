package gatewayconfig

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

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
	// ViewListen is the address of the listener for the pages of apps as host:port. Default:
	// 127.0.0.1:6281, or a free port if ViewOrigin is empty.
	ViewListen string `json:"viewListen,omitzero" jsonschema:"address for the pages of apps as host:port"`
	// ViewOrigin is the URL without a path by which browsers reach ViewListen, whose host must not
	// be the host of PublicURL. If it is empty, a console with a PublicURL shows no apps.
	ViewOrigin string `json:"viewOrigin,omitzero" jsonschema:"URL of the pages of apps,pattern=^https?://"`
	// Roles lets users of Auth.OIDC log in; nil means that only keys with a role log in.
	Roles *ConsoleRoles `json:"roles,omitzero" jsonschema:"roles of the users of auth.oidc; absent for none"`
	// Proxy is the reverse proxy at PublicURL if it authenticates people; nil means that no header
	// identifies a person.
	Proxy *ConsoleProxy `json:"proxy,omitzero" jsonschema:"reverse proxy that authenticates people; absent for none"`
}

// A ConsoleProxy is a reverse proxy that authenticates the people who use a console, and names them in
// headers. A request with these headers from another client is refused.
type ConsoleProxy struct {
	// User is the header with the name of the person, and Groups the header with the names of the
	// groups, with commas between them. Without Groups, people have no groups.
	User   string `json:"user" jsonschema:"header with the name of the person,pattern=^[A-Za-z0-9-]{1,64}$"`
	Groups string `json:"groups,omitzero" jsonschema:"header with the groups,pattern=^[A-Za-z0-9-]{1,64}$"`
	// Peers contains the addresses of the proxy, and prefixes such as 10.1.0.0/24. Default: all.
	Peers []string `json:"peers,omitzero" jsonschema:"addresses and prefixes of the proxy; absent for all"`
	// Secret is the name of the environment variable with the secret that the proxy sends in the header
	// SecretHeader. It is required unless Peers contains only addresses of other machines.
	Secret       string `json:"secret,omitzero" jsonschema:"its variable,pattern=^[A-Za-z_][A-Za-z0-9_]*$"`
	SecretHeader string `json:"secretHeader" jsonschema:"its header,pattern=^[A-Za-z0-9-]+$,default=X-Patchbay-Proxy"`
	// Viewer contains the people who may read, and Operator the people who may do everything, each as
	// user:NAME or group:NAME. Other people are refused.
	Viewer   []string `json:"viewer,omitzero" jsonschema:"user:NAME or group:NAME who may read,pattern=^(user|group):."`
	Operator []string `json:"operator,omitzero" jsonschema:"who may do everything,pattern=^(user|group):."`
}

// Prefixes returns Peers, or an error for an invalid address.
func (x *ConsoleProxy) Prefixes() (all []netip.Prefix, err error) {
	for _, peer := range x.Peers {
		prefix, err := netip.ParsePrefix(peer)
		if addr, isAddr := netip.ParseAddr(peer); isAddr == nil {
			prefix, err = addr.Prefix(addr.BitLen())
		}
		if err != nil || prefix.Addr().Is4In6() {
			return nil, fmt.Errorf("got %.64q, want an address such as 10.1.0.5, or a prefix such as 10.1.0.0/24", peer)
		}
		all = append(all, prefix)
	}
	return all, nil
}

// check checks the member proxy. Any user of this machine can connect from it, so an address of this
// machine identifies nobody.
func (x *ConsoleProxy) check(p *config.Problems, publicURL string) {
	if x == nil {
		return
	}
	prefixes, err := x.Prefixes()
	if err != nil {
		p.Add("/console/proxy/peers", "%v", err)
	}
	isLocal := func(x netip.Prefix) bool {
		return x.Contains(netip.IPv6Loopback()) || x.Overlaps(netip.MustParsePrefix("127.0.0.0/8"))
	}
	if x.Secret == "" && (len(prefixes) == 0 || slices.ContainsFunc(prefixes, isLocal)) {
		p.Add("/console/proxy/secret", "want the variable of a secret: without it, other programs of a peer could "+
			"name any person, unless peers contains only addresses of other machines")
	}
	if publicURL == "" {
		p.Add("/console/proxy", "want console.publicURL, the URL of the proxy")
	}
	if names := []string{x.User, x.Groups, x.SecretHeader}; strings.EqualFold(names[0], names[1]) ||
		strings.EqualFold(names[0], names[2]) || strings.EqualFold(names[1], names[2]) {
		p.Add("/console/proxy", "want different headers in user, groups and secretHeader")
	}
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
	c.ViewOrigin = checkPublicURL(p, "/console/viewOrigin", c.ViewOrigin)
	if c.ViewOrigin != "" && netx.SameHost(c.ViewOrigin, c.PublicURL) {
		p.Add("/console/viewOrigin", "got %.100q, want another host than publicURL, which isolates apps", c.ViewOrigin)
	}
	if v := c.ViewListen; v != "" && (!isAddress(v) || v == c.Listen || v == s.Listen || v == s.Ops) {
		p.Add("/console/viewListen", "got %.64q, want host:port, such as \"127.0.0.1:6281\", of its own", v)
	}
	switch host, _, _ := net.SplitHostPort(c.Listen); {
	case !isAddress(c.Listen) || c.Listen == s.Listen || c.Listen == s.Ops:
		p.Add("/console/listen", "got %.64q, want host:port, such as \"127.0.0.1:6280\", other than listen and ops",
			c.Listen)
	case c.PublicURL == "" && !netx.IsLocalHost(host):
		p.Add("/console/listen", "got %q, which other machines reach: want publicURL with an https URL", c.Listen)
	}
	c.Proxy.check(p, c.PublicURL)
	if c.Roles != nil && (s.Auth == nil || s.Auth.OIDC == nil || s.Auth.OIDC.ClientID == "") {
		p.Add("/console/roles", "want auth.oidc with clientId, as which the console logs users in")
	}
}
