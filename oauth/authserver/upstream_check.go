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

// upstreamChecks remembers when grants were checked.
type upstreamChecks struct {
	mu       sync.Mutex // guards the fields below
	byHandle map[string]*list.Element
	recent   list.List                 // of *upstreamCheck, the most recent first
	unsaved  map[string]*upstreamGrant // what renewals gave that could not be written yet; at most maxChecks
}

type upstreamCheck struct {
	handle string
	turn   chan struct{} // holds a token while the grant is checked

	mu    sync.Mutex // guards the fields below
	last  time.Time  // when the third party last said that it is valid
	until time.Time  // until when that counts
}

// of returns what is known of a grant. The least recent one makes room; whoever checks it goes on.
func (c *upstreamChecks) of(handle string) *upstreamCheck {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byHandle[handle]; ok {
		c.recent.MoveToFront(e)
		return e.Value.(*upstreamCheck)
	}
	if c.byHandle == nil {
		c.byHandle = map[string]*list.Element{}
	}
	if len(c.byHandle) >= maxChecks {
		delete(c.byHandle, c.recent.Remove(c.recent.Back()).(*upstreamCheck).handle)
	}
	check := &upstreamCheck{handle: handle, turn: make(chan struct{}, 1)}
	c.byHandle[handle] = c.recent.PushFront(check)
	return check
}

func (c *upstreamChecks) forget(handle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if e, ok := c.byHandle[handle]; ok {
		c.recent.Remove(e)
		delete(c.byHandle, handle)
	}
	delete(c.unsaved, handle)
}

// keepUnsaved keeps what a renewal gave until it is saved, or forgotten.
func (c *upstreamChecks) keepUnsaved(handle string, g *upstreamGrant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.unsaved == nil {
		c.unsaved = map[string]*upstreamGrant{}
	}
	if len(c.unsaved) < maxChecks {
		c.unsaved[handle] = g
	}
}

func (c *upstreamChecks) unsavedOf(handle string) *upstreamGrant {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.unsaved[handle]
}

func (c *upstreamChecks) saved(handle string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.unsaved, handle)
}

func (c *upstreamCheck) holds(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return now.Before(c.until)
}

// good notes that the third party has said now that the grant is valid, which counts until then.
func (c *upstreamCheck) good(now, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last, c.until = now, until
}

// heard notes when the third party gave its token, which another process may know, or this one before it was started.
func (c *upstreamCheck) heard(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at.After(c.last) {
		c.last = at
	}
}

// outage reports whether the last word of a third party that does not answer still counts, and has it counted for a
// moment.
func (c *upstreamCheck) outage(now time.Time, outage time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last.IsZero() || !now.Before(c.last.Add(outage)) {
		return false
	}
	c.until = now.Add(outageRetry)
	return true
}
