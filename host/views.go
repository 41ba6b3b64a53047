package host

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host/policy"
)

// maxViews bounds the views that are kept.
const maxViews = 1000

// A viewCache holds the views of callers by their keys. The lock of the host guards it.
type viewCache struct {
	views map[string]*View
}

func (k *viewCache) get(h *Host, c *policy.Caller) *View {
	sessions := h.servers.Current().HasSessions()
	key := viewKey(c, sessions)
	v := k.views[key]
	if v == nil {
		if k.views == nil {
			k.views = map[string]*View{}
		}
		if len(k.views) >= maxViews {
			k.evict()
		}
		own := *c
		if !sessions { // the view is that of all sessions of the caller
			own.Session = ""
		}
		v = newView(h, &own)
		k.views[key] = v
	}
	v.used = time.Now()
	return v
}

// evict removes the view that was not used for the longest time, among the views of the principal
// with the most views: a caller must not be able to remove the views of others. Its subscriptions
// continue.
func (k *viewCache) evict() {
	counts := map[string]int{}
	for _, v := range k.views {
		counts[v.caller.Key()]++
	}
	oldest, most := "", 0
	for key, v := range k.views {
		n := counts[v.caller.Key()]
		if n > most || n == most && v.used.Before(k.views[oldest].used) {
			oldest, most = key, n
		}
	}
	delete(k.views, oldest)
}

// For returns the view of a caller. It connects to no server. Callers with the same principal and
// profile share a view.
func (h *Host) For(c *policy.Caller) *View {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.views.get(h, c)
}
