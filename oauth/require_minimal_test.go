package oauth_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// A challenge names the scopes of its operation only, never all that the resource supports.
//
// Requirement: SEC-19
func TestChallengesNameOnlyNeededScopes(t *testing.T) {
	metadata := testMetadata()
	metadata.ScopesSupported = []string{"read", "write", "files", "admin", "everything"}
	for name, tt := range map[string]struct {
		scopes oauth.Scopes
		header string
		status int
		want   string
		absent bool
	}{
		"no scope needed":              {header: "X-Other: 1", status: 401, absent: true},
		"no token":                     {scopes: oauth.AllOf("read"), header: "X-Other: 1", status: 401, want: "read"},
		"invalid token":                {scopes: oauth.AllOf("read"), header: "Authorization: Bearer x", status: 401, want: "read"},
		"another scope":                {oauth.AllOf("read"), "Authorization: Bearer " + issue(t, claims{"scope": "files"}), 403, "read", false},
		"one of several alternatives":  {oauth.AnyOf("write", "admin"), "Authorization: Bearer " + issue(t), 403, "write", false},
		"a scope that looks like all":  {oauth.AllOf("write"), "Authorization: Bearer " + issue(t, claims{"scope": "*"}), 403, "write", false},
		"a prefix of the needed scope": {oauth.AllOf("write"), "Authorization: Bearer " + issue(t, claims{"scope": "wri writer write:*"}), 403, "write", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := oauth.Require(testVerifier(t), metadata, &oauth.RequireOptions{Scopes: tt.scopes, Logger: discardLog})(echo)
			w := do(h, "POST", "/mcp", "", tt.header)
			got, ok := bearerChallenge(t, w)["scope"]
			if w.Code != tt.status || got != tt.want || ok == tt.absent {
				t.Errorf("got %d with scope %q, want %d with %q", w.Code, got, tt.status, tt.want)
			}
		})
	}
}

// The challenge for a tool names the scopes of that tool, not those of other tools.
//
// Requirement: SEC-19
func TestChallengeOfOneToolDoesNotNameOthers(t *testing.T) {
	rules := &oauth.ScopeRules{
		Tools:      map[string]oauth.Scopes{"write": oauth.AllOf("files:write"), "delete": oauth.AllOf("files:delete")},
		OtherTools: oauth.AllOf("other"),
	}
	s := mcp.NewServer("demo", "1", &mcp.ServerOptions{
		Logger: discardLog, Middleware: []mcp.Middleware{oauth.RequireScopes(rules)},
	})
	for _, tool := range []string{"write", "delete", "list"} {
		mcp.AddTool(s, &mcp.Tool{Name: tool}, func(context.Context, struct{}) (string, error) { return "", nil })
	}
	ts := newTestServer(t, s, &oauth.RequireOptions{Scopes: oauth.AllOf("read")})
	for tool, want := range map[string]string{
		"write": "read files:write", "delete": "read files:delete", "list": "read other",
	} {
		r := ts.modern(ts.token("ann", "read"), "tools/call", tool, `"name":"`+tool+`",`)
		if got := r.challenge(t)["scope"]; r.status != 403 || got != want {
			t.Errorf("%s: got %d with scope %q, want 403 with %q", tool, r.status, got, want)
		}
	}
}
