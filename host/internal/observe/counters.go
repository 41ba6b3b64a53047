// Package observe counts and identifies the calls of a host.
package observe

import (
	"sync"
	"sync/atomic"
)

// Counters count events by kind. There must be few kinds. Counters are safe for concurrent use.
type Counters[K comparable] struct {
	mu sync.RWMutex // guards by
	by map[K]*atomic.Uint64
}

// Add counts an event.
func (c *Counters[K]) Add(kind K) {
	c.mu.RLock()
	count := c.by[kind]
	c.mu.RUnlock()
	if count == nil {
		count = c.begin(kind)
	}
	count.Add(1)
}

// begin returns the counter of a kind that may be new.
func (c *Counters[K]) begin(kind K) *atomic.Uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[K]*atomic.Uint64{}
	}
	if c.by[kind] == nil {
		c.by[kind] = new(atomic.Uint64)
	}
	return c.by[kind]
}

// All returns the counts so far. It returns nil before the first event.
func (c *Counters[K]) All() map[K]uint64 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	var all map[K]uint64
	for kind, count := range c.by {
		if all == nil {
			all = map[K]uint64{}
		}
		all[kind] = count.Load()
	}
	return all
}
