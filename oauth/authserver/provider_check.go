package authserver

import (
	"container/list"
	"sync"
	"time"
)

const (
	// outageRetry is how long a third party that did not answer is left alone.
	outageRetry = 5 * time.Second
	// maxChecks is how many grants it is remembered of when they were checked.
	maxChecks = 10_000
)

// providerChecks remembers when grants were checked.
type providerChecks struct {
	mu       sync.Mutex // guards the fields below
	byHandle map[string]*list.Element
	recent   list.List                 // of *providerCheck, the most recent first
	unsaved  map[string]*providerGrant // what renewals gave that could not be written yet; at most maxChecks
}

type providerCheck struct {
	handle string
	turn   chan struct{} // holds a token while the grant is checked

	mu    sync.Mutex // guards the fields below
	last  time.Time  // when the third party last said that it is valid
	until time.Time  // until when that counts
}

// of returns what is known of a grant. The least recent one makes room; whoever checks it goes on.
func (c *providerChecks) of(handle string) *providerCheck {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byHandle[handle]; ok {
		c.recent.MoveToFront(e)
		return e.Value.(*providerCheck)
	}
	if c.byHandle == nil {
		c.byHandle = map[string]*list.Element{}
	}
	if len(c.byHandle) >= maxChecks {
		delete(c.byHandle, c.recent.Remove(c.recent.Back()).(*providerCheck).handle)
	}
	check := &providerCheck{handle: handle, turn: make(chan struct{}, 1)}
	c.byHandle[handle] = c.recent.PushFront(check)
	return check
}

func (c *providerChecks) forget(handle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byHandle[handle]; ok {
		c.recent.Remove(e)
		delete(c.byHandle, handle)
	}
	delete(c.unsaved, handle)
}

// keepUnsaved keeps what a renewal gave until it is saved, or forgotten.
func (c *providerChecks) keepUnsaved(handle string, g *providerGrant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsaved == nil {
		c.unsaved = map[string]*providerGrant{}
	}
	if len(c.unsaved) < maxChecks {
		c.unsaved[handle] = g
	}
}

func (c *providerChecks) unsavedOf(handle string) *providerGrant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsaved[handle]
}

func (c *providerChecks) saved(handle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsaved, handle)
}

func (c *providerCheck) holds(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Before(c.until)
}

// good notes that the third party has said now that the grant is valid, which counts until then.
func (c *providerCheck) good(now, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.until = now, until
}

// heard notes when the third party gave its token, which another process may know, or this one before it was started.
func (c *providerCheck) heard(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.After(c.last) {
		c.last = at
	}
}

// outage reports whether the last word of a third party that does not answer still counts, and has it counted for a
// moment.
func (c *providerCheck) outage(now time.Time, outage time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.IsZero() || !now.Before(c.last.Add(outage)) {
		return false
	}
	c.until = now.Add(outageRetry)
	return true
}
