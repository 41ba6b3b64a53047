package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Requirement: ELI-28
func TestClientsAreNotifiedWhenAVisitIsComplete(t *testing.T) {
	s := newServer(t, nil)
	type in struct {
		Fails bool `json:"fails"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "visit"}, func(ctx context.Context, in in) (string, error) {
		if err := mcp.AskURL(ctx, "page", "https://example.com/login", "Please sign in"); err != nil {
			return "", err
		}
		if in.Fails {
			return "", errors.New("not signed in")
		}
		return "signed in", nil
	})
	const completed = "notifications/elicitation/complete"
	for _, action := range []string{"accept", "decline"} {
		var asked []string
		opts := &mcptest.Options{Answer: func(_ string, params json.RawMessage) (any, error) {
			var p struct{ ElicitationID string }
			if err := json.Unmarshal(params, &p); err != nil {
				return nil, err
			}
			asked = append(asked, p.ElicitationID)
			return object{"action": action}, nil
		}}
		mcptest.RunOn(t, s, mcptest.Since("2025-11-25"), opts, func(t *testing.T, c *mcptest.Client) {
			asked = nil
			other := c.Another(opts)
			callTool(t, c, "visit", object{"fails": true})
			if got := c.Notifications(completed); len(got) > 0 {
				t.Errorf("after a failure: got %s, want no notification", got[0].Params)
			}
			callTool(t, c, "visit", object{"fails": false})
			got := c.Notifications(completed)
			switch {
			case c.Modern() || action != "accept":
				if len(got) > 0 {
					t.Errorf("got %s, want no notification", got[0].Params)
				}
			case len(got) != 1 || memberOf(t, got[0].Params, "elicitationId") != `"`+asked[1]+`"`:
				t.Errorf("got %d notifications, want one for %q", len(got), asked[1])
			}
			if got := other.Notifications(completed); len(got) > 0 {
				t.Errorf("another client: got %s, want no notification", got[0].Params)
			}
		})
	}
}
