package host

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

// A view takes 10 KB, or 250 KB with 2,000 tools.
const (
	maxViews    = 2500 // for 2,000 callers in turn
	maxOwnViews = 1000 // of one principal, for its sessions
)

// makeRoom removes a view if a view of the principal would exceed a limit: the view that was not used
// for the longest time, among the views of that principal if it has maxOwnViews, or else of the
// principal with the most views. A caller must not be able to remove the views of others.
// Subscriptions of the removed view continue.
func makeRoom(views map[string]*View, principal string) {
	counts := map[string]int{}
	for _, v := range views {
		counts[v.principal]++
	}
	own, oldest, most := counts[principal] >= maxOwnViews, "", 0
	if !own && len(views) < maxViews {
		return
	}
	for key, v := range views {
		n := counts[v.principal]
		if own && v.principal != principal {
			continue
		}
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
			makeRoom(h.views, made.principal)
			v = made
			h.views[key] = v
		}
	}
	v.used = time.Now()
	h.mu.Unlock()
	return v
}
