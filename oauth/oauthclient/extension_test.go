package oauthclient_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A client declares the extension of its grant to the server.
func TestEAUTH01_GrantsDeclareTheirExtension(t *testing.T) {
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "declared"}, func(ctx context.Context, _ struct{}) (string, error) {
		declared, err := json.Marshal(mcp.RequestFrom(ctx).Capabilities().Extensions)
		return string(declared), err
	})
	base := &mcp.ClientOptions{Extensions: map[string]json.RawMessage{"com.example/x": json.RawMessage(`{}`)}}
	for _, test := range []struct {
		grant oauthclient.Grant
		want  string
	}{
		{nil, `{"com.example/x":{}}`},
		{oauthclient.NewClientCredentialsGrant(),
			`{"com.example/x":{},"io.modelcontextprotocol/oauth-client-credentials":{}}`},
		{oauthclient.NewEnterpriseGrant(nil),
			`{"com.example/x":{},"io.modelcontextprotocol/enterprise-managed-authorization":{}}`},
	} {
		for _, on := range mcptest.Combinations() {
			c := mcptest.Dial(t, s, on, oauthclient.Declare(base, test.grant))
			if got, err := mcp.CallTool[string](t.Context(), c, "declared", nil); err != nil || got != test.want {
				t.Errorf("%s: got %s, %v, want %s", on, got, err, test.want)
			}
		}
	}
	if len(base.Extensions) != 1 {
		t.Errorf("Declare changed its argument: %v", base.Extensions)
	}
}
