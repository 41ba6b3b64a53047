package oauthclient_test

import (
	"errors"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/oauth"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// serverDoc returns the valid metadata of an authorization server.
func serverDoc(issuer string) string {
	return `{"issuer":"` + issuer + `","authorization_endpoint":"` + issuer + `/authorize",` +
		`"token_endpoint":"` + issuer + `/token","registration_endpoint":"` + issuer + `/register",` +
		`"response_types_supported":["code"],"code_challenge_methods_supported":["S256"]}`
}

func resourceDoc(resource string, issuers ...string) string {
	return `{"resource":"` + resource + `","authorization_servers":["` + strings.Join(issuers,
		`","`) + `"],"scopes_supported":["a","b"]}`
}

// metadataChallenge returns a challenge with a resource_metadata parameter.
func metadataChallenge(to string) *oauth.Challenge {
	return &oauth.Challenge{Scheme: "Bearer", Params: map[string]string{"resource_metadata": to}}
}

const (
	mcpPath   = "https://mcp.example/.well-known/oauth-protected-resource/mcp"
	mcpRoot   = "https://mcp.example/.well-known/oauth-protected-resource"
	mcpBase   = "https://mcp.example/.well-known/oauth-authorization-server"
	asRoot    = "https://as.example/.well-known/oauth-authorization-server"
	asOIDC    = "https://as.example/.well-known/openid-configuration"
	issuer    = "https://as.example"
	mcpServer = "https://mcp.example/mcp"
)

// Metadata is requested in the order of each revision, and only as far as needed.
//
// Requirement: AUTHR-05
func TestOrderOfDiscovery(t *testing.T) {
	tenant := issuer + "/tenant1"
	for _, tt := range []struct {
		name      string
		endpoint  string // default: mcpServer
		challenge *oauth.Challenge
		docs      map[string]string
		want      []string
		resource  string
		issuer    string
	}{
		{
			name: "challenge", challenge: metadataChallenge("https://mcp.example/custom?x=1"),
			docs: map[string]string{"https://mcp.example/custom": resourceDoc(mcpServer, issuer), mcpPath: "bad",
				mcpRoot: "bad", asRoot: serverDoc(issuer)},
			want: []string{"https://mcp.example/custom?x=1", asRoot}, resource: mcpServer, issuer: issuer,
		},
		{
			name: "path", // Requirement: AUTHR-08
			docs: map[string]string{mcpPath: resourceDoc(mcpServer, issuer), mcpRoot: "bad",
				asRoot: serverDoc(issuer), asOIDC: "bad"},
			want: []string{mcpPath, asRoot}, resource: mcpServer, issuer: issuer,
		},
		{
			name: "root",
			docs: map[string]string{mcpRoot: resourceDoc("https://mcp.example", issuer), asRoot: serverDoc(issuer)},
			want: []string{mcpPath, mcpRoot, asRoot}, resource: "https://mcp.example", issuer: issuer,
		},
		{
			name: "challenge to a missing document", challenge: metadataChallenge("https://mcp.example/custom"),
			docs: map[string]string{mcpPath: resourceDoc(mcpServer, issuer), asRoot: serverDoc(issuer)},
			want: []string{"https://mcp.example/custom", mcpPath, asRoot}, resource: mcpServer, issuer: issuer,
		},
		{
			name: "challenge to another origin", challenge: metadataChallenge("https://metadata.example/.well-known/oauth-protected-resource/custom"),
			docs: map[string]string{"https://metadata.example/.well-known/oauth-protected-resource/custom": resourceDoc(mcpServer, issuer), mcpPath: "bad", asRoot: serverDoc(issuer)},
			want: []string{"https://metadata.example/.well-known/oauth-protected-resource/custom", asRoot}, resource: mcpServer, issuer: issuer,
		},
		{
			name: "challenge to the well-known path", challenge: metadataChallenge(mcpPath),
			docs: map[string]string{mcpRoot: resourceDoc("https://mcp.example/", issuer), asRoot: serverDoc(issuer)},
			want: []string{mcpPath, mcpRoot, asRoot}, resource: "https://mcp.example/", issuer: issuer,
		},
		{
			name: "endpoint without a path", endpoint: "https://mcp.example",
			docs: map[string]string{mcpRoot: resourceDoc("https://mcp.example", issuer), asRoot: serverDoc(issuer)},
			want: []string{mcpRoot, asRoot}, resource: "https://mcp.example", issuer: issuer,
		},
		{
			name: "endpoint with an empty path", endpoint: "https://mcp.example/",
			docs: map[string]string{mcpRoot: resourceDoc("https://mcp.example", issuer), asRoot: serverDoc(issuer)},
			want: []string{mcpRoot, asRoot}, resource: "https://mcp.example", issuer: issuer,
		},
		{
			name: "endpoint with a slash at the end", endpoint: mcpServer + "/",
			docs: map[string]string{mcpPath: resourceDoc(mcpServer, issuer), asRoot: serverDoc(issuer)},
			want: []string{mcpPath + "/", mcpPath, asRoot}, resource: mcpServer, issuer: issuer,
		},
		{
			name: "endpoint with a query and a strange path", endpoint: "https://mcp.example/a%2Fb/c?key=s3cret",
			docs: map[string]string{mcpRoot + "/a%2Fb/c": resourceDoc("https://mcp.example/a%2Fb", issuer),
				asRoot: serverDoc(issuer)},
			want: []string{mcpRoot + "/a%2Fb/c", asRoot}, resource: "https://mcp.example/a%2Fb", issuer: issuer,
		},
		{
			name: "OpenID Connect", // Requirement: AUTHR-10, AUTHR-12
			docs: map[string]string{mcpPath: resourceDoc(mcpServer, issuer), asOIDC: serverDoc(issuer)},
			want: []string{mcpPath, asRoot, asOIDC}, resource: mcpServer, issuer: issuer,
		},
		{
			name: "issuer with a path, RFC 8414", // Requirement: AUTHR-11
			docs: map[string]string{mcpPath: resourceDoc(mcpServer, tenant), asRoot: "bad",
				asRoot + "/tenant1": serverDoc(tenant)},
			want: []string{mcpPath, asRoot + "/tenant1"}, resource: mcpServer, issuer: tenant,
		},
		{
			name: "issuer with a path, OpenID Connect inserted", // Requirement: AUTHR-11
			docs: map[string]string{mcpPath: resourceDoc(mcpServer, tenant), asOIDC + "/tenant1": serverDoc(tenant)},
			want: []string{mcpPath, asRoot + "/tenant1", asOIDC + "/tenant1"}, resource: mcpServer, issuer: tenant,
		},
		{
			name: "issuer with a path, OpenID Connect appended", // Requirement: AUTHR-11
			docs: map[string]string{mcpPath: resourceDoc(mcpServer, tenant),
				tenant + "/.well-known/openid-configuration": serverDoc(tenant)},
			want: []string{mcpPath, asRoot + "/tenant1", asOIDC + "/tenant1",
				tenant + "/.well-known/openid-configuration"}, resource: mcpServer, issuer: tenant,
		},
		{
			name: "issuer with a path and a slash at the end",
			docs: map[string]string{mcpPath: resourceDoc(mcpServer, tenant+"/"),
				asRoot + "/tenant1": serverDoc(tenant + "/")},
			want: []string{mcpPath, asRoot + "/tenant1"}, resource: mcpServer, issuer: tenant + "/",
		},
		{
			name: "issuer with an empty path",
			docs: map[string]string{mcpPath: resourceDoc(mcpServer, issuer+"/"), asRoot: serverDoc(issuer + "/")},
			want: []string{mcpPath, asRoot}, resource: mcpServer, issuer: issuer + "/",
		},
		{
			name: "the first of two authorization servers",
			docs: map[string]string{mcpPath: resourceDoc(mcpServer, issuer, "https://b.example"),
				asRoot: serverDoc(issuer), "https://b.example/.well-known/oauth-authorization-server": "bad"},
			want: []string{mcpPath, asRoot}, resource: mcpServer, issuer: issuer,
		},
		{
			name: "the first of two authorization servers has no metadata",
			docs: map[string]string{mcpPath: resourceDoc(mcpServer, issuer, "https://b.example"),
				"https://b.example/.well-known/oauth-authorization-server": serverDoc("https://b.example")},
			want: []string{mcpPath, asRoot, asOIDC,
				"https://b.example/.well-known/oauth-authorization-server"}, resource: mcpServer, issuer: "https://b.example",
		},
		{
			name: "2025-03-26, metadata",
			docs: map[string]string{mcpBase: serverDoc("https://mcp.example")},
			want: []string{mcpPath, mcpRoot, mcpBase}, issuer: "https://mcp.example",
		},
		{
			name: "2025-03-26, metadata whose issuer ends with a slash",
			docs: map[string]string{mcpBase: serverDoc("https://mcp.example/")},
			want: []string{mcpPath, mcpRoot, mcpBase}, issuer: "https://mcp.example/",
		},
		{
			name: "2025-03-26, nothing",
			want: []string{mcpPath, mcpRoot, mcpBase}, issuer: "https://mcp.example",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newNetwork(t)
			for url, text := range tt.docs {
				w.Doc(url, text)
			}
			if tt.endpoint == "" {
				tt.endpoint = mcpServer
			}
			d, err := oauthclient.Discover(t.Context(), w.fetcher(nil),
				&oauthclient.DiscoveryQuery{Endpoint: tt.endpoint, Challenge: tt.challenge})
			if err != nil {
				t.Fatal(err)
			}
			if d.Resource != tt.resource || d.Issuer != tt.issuer || d.Server.Issuer != tt.issuer ||
				(d.Metadata == nil) != (d.Resource == "") {
				t.Errorf("got %+v, want resource %q and issuer %q", d, tt.resource, tt.issuer)
			}
			if d.Conventional != (tt.name == "2025-03-26, nothing") {
				t.Errorf("got Conventional %t, want %t", d.Conventional, !d.Conventional)
			}
			if err := oauthclient.CheckCodeFlow(d); err != nil {
				t.Error(err)
			}
			for i := range tt.want {
				tt.want[i] = "GET " + tt.want[i]
			}
			if got := w.Requests(); !slices.Equal(got, tt.want) {
				t.Errorf("requested\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(tt.want, "\n"))
			}
		})
	}
}

// Without any metadata the endpoints are those of 2025-03-26, at the origin of the MCP server.
//
// Requirement: AUTHB-05, AUTHB-06
func TestDefaultEndpoints(t *testing.T) {
	w := newNetwork(t)
	d, err := oauthclient.Discover(t.Context(), w.fetcher(nil),
		&oauthclient.DiscoveryQuery{Endpoint: "https://mcp.example:8443/v1/mcp", Revision: "2025-03-26"})
	if err != nil {
		t.Fatal(err)
	}
	s := d.Server
	if !d.Conventional || d.Resource != "" || s.AuthorizationEndpoint != "https://mcp.example:8443/authorize" ||
		s.TokenEndpoint != "https://mcp.example:8443/token" ||
		s.RegistrationEndpoint != "https://mcp.example:8443/register" {
		t.Errorf("got %+v, %+v; want the default endpoints at the server's origin", d, s)
	}
	if got := w.LastHeader().Get("MCP-Protocol-Version"); got != "2025-03-26" {
		t.Errorf("got MCP-Protocol-Version %q, want 2025-03-26", got)
	}
}

// The caller's preferred issuers select among those that the resource names; others are ignored.
//
// Requirement: AUTHR-06
func TestPreferredIssuer(t *testing.T) {
	const other = "https://b.example"
	for _, tt := range []struct {
		prefer []string
		want   string
	}{
		{nil, issuer},
		{[]string{other}, other},
		{[]string{"https://evil.example", other}, other},
		{[]string{other, issuer}, other},
		{[]string{"https://evil.example"}, issuer},
		{[]string{other + "/"}, other},
	} {
		w := newNetwork(t)
		w.Doc(mcpPath, resourceDoc(mcpServer, issuer, other))
		for _, i := range []string{issuer, other, "https://evil.example"} {
			w.Doc(i+"/.well-known/oauth-authorization-server", serverDoc(i))
		}
		d, err := oauthclient.Discover(t.Context(), w.fetcher(nil),
			&oauthclient.DiscoveryQuery{Endpoint: mcpServer, Prefer: tt.prefer})
		if err != nil || d.Issuer != tt.want {
			t.Errorf("prefer %v: got %+v, error %v; want issuer %s", tt.prefer, d, err, tt.want)
		}
	}
}

// Invalid metadata ends the discovery: no other document is requested.
func TestInvalidMetadataEndsDiscovery(t *testing.T) {
	for _, tt := range []struct {
		name string
		docs map[string]string
		asks int
	}{
		{"resource at another host", map[string]string{mcpPath: resourceDoc("https://evil.example/mcp", issuer)}, 1},
		{"resource with another path", map[string]string{mcpPath: resourceDoc("https://mcp.example/other", issuer)}, 1},
		{"resource below", map[string]string{mcpPath: resourceDoc(mcpServer+"/more", issuer)}, 1},
		{"resource with half a segment", map[string]string{mcpPath: resourceDoc("https://mcp.example/mc", issuer)}, 1},
		{"resource with http", map[string]string{mcpPath: resourceDoc("http://mcp.example/mcp", issuer)}, 1},
		{"resource with a fragment", map[string]string{mcpPath: resourceDoc(mcpServer+"#f", issuer)}, 1},
		{"resource with a query", map[string]string{mcpPath: resourceDoc(mcpServer+"?a=b", issuer)}, 1},
		{"no resource", map[string]string{mcpPath: `{"authorization_servers":["` + issuer + `"]}`}, 1},
		{"no authorization server", map[string]string{mcpPath: `{"resource":"` + mcpServer + `"}`}, 1},
		{"not JSON", map[string]string{mcpPath: `<html>`}, 1},
		{"a wrong type", map[string]string{mcpPath: `{"resource":["` + mcpServer + `"]}`}, 1},
		{"two resources", map[string]string{mcpPath: `{"resource":"https://evil.example","resource":"` + mcpServer +
			`","authorization_servers":["` + issuer + `"]}`}, 1},
		{"issuer with a query", map[string]string{mcpPath: resourceDoc(mcpServer, issuer+"?x")}, 1},
		{"issuer with a fragment", map[string]string{mcpPath: resourceDoc(mcpServer, issuer+"#")}, 1},
		{"issuer that is empty", map[string]string{mcpPath: resourceDoc(mcpServer, "")}, 1},
		{"issuer with http", map[string]string{mcpPath: resourceDoc(mcpServer, "http://as.example")}, 1},
		// Requirement: AUTHR-13
		{"another issuer", map[string]string{asRoot: serverDoc("https://evil.example")}, 2},
		// Requirement: AUTHR-13
		{"issuer in another case", map[string]string{asRoot: serverDoc("https://AS.example")}, 2},
		// Requirement: AUTHR-13
		{"issuer with its port", map[string]string{asRoot: serverDoc(issuer + ":443")}, 2},
		// Requirement: AUTHR-13
		{"no issuer", map[string]string{asRoot: `{"token_endpoint":"https://as.example/token"}`}, 2},
		{"no token endpoint", map[string]string{asRoot: `{"issuer":"` + issuer + `"}`}, 2},
		{"server metadata that is not JSON", map[string]string{asRoot: `{`}, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newNetwork(t)
			w.Doc(mcpPath, resourceDoc(mcpServer, issuer))
			w.Doc(mcpRoot, resourceDoc(mcpServer, issuer))
			w.Doc(asOIDC, serverDoc(issuer))
			for url, text := range tt.docs {
				w.Doc(url, text)
			}
			d, err := oauthclient.Discover(t.Context(), w.fetcher(nil),
				&oauthclient.DiscoveryQuery{Endpoint: mcpServer})
			var bad *oauth.DiscoveryError
			if !errors.As(err, &bad) {
				t.Errorf("got %+v, error %v; want a DiscoveryError", d, err)
			}
			if got := w.Requests(); len(got) != tt.asks {
				t.Errorf("requested %v, want %d requests", got, tt.asks)
			}
		})
	}
}

// Metadata of 2025-03-26 must have the MCP server's origin as its issuer.
//
// Requirement: AUTHB-03
func TestMetadataOfAnotherIssuer(t *testing.T) {
	for _, issuer := range []string{"https://evil.example", "https://mcp.example/mcp", "https://mcp.example//",
		"http://mcp.example"} {
		w := newNetwork(t)
		w.Doc(mcpBase, serverDoc(issuer))
		var bad *oauth.DiscoveryError
		d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer})
		if !errors.As(err, &bad) {
			t.Errorf("%s: got %+v, error %v; want a DiscoveryError", issuer, d, err)
		}
	}
}

// A status other than 200 continues or ends the discovery.
func TestStatusesOfMetadata(t *testing.T) {
	const (
		continues     = iota // as if the document were missing
		continuesOnly        // to other documents, but not to the default endpoints
		ends
	)
	for status, means := range map[int]int{
		400: continuesOnly, 401: continuesOnly, 403: continuesOnly, 404: continues, 405: continuesOnly,
		406: continuesOnly, 410: continuesOnly,
		408: ends, 429: ends, 500: ends, 502: ends, 503: ends, 204: ends, 304: ends,
	} {
		// In front of metadata that is there.
		w := newNetwork(t)
		w.Page(mcpPath, statusPage(status))
		w.Doc(mcpRoot, resourceDoc(mcpServer, issuer))
		w.Page(asRoot, statusPage(status))
		w.Doc(asOIDC, serverDoc(issuer))
		_, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer})
		if (err == nil) != (means != ends) {
			t.Errorf("%d before a document: got error %v, want success %t", status, err, means != ends)
		}
		// In place of all metadata. Only a document that is certainly missing leads to the
		// default endpoints.
		for _, at := range []string{mcpPath, mcpRoot, mcpBase} {
			w := newNetwork(t)
			w.Page(at, statusPage(status))
			d, err := oauthclient.Discover(t.Context(), w.fetcher(nil),
				&oauthclient.DiscoveryQuery{Endpoint: mcpServer})
			if (err == nil) != (means == continues) || means == continuesOnly && !errors.Is(err, oauth.ErrNoMetadata) {
				t.Errorf("%d in place of %s: got %+v, error %v; want success %t", status, at, d, err,
					means == continues)
			}
		}
	}
}

// A server whose challenge names resource metadata is not treated as a server of 2025-03-26.
func TestNoDefaultEndpointsAfterChallenge(t *testing.T) {
	for _, to := range []string{"https://mcp.example/custom", "https://evil.example/x", "http://mcp.example/x",
		"javascript:x"} {
		w := newNetwork(t)
		w.Doc(mcpBase, serverDoc("https://mcp.example"))
		d, err := oauthclient.Discover(t.Context(), w.fetcher(nil),
			&oauthclient.DiscoveryQuery{Endpoint: mcpServer, Challenge: metadataChallenge(to)})
		if !errors.Is(err, oauth.ErrNoMetadata) {
			t.Errorf("%s: got %+v, error %v; want ErrNoMetadata", to, d, err)
			continue
		}
		missed := "https://mcp.example/.well-known/oauth-protected-resource/mcp" // an invalid URL in a challenge is ignored
		if to == "https://mcp.example/custom" {
			missed = to
		}
		if !strings.Contains(err.Error(), " at "+missed+" (HTTP 404)") {
			t.Errorf("%s: got error %v, want it to name %s (HTTP 404)", to, err, missed)
		}
	}
}

// There are no default endpoints for an authorization server that the resource names.
func TestNamedAuthorizationServerWithoutMetadata(t *testing.T) {
	w := newNetwork(t)
	all := []string{"https://1.example", "https://2.example", "https://3.example", "https://4.example",
		"https://5.example"}
	w.Doc(mcpPath, resourceDoc(mcpServer, all...))
	w.Doc("https://5.example/.well-known/oauth-authorization-server", serverDoc("https://5.example"))
	d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer})
	if !errors.Is(err, oauth.ErrNoMetadata) {
		t.Errorf("got %+v, error %v; want ErrNoMetadata", d, err)
	}
	if got := w.Requests(); len(got) != 1+2*oauthclient.MaxServers {
		t.Errorf("requested %v, want %d requests", got, 1+2*oauthclient.MaxServers)
	}
}

// A discovery takes at most 10 seconds in all, also if each document arrives in time.
func TestDiscoveryTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newNetwork(t)
		slow := func(text string) http.HandlerFunc {
			return func(rw http.ResponseWriter, req *http.Request) {
				time.Sleep(4 * time.Second)
				oauthtest.JSONPage(text)(rw, req)
			}
		}
		w.Page(mcpPath, slow(resourceDoc(mcpServer, issuer)))
		w.Page(asRoot, func(rw http.ResponseWriter, req *http.Request) {
			time.Sleep(4 * time.Second)
			rw.WriteHeader(http.StatusNotFound)
		})
		w.Page(asOIDC, slow(serverDoc(issuer)))
		start := time.Now()
		_, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer})
		if took := time.Since(start); err == nil || took != 10*time.Second {
			t.Errorf("took %v with error %v, want an error after 10s", took, err)
		}
	})
}

// Requirement: AUTHR-07, AUTHR-15
func TestResourceContainsEndpoint(t *testing.T) {
	f := newNetwork(t).fetcher(nil)
	for _, tt := range []struct {
		endpoint, resource string
		ok                 bool
	}{
		{mcpServer, mcpServer, true},
		{mcpServer, "https://MCP.Example/mcp", true},
		{mcpServer, "HTTPS://mcp.example/mcp", true},
		{mcpServer, "https://mcp.example:443/mcp", true},
		{"https://mcp.example:443/mcp", mcpServer, true},
		{"https://MCP.example/mcp", mcpServer, true},
		{mcpServer, "https://mcp.example", true},
		{mcpServer, "https://mcp.example/", true},
		{mcpServer, mcpServer + "/", true},
		{mcpServer + "/", mcpServer, true},
		{mcpServer + "/a/b", mcpServer, true},
		{mcpServer + "/a/b", mcpServer + "/a/", true},
		{mcpServer + "?a=b", mcpServer, true},
		{mcpServer + "?a=b", mcpServer + "?a=b", true},
		{"https://mcp.example", "https://mcp.example", true},
		{"https://mcp.example", "https://mcp.example/", true},
		{mcpServer, "https://mcp.example/MCP", false},
		{mcpServer, "https://mcp.example/mc", false},
		{mcpServer, "https://mcp.example/mcp2", false},
		{mcpServer, "https://mcp.example/mcp/x", false},
		{mcpServer, "https://mcp.example//", false},
		{mcpServer, "https://mcp.example/%6dcp", false},
		{mcpServer, "https://mcp.example/x/../mcp", false},
		{mcpServer, "https://mcp.example:8443/mcp", false},
		{mcpServer, "https://mcp.example.evil.example/mcp", false},
		{mcpServer, "https://evil.example/mcp", false},
		{mcpServer, "https://example/mcp", false},
		{mcpServer, "http://mcp.example/mcp", false},
		{mcpServer, "https://mcp.example/mcp?a=b", false},
		{mcpServer, "https://mcp.example/mcp?", false},
		{mcpServer + "?a=b", mcpServer + "?a=c", false},
		{mcpServer, "https://user@mcp.example/mcp", false},
		{mcpServer, mcpServer + "#", false},
		{mcpServer, "mcp.example/mcp", false},
		{mcpServer, "", false},
		{"https://mcp.example/a/../b", "https://mcp.example/a", false},
		{"https://mcp.example/a/%2e%2E/b", "https://mcp.example/a", false},
		{"https://mcp.example/a/../b", "https://mcp.example/a/../b", true},
	} {
		endpoint, err := url.Parse(tt.endpoint)
		if err != nil {
			t.Fatal(err)
		}
		if err := oauthclient.CheckResource(f.For(endpoint), tt.resource, endpoint); (err == nil) != tt.ok {
			t.Errorf("%s for %s: got error %v, want success %t", tt.resource, tt.endpoint, err, tt.ok)
		}
	}
}

// Metadata without S256 is refused, from RFC 8414 and OpenID Connect documents alike.
//
// Requirement: AUTHR-20
func TestCheckCodeFlow(t *testing.T) {
	for methods, ok := range map[string]bool{
		`"code_challenge_methods_supported":["S256"]`:         true,
		`"code_challenge_methods_supported":["plain","S256"]`: true,
		`"code_challenge_methods_supported":["plain"]`:        false,
		`"code_challenge_methods_supported":["s256"]`:         false,
		`"code_challenge_methods_supported":[]`:               false,
		`"code_challenge_methods_supported":null`:             false,
		`"x":1`: false,
	} {
		for _, at := range []string{asRoot, asOIDC} {
			w := newNetwork(t)
			w.Doc(mcpPath, resourceDoc(mcpServer, issuer))
			w.Doc(at, strings.Replace(serverDoc(issuer), `"code_challenge_methods_supported":["S256"]`, methods, 1))
			d, err := oauthclient.Discover(t.Context(), w.fetcher(nil),
				&oauthclient.DiscoveryQuery{Endpoint: mcpServer})
			if err != nil {
				t.Fatal(err)
			}
			if err := oauthclient.CheckCodeFlow(d); (err == nil) != ok {
				t.Errorf("%s: got error %v, want success %t", methods, err, ok)
			}
		}
	}
	// The same holds for metadata of 2025-03-26.
	w := newNetwork(t)
	w.Doc(mcpBase, strings.Replace(serverDoc("https://mcp.example"), "S256", "plain", 1))
	d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer})
	if err != nil || oauthclient.CheckCodeFlow(d) == nil {
		t.Errorf("got %+v, error %v; want metadata that CheckCodeFlow refuses", d, err)
	}
}

// No field of any document makes the client request a refused URL.
//
// Requirement: SEC-07, SEC-17
func TestRefusedURLInEachMetadataField(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	fields := []string{
		"authorization_endpoint", "token_endpoint", "registration_endpoint", "revocation_endpoint",
		"introspection_endpoint",
		"userinfo_endpoint", "jwks_uri",
	}
	for _, bad := range refusedURLs(t) {
		if strings.ContainsAny(bad, "\x00\n\\") {
			continue // not valid in JSON
		}
		try := func(what string, put func(w *network) *oauth.Challenge) {
			w := newNetwork(t)
			w.Doc(mcpPath, resourceDoc(mcpServer, issuer))
			w.Doc(asRoot, serverDoc(issuer))
			challenge := put(w)
			d, err := oauthclient.Discover(t.Context(), w.fetcher(nil),
				&oauthclient.DiscoveryQuery{Endpoint: mcpServer, Challenge: challenge})
			if challenge != nil {
				if err != nil || d.Issuer != issuer {
					t.Errorf("%s %.60q: got %+v, error %v; want the issuer of the valid documents", what, bad, d, err)
				}
			} else if err == nil {
				t.Errorf("%s %.60q: got %+v, want an error", what, bad, d)
			}
			for _, r := range w.Requests() {
				if !strings.HasPrefix(r, "GET https://mcp.example/.well-known/") &&
					!strings.HasPrefix(r, "GET https://as.example/.well-known/") {
					t.Errorf("%s %.60q: requested %s", what, bad, r)
				}
			}
			if got := w.Addresses(); len(got) != 1 || got[0] != oauthtest.DefaultAddress {
				t.Errorf("%s %.60q: connected to %v, want one public address", what, bad, got)
			}
		}
		try("resource_metadata", func(*network) *oauth.Challenge { return metadataChallenge(bad) })
		try("resource", func(w *network) *oauth.Challenge { w.Doc(mcpPath, resourceDoc(bad, issuer)); return nil })
		try("authorization_servers", func(w *network) *oauth.Challenge {
			w.Doc(mcpPath, resourceDoc(mcpServer, bad))
			return nil
		})
		if at, err := url.Parse(asRoot); err == nil {
			if to, err := at.Parse(strings.TrimSpace(bad)); err != nil || to.Scheme != at.Scheme || to.Host != at.Host {
				try("redirect", func(w *network) *oauth.Challenge {
					w.Page(asRoot, oauthtest.RedirectPage(bad))
					return nil
				})
			}
		}
		for _, field := range fields {
			try(field, func(w *network) *oauth.Challenge {
				text := strings.Replace(serverDoc(issuer), `"`+field+`"`, `"x"`, 1)
				w.Doc(asRoot, strings.Replace(text, "{", `{"`+field+`":"`+bad+`",`, 1))
				return nil
			})
		}
	}
}

// A host name in a document that resolves to a private address is refused when it is dialled.
//
// Requirement: SEC-07
func TestPrivateHostInEachMetadataField(t *testing.T) {
	for _, address := range []string{"10.0.0.1", "127.0.0.1", "169.254.169.254", "::1", "fd00:ec2::254",
		"::ffff:10.0.0.1"} {
		w := newNetwork(t)
		w.At("inside.example", address)
		w.Doc(mcpPath, resourceDoc(mcpServer, "https://inside.example"))
		w.Doc("https://inside.example/.well-known/oauth-authorization-server", serverDoc("https://inside.example"))
		if d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer}); !errors.Is(err, oauth.ErrURLRefused) {
			t.Errorf("%s: got %+v, error %v; want ErrURLRefused", address, d, err)
		}
		w.Doc(mcpPath, resourceDoc(mcpServer, issuer))
		w.Doc(asRoot, strings.ReplaceAll(serverDoc(issuer), issuer+"/", "https://inside.example/"))
		d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer})
		if err != nil {
			t.Fatal(err)
		}
		endpoint, _ := url.Parse(mcpServer)
		f := w.fetcher(nil).For(endpoint)
		_, err = (*oauthfetch.Fetcher)(f).PostForm(t.Context(), d.Server.TokenEndpoint, url.Values{}, nil)
		if !errors.Is(err, oauth.ErrURLRefused) {
			t.Errorf("%s: token endpoint: got error %v, want ErrURLRefused", address, err)
		}
		_, err = oauthclient.Register(t.Context(), f, d.Server, &oauth.ClientMetadata{})
		if !errors.Is(err, oauth.ErrURLRefused) {
			t.Errorf("%s: registration: got error %v, want ErrURLRefused", address, err)
		}
		_, err = (*oauthfetch.Fetcher)(f).GetJSON(t.Context(), "https://inside.example/jwks", new(struct{}))
		if !errors.Is(err, oauth.ErrURLRefused) {
			t.Errorf("%s: key set: got error %v, want ErrURLRefused", address, err)
		}
		if got := w.Addresses(); len(got) != 1 || got[0] != oauthtest.DefaultAddress {
			t.Errorf("%s: connected to %v, want one public address", address, got)
		}
	}
}

// A server on the loopback host may have its documents there, with http.
func TestDiscoveryAtLoopback(t *testing.T) {
	const local = "http://localhost:8000"
	w := newNetwork(t)
	w.Doc(local+"/.well-known/oauth-protected-resource/mcp", resourceDoc(local, "http://127.0.0.1:8001/tenant1"))
	w.Doc("http://127.0.0.1:8001/.well-known/oauth-authorization-server/tenant1",
		serverDoc("http://127.0.0.1:8001/tenant1"))
	d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: local + "/mcp"})
	if err != nil || d.Resource != local {
		t.Errorf("got %+v, error %v; want resource %s", d, err, local)
	}
}

// For an issuer without a path, an empty path and "/" are equal. The client then uses the spelling of the metadata.
//
// Requirement: AUTHR-13
func TestIssuerWithAFinalSlash(t *testing.T) {
	for named, published := range map[string]string{issuer: issuer + "/", issuer + "/": issuer} {
		w := newNetwork(t)
		w.Doc(mcpPath, resourceDoc(mcpServer, named))
		w.Doc(asRoot, serverDoc(published))
		d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer})
		if err != nil || d.Issuer != published {
			t.Errorf("%s: got %+v, error %v; want the issuer %s", named, d, err, published)
		}
	}
	w := newNetwork(t)
	w.Doc(mcpPath, resourceDoc(mcpServer, issuer+"/tenant"))
	w.Doc("https://as.example/.well-known/oauth-authorization-server/tenant", serverDoc(issuer+"/tenant/"))
	if d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer}); err == nil {
		t.Errorf("an issuer with a path: got %+v, want an error", d)
	}
}

// A web page at a well-known address counts as no metadata. It is an error if a challenge names the address.
func TestWebPageIsNoMetadata(t *testing.T) {
	page := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<!doctype html>")
	}
	w := newNetwork(t)
	w.Page(mcpPath, page)
	w.Doc(mcpRoot, resourceDoc(mcpServer, issuer))
	w.Page(asRoot, page)
	w.Doc(asOIDC, serverDoc(issuer))
	d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer})
	if err != nil || d.Issuer != issuer {
		t.Errorf("got %+v, error %v; want the metadata of the next address", d, err)
	}
	d, err = oauthclient.Discover(t.Context(), w.fetcher(nil),
		&oauthclient.DiscoveryQuery{Endpoint: mcpServer, Challenge: metadataChallenge(mcpPath)})
	if _, invalid := errors.AsType[*oauth.DiscoveryError](err); !invalid {
		t.Errorf("named by a challenge: got %+v, error %v; want a DiscoveryError", d, err)
	}
}

// A program can allow an issuer that lists no PKCE methods; otherwise the error names the setting.
//
// Requirement: AUTHR-20
func TestUnlistedPKCE(t *testing.T) {
	w := newNetwork(t)
	w.Doc(mcpPath, resourceDoc(mcpServer, issuer))
	w.Doc(asRoot, strings.Replace(serverDoc(issuer), `"code_challenge_methods_supported":["S256"]`, `"x":1`, 1))
	d, err := oauthclient.Discover(t.Context(), w.fetcher(nil), &oauthclient.DiscoveryQuery{Endpoint: mcpServer})
	if err != nil {
		t.Fatal(err)
	}
	err = oauthclient.CheckCodeFlow(d)
	if unlisted, ok := errors.AsType[*oauthclient.PKCEError](err); !ok || unlisted.Issuer != issuer ||
		!strings.Contains(err.Error(), "insecureUnlistedPKCE") {
		t.Errorf("got error %v, want a PKCEError that names the setting", err)
	}
	if err := oauthclient.CheckCodeFlowOf(d, &oauthclient.Identity{InsecureUnlistedPKCE: true}); err != nil {
		t.Error(err)
	}
	d.Server.CodeChallengeMethods = []string{"plain"}
	if oauthclient.CheckCodeFlowOf(d, &oauthclient.Identity{InsecureUnlistedPKCE: true}) == nil {
		t.Error("a server that supports only plain is used")
	}
}
