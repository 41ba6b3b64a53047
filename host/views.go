package host

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

// maxViews keeps the views of 2,000 callers. A view takes 10 KB, or 250 KB with 2,000 tools.
const maxViews = 2500

// evictView removes the view that was not used for the longest time, among the views of the principal
// with the most views: a caller must not be able to remove the views of others. Its subscriptions
// continue.
func evictView(views map[string]*View) {
	counts := map[string]int{}
	for _, v := range views {
		counts[v.principal]++
	}
	oldest, most := "", 0
	for key, v := range views {
		n := counts[v.principal]
		if n > most || n == most && v.used.Before(views[oldest].used) {
			oldest, most = key, n
		}
	}
	delete(views, oldest)
}

// For returns the view of a caller. It connects to no server. Callers with the same principal and
// profile share a view.
func (h *Host) For(c *policy.Caller) *View {
	sessions := h.servers.Current().HasSessions()
	key := viewKey(c, sessions)
	h.mu.Lock()
	v := h.views[key]
	if v == nil {
		h.mu.Unlock()
		own := *c
		if !sessions { // all sessions of the caller share the view
			own.Session = ""
		}
		made := newView(h, &own) // takes the locks of servers
		h.mu.Lock()
		if v = h.views[key]; v == nil { // else another request was faster
			if len(h.views) >= maxViews {
				evictView(h.views)
			}
			v = made
			h.views[key] = v
		}
	}
	v.used = time.Now()
	h.mu.Unlock()
	return v
}
