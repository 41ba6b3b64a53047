// Package observe counts and identifies the calls of a host.
package observe

import (
	"maps"
	"sync/atomic"
)

// Counters count events by kind. There must be few kinds. Counters are safe for concurrent use.
type Counters[K comparable] struct {
	by atomic.Pointer[map[K]*atomic.Uint64] // never changed: a new kind replaces the map
}

// Add counts an event.
func (c *Counters[K]) Add(kind K) {
	for {
		old := c.by.Load()
		now := map[K]*atomic.Uint64{}
		if old != nil {
			if count := (*old)[kind]; count != nil {
				count.Add(1)
				return
			}
			now = maps.Clone(*old)
		}
		now[kind] = new(atomic.Uint64)
		c.by.CompareAndSwap(old, &now)
	}
}

// All returns the counts so far. It returns nil before the first event.
func (c *Counters[K]) All() map[K]uint64 {
	by := c.by.Load()
	if by == nil {
		return nil
	}
	all := map[K]uint64{}
	for kind, count := range *by {
		all[kind] = count.Load()
	}
	return all
}
