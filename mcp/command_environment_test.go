package mcp_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Behind a company's proxy, package runners need the variables that name proxies and certificates.
//
// Requirement: STDIO-20
func TestNetworkVariablesAreInheritedWithoutCredentials(t *testing.T) {
	inherited := []string{
		"HTTPS_PROXY=http://proxy:3128", "https_proxy=http://proxy:3128", "NO_PROXY=localhost", "all_proxy=socks5://p:1",
		"NODE_EXTRA_CA_CERTS=/etc/ca.pem", "SSL_CERT_FILE=/etc/ca.pem", "SSL_CERT_DIR=/etc/certs",
		"npm_config_registry=https://registry.example.com/", "UV_INDEX_URL=https://pypi.example.com/simple",
		"GOPROXY=https://go.example.com,direct", "GOFLAGS=-mod=mod", "GOPRIVATE=go.example.com",
		"GOCACHE=/var/cache/go",
	}
	withheld := []string{
		"HTTP_PROXY=http://user:pw@proxy:3128", "http_proxy=user:pw@proxy:3128",
		"PIP_INDEX_URL=https://token@pypi.example.com/simple", "npm_config__authtoken=t", "NODE_OPTIONS=--require=x",
		"NPM_TOKEN=t", "GOSUMDB=https://user:pw@sum.example.com", "GOAUTH=netrc", "GOOGLE_API_KEY=t",
	}
	for _, variable := range slices.Concat(inherited, withheld) {
		name, value, _ := strings.Cut(variable, "=")
		t.Setenv(name, value)
	}
	env := readWords(t, startServer(t, roleCommand(t, "env")), "env")
	for _, variable := range inherited {
		if !slices.Contains(env, variable) {
			t.Errorf("the server did not inherit %s", variable)
		}
	}
	for _, variable := range withheld {
		if slices.Contains(env, variable) {
			t.Errorf("the server inherited %s", variable)
		}
	}
}

// The error of a server that does not respond names the variables that it did not inherit.
func TestTimeoutOfConnectNamesWithheldVariables(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://user:s3cret@proxy:3128")
	t.Setenv("npm_config_userconfig", "/s3cret")
	t.Setenv("NODE_OPTIONS", "--s3cret")
	t.Setenv("NO_PROXY", "localhost")
	server := roleCommand(t, "silent")
	server.Env = append(server.Env, "NODE_OPTIONS=")
	server.Logger = discardLogger()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := mcp.Connect(ctx, server, &mcp.ClientOptions{Logger: discardLogger()})
	defer server.Close()
	if err == nil {
		t.Fatal("connected to a server that does not respond")
	}
	for text, want := range map[string]bool{
		"HTTPS_PROXY": true, "npm_config_userconfig": true, "NODE_OPTIONS": false, "NO_PROXY": false, "s3cret": false,
	} {
		if strings.Contains(err.Error(), text) != want {
			t.Errorf("got error %v, want %s in it: %t", err, text, want)
		}
	}
}
