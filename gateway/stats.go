package gateway

import (
	"maps"
	"slices"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Stats returns the figures of HTTP, those of all paths together, for metrics. Requests that were refused
// before their path was served, such as those without a valid key, are not among them. It is safe for
// concurrent use.
func (g *Gateway) Stats() mcphttp.Stats {
	g.mu.Lock()
	handlers := slices.AppendSeq(slices.Collect(maps.Values(g.handlers)), maps.Values(g.ended))
	g.mu.Unlock()
	sum := mcphttp.Stats{Refused: map[string]int64{}}
	for _, h := range handlers {
		st := h.Stats()
		sum.Sessions += st.Sessions
		sum.Streams += st.Streams
		sum.Subscriptions += st.Subscriptions
		sum.InFlight += st.InFlight
		for reason, n := range st.Refused {
			sum.Refused[reason] += n
		}
	}
	return sum
}
