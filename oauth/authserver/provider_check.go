package authserver

import (
	"sync"
	"time"
)

const (
	// outageRetry is the time until the next check of a grant whose identity provider did not
	// answer.
	outageRetry = 5 * time.Second
	// maxChecks is the maximum number of grants whose last check is cached.
	maxChecks = 10_000
)

// providerChecks caches the checks of grants.
type providerChecks struct {
	mu      sync.Mutex // guards the fields below
	checks  lru[providerCheck]
	unsaved map[string]*providerGrant // renewed grants that could not be stored yet; at most maxChecks
}

// A providerCheck is the last check of a grant.
type providerCheck struct {
	sem chan struct{} // has an element while the grant is checked

	mu    sync.Mutex // guards the fields below
	last  time.Time  // when the identity provider last confirmed the grant
	until time.Time  // when the next check is due
}

// get returns the check of a grant. A check that the cache drops is completed by the request that
// does it.
func (c *providerChecks) get(handle string) *providerCheck {
	c.mu.Lock()
	defer c.mu.Unlock()
	check := c.checks.get(handle)
	if check == nil {
		check = &providerCheck{sem: make(chan struct{}, 1)}
		c.checks.put(handle, check)
	}
	return check
}

func (c *providerChecks) forget(handle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checks.drop(handle)
	delete(c.unsaved, handle)
}

// setUnsaved keeps a renewed grant until it is stored or forgotten.
func (c *providerChecks) setUnsaved(handle string, g *providerGrant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsaved == nil {
		c.unsaved = map[string]*providerGrant{}
	}
	if len(c.unsaved) < maxChecks {
		c.unsaved[handle] = g
	}
}

func (c *providerChecks) unsavedGrant(handle string) *providerGrant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsaved[handle]
}

func (c *providerChecks) setSaved(handle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsaved, handle)
}

// isFresh reports whether the next check is not due yet.
func (c *providerCheck) isFresh(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Before(c.until)
}

// confirm records that the identity provider has confirmed the grant now, and when the next check
// is due.
func (c *providerCheck) confirm(now, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.until = now, until
}

// confirmAt records that the identity provider issued a token of the grant, to this process or to
// another one.
func (c *providerCheck) confirmAt(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.After(c.last) {
		c.last = at
	}
}

// toleratesOutage reports whether the last confirmation is recent enough to accept the grant while
// the identity provider does not answer. If so, the next check is due after outageRetry.
func (c *providerCheck) toleratesOutage(now time.Time, outage time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.IsZero() || !now.Before(c.last.Add(outage)) {
		return false
	}
	c.until = now.Add(outageRetry)
	return true
}
