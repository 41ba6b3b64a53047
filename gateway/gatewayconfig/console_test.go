package gatewayconfig_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/gateway/gatewayconfig"
)

func TestConsole(t *testing.T) {
	const oidc = `"auth": {"oidc": {"issuer": "https://login.example", "audience": "a", "clientId": "c"}}, `
	for text, want := range map[string]*gatewayconfig.Console{
		``:              nil,
		`"console": {}`: {Listen: "127.0.0.1:6280"},
		`"console": {"listen": "0.0.0.0:80", "publicURL": "https://console.example/"}`: {
			Listen: "0.0.0.0:80", PublicURL: "https://console.example"},
		`"console": {"viewListen": "[::]:81", "viewOrigin": "https://views.example/"}`: {
			Listen: "127.0.0.1:6280", ViewListen: "[::]:81", ViewOrigin: "https://views.example"},
		oidc + `"console": {"roles": {"operator": ["a"]}}`: {Listen: "127.0.0.1:6280",
			Roles: &gatewayconfig.ConsoleRoles{Claim: "groups", Operator: []string{"a"}}},
		`"console": {"publicURL": "https://c.example", "proxy": {"user": "X-User", "peers": ["10.1.0.5", "10.2.0.0/16"],
			"operator": ["user:ann"]}}`: {Listen: "127.0.0.1:6280", PublicURL: "https://c.example",
			Proxy: &gatewayconfig.ConsoleProxy{User: "X-User", Peers: []string{"10.1.0.5", "10.2.0.0/16"},
				SecretHeader: "X-Patchbay-Proxy", Operator: []string{"user:ann"}}},
	} {
		if diff := cmp.Diff(want, read(t, `{`+text+`}`).Console); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]string{
		`"console": {"listen": "6280"}`:               `console.listen: got "6280", want host:port`,
		`"console": {"listen": "127.0.0.1:7777"}`:     `console.listen: got "127.0.0.1:7777", want host:port`,
		`"console": {"listen": "0.0.0.0:6280"}`:       `console.listen: got "0.0.0.0:6280", which other machines`,
		`"console": {"publicURL": "http://a.test"}`:   `console.publicURL: got "http://a.test", want an https URL`,
		`"console": {"viewListen": "127.0.0.1:6280"}`: `console.viewListen: got "127.0.0.1:6280", want host:port`,
		`"console": {"viewOrigin": "http://a.test"}`:  `console.viewOrigin: got "http://a.test", want an https URL`,
		`"console": {"publicURL": "https://a.test", "viewOrigin": "https://a.test:8443"}`: `console.viewOrigin: got ` +
			`"https://a.test:8443", want another host`,
		`"console": {"roles": {"viewer": ["a"]}}`: `console.roles: want auth.oidc with clientId`,
	} {
		checkProblem(t, "{"+text+"}", "patchbay."+want)
	}
	// An address of this machine identifies nobody, because any user of the machine can connect from it.
	for text, want := range map[string]string{
		`"user": "X-User"`:                                        `.secret: want the variable of a secret`,
		`"user": "X-User", "peers": ["127.0.0.1"]`:                `.secret: want the variable of a secret`,
		`"user": "X-User", "peers": ["10.1.0.5", "127.1.0.0/16"]`: `.secret: want the variable of a secret`,
		`"user": "X-User", "peers": ["::1"]`:                      `.secret: want the variable of a secret`,
		`"user": "X-User", "peers": ["0.0.0.0/0"]`:                `.secret: want the variable of a secret`,
		`"user": "X-User", "peers": ["::/0"]`:                     `.secret: want the variable of a secret`,
		`"user": "X-User", "peers": ["proxy.example"]`:            `.peers: got "proxy.example", want an address`,
		`"user": "X-User", "peers": ["::ffff:10.0.0.1"]`:          `.peers: got "::ffff:10.0.0.1", want an address`,
		`"user": "X-User", "secret": "S", "groups": "x-user"`:     `: want different headers`,
		`"user": "X-User", "secret": "S", "viewer": ["ann"]`:      `.viewer`,
		`"user": "X-User", "secret": "S", "operator": ["user:"]`:  `.operator`,
		`"user": "X User", "secret": "S"`:                         `.user`,
		`"secret": "S"`:                                           ``,
	} {
		checkProblem(t, `{"console": {"publicURL": "https://c.example", "proxy": {`+text+`}}}`,
			"patchbay.console.proxy"+want)
	}
	checkProblem(t, `{"console": {"proxy": {"user": "X", "secret": "S"}}}`,
		"patchbay.console.proxy: want console.publicURL")
}
