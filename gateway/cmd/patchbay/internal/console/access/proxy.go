package access

import (
	"fmt"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/trustedproxy"
	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// ProxyIssuer is the issuer of the principals of people whom a proxy authenticates.
const ProxyIssuer = "patchbay:proxy"

// minSecret is the least length of the secret of a proxy, in bytes: nobody guesses 16 random bytes.
const minSecret = 16

// A Proxy identifies people by the headers of a reverse proxy, for each request. It is safe for
// concurrent use.
type Proxy struct {
	proxy            trustedproxy.Proxy
	viewer, operator []string
}

// NewProxy returns the logins of a proxy. secret is the value of the variable that the settings name.
func NewProxy(c *gatewayconfig.ConsoleProxy, secret string) (*Proxy, error) {
	peers, err := c.Prefixes()
	if err != nil {
		return nil, err
	}
	if c.Secret != "" && len(secret) < minSecret {
		return nil, fmt.Errorf("the variable %s of console.proxy.secret must contain at least %d characters", c.Secret,
			minSecret)
	}
	return &Proxy{trustedproxy.Proxy{User: c.User, Groups: c.Groups, SecretHeader: c.SecretHeader, Peers: peers,
		Secret: secret}, c.Viewer, c.Operator}, nil
}

// Person returns the person whom the proxy names, or nil for a request without its headers. An error refuses the
// request; it is [ErrRefused] for a person without a role.
func (x *Proxy) Person(r *http.Request) (Person, error) {
	p, err := x.proxy.Person(r)
	if p == nil || err != nil {
		return nil, err
	}
	names := []string{"user:" + p.Name}
	for _, group := range p.Groups {
		names = append(names, "group:"+group)
	}
	role := roleOf(names, x.viewer, x.operator)
	if role == "" {
		return nil, ErrRefused
	}
	return &user{&mcp.Principal{Issuer: ProxyIssuer, Subject: p.Name, Claims: map[string]any{"groups": p.Groups}},
		role, time.Now().Add(identityTime)}, nil
}
