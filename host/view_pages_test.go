package host_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// The results of lists are kept with the catalogue, so a change replaces them.
func TestPagesOfListsAreThoseOfTheCatalogue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		on := mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}
		s := mcp.NewServer("many", "1.0.0", nil)
		var want []string
		add := func(i int) {
			mcp.AddTool(s, &mcp.Tool{Name: fmt.Sprintf("t%04d", i)},
				func(context.Context, struct{}) (string, error) { return "", nil })
			want = append(want, fmt.Sprintf("many__t%04d", i))
		}
		for i := range 1001 { // three pages
			add(i)
		}
		h := newHost(t, map[string]mcp.Handler{"many": s}, on, `{"tools": {"mode": "list"}}`)
		names := func() (names []string) {
			c := mcptest.Dial(t, h.For(&policy.Caller{}), on, nil)
			for tool, err := range c.Tools(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, tool.Name)
			}
			return names
		}
		for _, when := range []string{"at first", "again"} {
			if got := names(); !slices.Equal(got, want) {
				t.Errorf("%s: %d tools, want %d in order", when, len(got), len(want))
			}
		}
		add(1001)
		time.Sleep(time.Second) // the server announces the change later
		if got := names(); !slices.Equal(got, want) {
			t.Errorf("after a change: %d tools, want %d in order", len(got), len(want))
		}
	})
}
