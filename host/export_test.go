package host

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Sizes returns the number of views and of pools that a host keeps.
func Sizes(h *Host) (views, pools int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, u := range h.set.Load().upstreams {
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

// CheckPins decodes a record of pins, and returns it encoded with the number of its pins.
func CheckPins(text []byte) (encoded []byte, pins int, err error) {
	r, err := decodePins(text)
	if err != nil {
		return nil, 0, err
	}
	encoded, err = r.encode()
	for _, p := range r.pins("id") {
		_, _ = p.Diff(), p.describe()
		pins++
	}
	for k := range pinKinds {
		_ = r.list(catalogue.Kind(k))
	}
	return encoded, pins, err
}

// ResponseOf returns what a client receives for an error.
func ResponseOf(v *View, method string, err error) (mcp.Result, error) {
	return v.response(context.Background(), method, err)
}
