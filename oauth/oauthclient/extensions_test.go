package oauthclient_test

import (
	"context"
	"encoding/json"
	"maps"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A client that obtains tokens by a grant of an authorization extension declares that extension.
//
// Requirement: EAUTH-01
func TestGrantsAreDeclaredAsExtensions(t *testing.T) {
	assertion := func(context.Context, string) (string, error) { return "", nil }
	for name, tt := range map[string]struct {
		grant oauthclient.Grant
		want  string // empty for none
	}{
		"login":              {nil, ""},
		"client credentials": {oauthclient.NewClientCredentialsGrant(), "io.modelcontextprotocol/oauth-client-credentials"},
		"enterprise": {oauthclient.NewEnterpriseGrant(&oauthclient.EnterpriseOptions{}),
			"io.modelcontextprotocol/enterprise-managed-authorization"},
		"workload": {oauthclient.NewWorkloadGrant(assertion), ""},
	} {
		t.Run(name, func(t *testing.T) {
			tr := oauthclient.NewTransport(clientMCP, &oauthclient.TransportOptions{Grant: tt.grant})
			var want []string
			if tt.want != "" {
				want = []string{tt.want}
			}
			for _, revision := range []string{november2025, july2026} {
				if got := declaredExtensions(t, revision, tr.Extensions()); !slices.Equal(got, want) {
					t.Errorf("%s: the server received the extensions %q, want %q", revision, got, want)
				}
			}
		})
	}
	if oauthclient.ExtensionClientCredentials != "io.modelcontextprotocol/oauth-client-credentials" ||
		oauthclient.ExtensionEnterpriseManaged != "io.modelcontextprotocol/enterprise-managed-authorization" {
		t.Error("an extension id differs from that of the specification")
	}
}

const (
	november2025 = "2025-11-25"
	july2026     = "2026-07-28"
)

// declaredExtensions returns the extensions that a server receives from a client that declares some.
func declaredExtensions(t *testing.T, revision string, extensions map[string]json.RawMessage) (ids []string) {
	t.Helper()
	var mu sync.Mutex
	s := mcp.NewServer("demo", "1.0.0", &mcp.ServerOptions{Logger: discardLog})
	mcp.AddTool(s, &mcp.Tool{Name: "extensions"}, func(ctx context.Context, _ struct{}) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		ids = slices.Sorted(maps.Keys(mcp.RequestFrom(ctx).Capabilities().Extensions))
		return "", nil
	})
	h := httptest.NewServer(mcphttp.NewHandler(s, &mcphttp.Options{Logger: discardLog}))
	defer h.Close()
	transport := mcphttp.NewTransport(h.URL, &mcphttp.TransportOptions{Logger: discardLog})
	defer transport.Close()
	c, err := mcp.Connect(t.Context(), transport, &mcp.ClientOptions{
		Revision: revision, Extensions: extensions, Logger: discardLog,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.CallTool(t.Context(), "extensions", nil); err != nil {
		t.Error(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return ids
}
