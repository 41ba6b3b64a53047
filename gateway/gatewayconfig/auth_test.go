package gatewayconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
)

func TestAuth(t *testing.T) {
	for text, want := range map[string]*gatewayconfig.Auth{
		``:                       nil,
		`"auth": {}`:             {Keys: true},
		`"auth": {"keys": true}`: {Keys: true},
		`"auth": {"keys": false, "oidc": {"issuer": "https://login.example.com/tenant", "audience": "mcp"}}`: {
			OIDC: &gatewayconfig.OIDC{Issuer: "https://login.example.com/tenant", Audience: "mcp"}},
		`"profiles": {"work": {}}, "auth": {"oidc": {"issuer": "http://127.0.0.1:9", "audience": "a", "scopes": ["mcp:use"],
			"profiles": {"mcp:work": "work"}, "insecureAnyTokenType": true, "clientId": "gw", "clientSecret": "GW_SECRET"}}`: {
			Keys: true, OIDC: &gatewayconfig.OIDC{
				ClientID: "gw", ClientSecret: "GW_SECRET",
				Issuer: "http://127.0.0.1:9", Audience: "a", Scopes: []string{"mcp:use"},
				Profiles: map[string]string{"mcp:work": "work"}, InsecureAnyTokenType: true}},
	} {
		if diff := cmp.Diff(want, read(t, `{`+text+`}`).Auth); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	read(t, `{"tls": {"certificate": "a.crt", "key": "a.key", "clients": {"authorities": "a.pem"}}, "auth": {"keys": false}}`)
	read(t, `{"listen": "0.0.0.0:443", "tls": {"acme": {"hosts": ["mcp.example.com"], "acceptTerms": true, "http": ":80"}}}`)
	s := read(t, `{"publicURL": "https://mcp.example.com/",
		"allowedHosts": ["mcp.internal", "mcp.internal:8443", "[::1]:80"]}`)
	if s.PublicURL != "https://mcp.example.com" || len(s.AllowedHosts) != 3 {
		t.Errorf("got %q, %q, want both", s.PublicURL, s.AllowedHosts)
	}
}

func TestProblemsOfAuth(t *testing.T) {
	const acme = `{"hosts": ["mcp.example.com"], "acceptTerms": true`
	const issuer = `"issuer": "https://login.example.com"`
	for text, want := range map[string]string{
		`"auth": {"keys": false}`:                                                      "auth.keys: got false without oidc",
		`"auth": {"tls": 1}`:                                                           `auth.tls: unknown member "tls"`,
		`"auth": {"oidc": {` + issuer + `}}`:                                           "auth.oidc",
		`"auth": {"oidc": {"audience": "x"}}`:                                          "auth.oidc",
		`"auth": {"oidc": {` + issuer + `, "audience": ""}}`:                           "auth.oidc.audience: got 0 characters",
		`"auth": {"oidc": {"issuer": "http://login.example.com", "audience": "x"}}`:    "auth.oidc.issuer: got \"http://login.example.com\", want an https URL",
		`"auth": {"oidc": {"issuer": "https://x.example/?a", "audience": "x"}}`:        "auth.oidc.issuer: got",
		`"auth": {"oidc": {` + issuer + `, "audience": "x", "profiles": {"a": "no"}}}`: `auth.oidc.profiles.a: unknown profile "no"`,
		`"auth": {"oidc": {` + issuer + `, "audience": "x", "scopes": ["a b"]}}`:       "auth.oidc.scopes[0]",
		`"auth": {"oidc": {` + issuer + `, "audience": "x", "clientSecret": "A"}}`:     "auth.oidc: has clientSecret without clientId",
		`"publicURL": "http://mcp.example.com"`:                                        "publicURL: got \"http://mcp.example.com\", want an https URL",
		`"publicURL": "https://mcp.example.com/mcp"`:                                   "publicURL: got",
		`"publicURL": "mcp.example.com"`:                                               "publicURL: got the string \"mcp.example.com\", want a URL such as",
		`"allowedHosts": ["https://mcp.example.com"]`:                                  "allowedHosts: got",
		`"allowedHosts": ["a:b"]`:                                                      "allowedHosts: got",
		`"card": {}`:                                                                   "card: want publicURL",
		`"card": {"name": "gateway"}, "publicURL": "https://mcp.example.com"`:          `card: invalid name "gateway"`,
		`"card": {"websiteUrl": "https://"}, "publicURL": "https://mcp.example.com"`:   "card: invalid websiteUrl",
		`"tls": {}`:                       "tls: want certificate and key, or acme",
		`"tls": {"certificate": "a.crt"}`: "tls: want certificate and key, or acme",
		`"tls": {"certificate": "a.crt", "key": "a.key", "acme": ` + acme + `}}`:                                      "tls: has acme and files",
		`"tls": {"certificate": "a.crt", "key": "a.key"}, "publicURL": "http://127.0.0.1:7777"`:                       "publicURL: got",
		`"tls": {"certificate": "a.crt", "key": "a.key", "clients": {}}`:                                              "tls.clients",
		`"tls": {"certificate": "a.crt", "key": "a.key", "clients": {"authorities": "a", "name": "x"}}`:               "tls.clients.name",
		`"tls": {"certificate": "a.crt", "key": "a.key", "clients": {"authorities": "a", "profiles": {"ann": "no"}}}`: `tls.clients.profiles.ann: unknown profile "no"`,
		`"tls": {"acme": {"hosts": ["mcp.example.com"]}}`:                                                             "tls.acme.acceptTerms: must be true",
		`"tls": {"acme": {"acceptTerms": true}}`:                                                                      "tls.acme",
		`"tls": {"acme": {"hosts": [], "acceptTerms": true}}`:                                                         "tls.acme.hosts",
		`"tls": {"acme": {"hosts": ["10.0.0.1"], "acceptTerms": true}}`:                                               "tls.acme.hosts: got",
		`"tls": {"acme": {"hosts": ["*.example.com"], "acceptTerms": true}}`:                                          "tls.acme.hosts: got",
		`"tls": {"acme": {"hosts": ["localhost"], "acceptTerms": true}}`:                                              "tls.acme.hosts: got",
		`"tls": {"acme": ` + acme + `, "directory": "http://acme.example.com"}}`:                                      "tls.acme.directory",
		`"tls": {"acme": ` + acme + `, "http": "80"}}`:                                                                "tls.acme.http: got",
		`"listen": "0.0.0.0:443", "tls": {"acme": ` + acme + `, "http": "0.0.0.0:443"}}`:                              "tls.acme.http: got \"0.0.0.0:443\", which is also listen",
	} {
		checkProblem(t, "{"+text+"}", "patchbay."+want)
	}
}

// The URLs of programs that decide must use TLS or a loopback address.
func TestURLsOfDecidersAreSecure(t *testing.T) {
	for url, ok := range map[string]bool{"https://decide.example/x": true, "http://127.0.0.1:9/x": true, "http://[::1]:9": true,
		"http://localhost:9": true, "http://decide.example": false, "http://10.0.0.7:9": false, "http://127.0.0.1.evil.example": false,
		"http:///x": false} {
		for text, at := range map[string]string{
			`"policy": {"hook": {"url": "` + url + `", "secret": "KEY"}}`:                "policy.hook.url",
			`"approve": ["webhook"], "webhook": {"url": "` + url + `", "secret": "KEY"}`: "webhook.url",
		} {
			if text = "{" + text + "}"; ok {
				read(t, text)
				continue
			}
			checkProblem(t, text, "patchbay."+at+": got \""+url+"\", want an https URL, or http with a loopback address")
		}
	}
}
