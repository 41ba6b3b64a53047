package explore_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Two keys of a person may grant different items, so they do not share lists.
func TestKeysOfAPersonDoNotShareLists(t *testing.T) {
	mcptest.NoLeaks(t)
	s := consoletest.New(t, func(o *console.Options) {
		o.Authenticate = func(r *http.Request) (*mcp.Principal, page.Role, error) {
			return &mcp.Principal{Subject: "ann", Claims: map[string]any{"key": r.Header.Get("X-Key")}},
				page.RoleOperator, nil
		}
		o.Connect = func(_ context.Context, _ string, p *mcp.Principal) (mcp.Transport, error) {
			server := mcp.NewServer("fs", "1", nil)
			name, _ := p.Claims["key"].(string)
			mcp.AddTool(server, &mcp.Tool{Name: "for_" + name},
				func(context.Context, struct{}) (string, error) { return "", nil })
			return mcp.InMemory(server), nil
		}
	})
	for _, key := range []string{"wide", "narrow"} {
		text := consoletest.Await(t, "for_", func() string {
			_, text := s.Send(s.Stranger(), http.MethodGet, "/explore?server=fs", nil, "X-Key", key)
			return text
		})
		if !strings.Contains(text, "for_"+key) {
			t.Errorf("the key %s sees the lists of the other key: %s", key, text)
		}
	}
}
