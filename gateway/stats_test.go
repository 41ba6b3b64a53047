package gateway_test

import (
	"strings"
	"testing"
)

// The figures are those of all paths, and can be read after the end.
func TestStatsAreThoseOfAllPaths(t *testing.T) {
	g := newGateway(t, &upstreams{}, twoServers)
	url := serve(t, g)
	for _, path := range []string{"/mcp", "/mcp/p/code", "/mcp/s/one"} {
		c, err := connect(t, url+path, "2025-11-25", false, "Authorization", "Bearer "+key)
		if err != nil {
			t.Fatal(err)
		}
		toolNames(t, c)
	}
	c, err := connect(t, url+"/mcp", "2025-11-25", false, "Authorization", "Bearer "+key, "Origin", "http://evil.example")
	if err == nil {
		t.Errorf("a client of another origin has connected: %v", c)
	}
	st := g.Stats()
	refused := int64(0)
	for reason, n := range st.Refused {
		if refused += n; strings.Contains(reason, "evil") {
			t.Errorf("reason %q", reason)
		}
	}
	if st.Sessions != 3 || refused == 0 {
		t.Errorf("stats: %+v, want 3 sessions and refused requests", st)
	}
	if err := g.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := g.Stats(); after.Sessions != 0 || after.InFlight != 0 || len(after.Refused) == 0 {
		t.Errorf("stats after the end: %+v", after)
	}
}
