package authserver

import (
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/singleflight"
)

const (
	// outageRetry is the time until the next check of a grant whose identity provider did not
	// answer.
	outageRetry = 5 * time.Second
	maxChecks   = 10_000 // grants whose last check is cached
)

// providerChecks caches the checks of grants.
type providerChecks struct {
	running singleflight.Group[string, struct{}]

	mu      sync.Mutex // guards the fields below
	checks  lru[providerCheck]
	unsaved map[string]*providerGrant // renewed grants that could not be stored yet; at most maxChecks
}

// A providerCheck is the last check of a grant.
type providerCheck struct {
	last  time.Time // when the identity provider last confirmed the grant
	until time.Time // when the next check is due
}

func (c *providerChecks) forget(handle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks.drop(handle)
	delete(c.unsaved, handle)
}

// setUnsaved keeps a renewed grant until it is stored, which nil means, or forgotten.
func (c *providerChecks) setUnsaved(handle string, g *providerGrant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case g == nil:
		delete(c.unsaved, handle)
	case len(c.unsaved) < maxChecks:
		c.unsaved[handle] = g
	}
}

func (c *providerChecks) unsavedGrant(handle string) *providerGrant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsaved[handle]
}

func (c *providerChecks) isFresh(handle string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	check := c.checks.get(handle)
	return check != nil && time.Now().Before(check.until)
}

// confirm records that the identity provider has confirmed a grant now, and when the next check is
// due.
func (c *providerChecks) confirm(handle string, now, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks.put(handle, &providerCheck{now, until})
}

// toleratesOutage reports whether the last confirmation of a grant is recent enough to accept it
// while the identity provider does not answer. The issue of its token, to this process or to another
// one, is a confirmation. If the result is true, the next check is due after outageRetry.
func (c *providerChecks) toleratesOutage(handle string, issued time.Time, outage time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now, last := time.Now(), issued
	if check := c.checks.get(handle); check != nil {
		last = later(last, check.last)
	}
	if last.IsZero() || !now.Before(last.Add(outage)) {
		return false
	}
	c.checks.put(handle, &providerCheck{last, now.Add(outageRetry)})
	return true
}
