package mcp_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The settings of extensions, which this package does not know, reach the other side unchanged in every
// revision: false, zero, null, and empty objects too.
func TestExtensionSettingsArriveUnchanged(t *testing.T) {
	const ours = `{"nested":{"enabled":true,"limit":3},"values":[null,"b",4]}`
	const theirs = `{"nested":{"enabled":false,"limit":0},"values":["a",2,null]}`
	for _, revision := range mcptest.Revisions() {
		t.Run(revision, func(t *testing.T) {
			mcptest.NoLeaks(t)
			s := mcp.NewServer("s", "1", nil)
			s.AddExtension("com.example/settings", json.RawMessage(ours))
			s.AddExtension("com.example/empty", nil)
			mcp.AddTool(s, &mcp.Tool{Name: "declared"}, func(ctx context.Context, _ struct{}) (string, error) {
				b, err := json.Marshal(mcp.RequestFrom(ctx).Capabilities().Extensions)
				return string(b), err
			})
			c, err := mcp.Connect(t.Context(), mcp.InMemory(s), &mcp.ClientOptions{Revision: revision,
				Extensions: map[string]json.RawMessage{"com.example/settings": json.RawMessage(theirs),
					"com.example/empty": json.RawMessage(`{}`)}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			got, err := json.Marshal(c.Capabilities().Extensions)
			if want := `{"com.example/empty":{},"com.example/settings":` + ours + `}`; err != nil || string(got) != want {
				t.Errorf("extensions of the server: got %s, %v, want %s", got, err, want)
			}
			text, err := mcp.CallTool[string](t.Context(), c, "declared", nil)
			if want := `{"com.example/empty":{},"com.example/settings":` + theirs + `}`; err != nil || text != want {
				t.Errorf("extensions of the client: got %s, %v, want %s", text, err, want)
			}
		})
	}
}
