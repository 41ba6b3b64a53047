package host

import "time"

// Sizes returns the number of views and of pools that a host keeps.
func Sizes(h *Host) (views, pools int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, u := range h.upstreams {
		u.mu.Lock()
		pools += len(u.pools)
		u.mu.Unlock()
	}
	return len(h.views.views), pools
}

// EndBackoff lets the next start of a server begin at once, without an end of a crash loop.
func EndBackoff(u *Upstream) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for _, p := range u.pools {
		for _, i := range p.instances {
			if i.state != StateCrashLoop {
				i.backoff.until = time.Time{}
			}
		}
	}
}
