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
		oidc + `"console": {"roles": {"operator": ["a"]}}`: {Listen: "127.0.0.1:6280",
			Roles: &gatewayconfig.ConsoleRoles{Claim: "groups", Operator: []string{"a"}}},
	} {
		if diff := cmp.Diff(want, read(t, `{`+text+`}`).Console); diff != "" {
			t.Errorf("%s (-want +got):\n%s", text, diff)
		}
	}
	for text, want := range map[string]string{
		`"console": {"listen": "6280"}`:             `console.listen: got "6280", want host:port`,
		`"console": {"listen": "127.0.0.1:7777"}`:   `console.listen: got "127.0.0.1:7777", want host:port`,
		`"console": {"listen": "0.0.0.0:6280"}`:     `console.listen: got "0.0.0.0:6280", which other machines`,
		`"console": {"publicURL": "http://a.test"}`: `console.publicURL: got "http://a.test", want an https URL`,
		`"console": {"roles": {"viewer": ["a"]}}`:   `console.roles: want auth.oidc with clientId`,
	} {
		checkProblem(t, "{"+text+"}", "patchbay."+want)
	}
}
