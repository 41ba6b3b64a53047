package host

import (
	"sync"
	"sync/atomic"
)

// counters count events by kind, of which there are few. They are safe for concurrent use.
type counters[K comparable] struct {
	mu sync.RWMutex // guards by
	by map[K]*atomic.Uint64
}

func (c *counters[K]) add(kind K) {
	c.mu.RLock()
	count := c.by[kind]
	c.mu.RUnlock()
	if count == nil {
		count = c.begin(kind)
	}
	count.Add(1)
}

// begin returns the counter of a kind that may be new.
func (c *counters[K]) begin(kind K) *atomic.Uint64 {
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

// all returns the counts so far, nil for none.
func (c *counters[K]) all() map[K]uint64 {
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
