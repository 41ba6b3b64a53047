package conformance_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"testing"
)

// A provider is an OpenID provider in its own process: the certified one of idp/provider.mjs.
type provider struct {
	issuer string
}

// A providerClient is a client in the configuration of the provider.
type providerClient struct {
	ID           string   `json:"client_id"`
	Secret       string   `json:"client_secret,omitempty"`
	RedirectURIs []string `json:"redirect_uris"`
	GrantTypes   []string `json:"grant_types"`
	Type         string   `json:"application_type"`
	AuthMethod   string   `json:"token_endpoint_auth_method"`
}

// A providerConfig is the configuration of the provider.
type providerConfig struct {
	Clients       []providerClient `json:"clients"`
	AlwaysRefresh bool             `json:"alwaysRefresh,omitempty"` // refresh tokens without offline_access
	// Groups are the groups of users by name, which ID tokens then contain in the claim groups.
	Groups map[string][]string `json:"groups,omitempty"`
}

// startProvider starts a provider until the test ends.
func startProvider(t *testing.T, c providerConfig) *provider {
	t.Helper()
	config := must(json.Marshal(c))(t)
	cmd := exec.Command(needNode(t), "idp/provider.mjs", string(config))
	cmd.Stderr = t.Output()
	return &provider{startPeer(t, cmd)}
}

// revoke revokes all grants of the users.
func (p *provider) revoke(t *testing.T) {
	t.Helper()
	res := must(http.Post(p.issuer+"/test/revoke", "", nil))(t)
	defer func() { _ = res.Body.Close() }()
	if res.StatusCode != http.StatusOK {
		t.Fatalf("POST /test/revoke: status %s, want 200", res.Status)
	}
}

// events returns the event log of the provider.
func (p *provider) events(t *testing.T) (events []string) {
	t.Helper()
	res := must(http.Get(p.issuer + "/test/events"))(t)
	defer func() { _ = res.Body.Close() }()
	text := must(io.ReadAll(res.Body))(t)
	if err := json.Unmarshal(text, &events); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return events
}
