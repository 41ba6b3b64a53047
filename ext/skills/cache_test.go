package skills_test

import (
	"strings"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/skills"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Clients such as the Inspector require the caching hints of every result in 2026-07-28.
func TestResultsHaveCachingHints(t *testing.T) {
	hints := mcp.Cache{TTL: 7 * time.Millisecond, Public: true}
	for _, test := range []struct {
		opts *skills.Options
		want listing
	}{
		{nil, listing{TTLMs: new(int), CacheScope: "private"}},
		{&skills.Options{Cache: hints}, listing{TTLMs: pointer(7), CacheScope: "public"}},
	} {
		s, _ := serve(t, skillFiles(), test.opts)
		for _, transport := range mcptest.Transports() {
			on := mcptest.Combination{Transport: transport, Revision: mcptest.Modern}
			c := mcptest.Connect(t, s, on, nil)
			for method, params := range map[string]object{
				"skills/list": {}, "skills/get": {"uri": pdf}, "resources/directory/read": {"uri": "skill://pdf"},
			} {
				raw := c.Call(method, params)
				if !strings.Contains(string(raw), `"resultType":"complete"`) {
					t.Errorf("%s: %s: got %s, want the result type complete", on, method, raw)
				}
				got := decode[listing](t, raw)
				if got.TTLMs == nil || *got.TTLMs != *test.want.TTLMs || got.CacheScope != test.want.CacheScope {
					t.Errorf("%s: %s: got %v, %q, want %d, %q", on, method, got.TTLMs, got.CacheScope,
						*test.want.TTLMs, test.want.CacheScope)
				}
			}
		}
	}
}

func pointer[T any](v T) *T { return &v }
