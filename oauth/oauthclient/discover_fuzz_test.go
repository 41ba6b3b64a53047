package oauthclient_test

import (
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// FuzzDiscovery fuzzes the challenge and every document of a discovery. Requests must go to valid
// URLs at public addresses, the first of them to the MCP server's own origin or to the URL in the
// challenge, and the result must be that of the right resource and issuer. Run it with
// -fuzzminimizetime 1x: TLS is not deterministic, so that minimizing does not end.
func FuzzDiscovery(f *testing.F) {
	good := resourceDoc(mcpServer, issuer)
	f.Add("", good, serverDoc(issuer))
	f.Add(mcpPath, good, serverDoc(issuer))
	f.Add("https://evil.example/x", good, serverDoc("https://evil.example"))
	for _, bad := range refusedURLs(f) {
		f.Add(bad, resourceDoc(mcpServer, bad), serverDoc(bad))
		f.Add("", resourceDoc(bad, issuer), strings.Replace(serverDoc(issuer), issuer+"/token", bad, 1))
	}
	w := newNetwork(f)
	w.At("inside.example", "10.0.0.1")
	fetcher := w.fetcher(nil)
	f.Fuzz(func(t *testing.T, pointer, resource, server string) {
		w.Default = func(rw http.ResponseWriter, r *http.Request) {
			text := resource
			if strings.Contains(r.URL.Path, "oauth-authorization-server") ||
				strings.Contains(r.URL.Path, "openid-configuration") {
				text = server
			}
			oauthtest.JSONPage(text)(rw, r)
		}
		d, err := oauthclient.Discover(t.Context(), fetcher,
			&oauthclient.DiscoveryQuery{Endpoint: mcpServer, Challenge: metadataChallenge(pointer)})
		for i, r := range w.Requests() {
			asked := strings.TrimPrefix(r, "GET ")
			if _, err := oauthfetch.CheckURL(asked); err != nil {
				t.Fatalf("requested %q: %v", asked, err)
			}
			if i == 0 && !strings.HasPrefix(asked, "https://mcp.example/") && !isSameHost(asked, pointer) {
				t.Fatalf("requested %q first, want a URL of https://mcp.example or the challenge", asked)
			}
		}
		for _, a := range w.Addresses() {
			if oauthfetch.ScopeOf(a) != oauthfetch.Public || a.IsPrivate() || a.IsLoopback() || a.IsLinkLocalUnicast() {
				t.Fatalf("connected to %v", a)
			}
		}
		if err == nil {
			if err := checkDiscovery(d); err != nil {
				t.Fatalf("got %+v, %+v: %v", d, d.Server, err)
			}
		}
	})
}

func isSameHost(a, b string) bool {
	u, err := url.Parse(a)
	v, invalid := url.Parse(b)
	return err == nil && invalid == nil && strings.EqualFold(u.Hostname(), v.Hostname())
}

func checkDiscovery(d *oauthclient.Discovery) error {
	if d.Resource != "" {
		u, err := url.Parse(d.Resource)
		if err != nil || !strings.EqualFold(u.Hostname(), "mcp.example") ||
			!strings.HasPrefix("/mcp/", strings.TrimSuffix(u.Path, "/")+"/") && u.Path != "" {
			return fmt.Errorf("invalid resource %q", d.Resource)
		}
	}
	if d.Server.Issuer != d.Issuer && !d.Conventional {
		return fmt.Errorf("invalid issuer %q", d.Server.Issuer)
	}
	s := d.Server
	for _, text := range []string{
		s.Issuer, s.TokenEndpoint, s.AuthorizationEndpoint, s.RegistrationEndpoint, s.RevocationEndpoint,
		s.IntrospectionEndpoint,
		s.UserinfoEndpoint, s.JWKSURI,
	} {
		if text == "" {
			continue
		}
		if _, err := oauthfetch.CheckURL(text); err != nil {
			return fmt.Errorf("%q: %w", text, err)
		}
		if u, err := url.Parse(text); err == nil {
			if a, err := netip.ParseAddr(u.Hostname()); err == nil && oauthfetch.ScopeOf(a) != oauthfetch.Public {
				return fmt.Errorf("URL %q with a private address", text)
			}
		}
	}
	return nil
}
