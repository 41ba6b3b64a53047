package host_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/storetest"
)

func TestMemoryLimits(t *testing.T) {
	storetest.RunLimits(t, func(*testing.T) (a, b state.LimitStore) {
		m := &memoryLimits{}
		return &limitClient{memoryLimits: m}, &limitClient{memoryLimits: m}
	})
}

// A limitClient uses a memoryLimits as a process does, and fails while broken is set. Its leases fail after they took
// effect while lost is set.
type limitClient struct {
	*memoryLimits
	broken, lost error
	delay        time.Duration // of leases
}

func (c *limitClient) lose(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lost = err
}

func (c *limitClient) slow(delay time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delay = delay
}

func (c *limitClient) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = err
}

// enter locks the memoryLimits unless the client is broken or the context ended.
func (c *limitClient) enter(ctx context.Context) error {
	c.mu.Lock()
	err := c.broken
	if err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		c.mu.Unlock()
	}
	return err
}

// memoryLimits is a [state.LimitStore] of the hosts of one process, in their time.
type memoryLimits struct {
	mu        sync.Mutex // guards the fields below, and those of the clients
	full      map[string]time.Time
	taken     map[string]state.Lease
	processes map[string]time.Time
	ahead     time.Duration // of the clock for budgets
	leases    int           // calls of Lease
	takes     int           // calls of Take
	last      map[leaseKey]lastLease
}

func (m *memoryLimits) move(ahead time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ahead = ahead
}

// A leaseKey identifies the leases of a process.
type leaseKey struct {
	key, process string
	period       int64
}

type lastLease struct{ number, units int64 }

func (c *limitClient) Take(
	ctx context.Context, key string, every time.Duration, burst, n int,
) (taken, left int, wait time.Duration, err error) {
	if err := c.enter(ctx); err != nil {
		return 0, 0, 0, err
	}
	defer c.mu.Unlock()
	now, size := time.Now(), every*time.Duration(burst)
	full := c.full[key]
	if full.Before(now) {
		full = now
	}
	c.takes++
	tokens := int((size - full.Sub(now)) / every)
	if tokens == 0 {
		return 0, 0, full.Add(every - size).Sub(now), nil
	}
	taken = min(n, tokens)
	put(&c.full, key, full.Add(every*time.Duration(taken)))
	return taken, tokens - taken, 0, nil
}

func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

func (c *limitClient) Lease(
	ctx context.Context, key string, op state.Operation, period time.Duration, limit, n int64,
) (l state.Lease, err error) {
	if err := c.enter(ctx); err != nil {
		return l, err
	}
	delay := c.delay
	defer func() {
		c.mu.Unlock()
		<-time.After(delay)
	}()
	c.leases++
	now := time.Now().Add(c.ahead).UnixNano()
	if l = c.taken[key]; l.Period != now/int64(period) {
		l = state.Lease{Period: now / int64(period)}
	}
	l.Units = max(0, min(n, limit-l.Taken))
	last, repeats := c.last[leaseKey{key, op.Process, l.Period}]
	switch {
	case repeats && op.Number == last.number:
		l.Units = last.units
	case repeats && op.Number < last.number:
		l.Units = 0
	default:
		l.Taken += l.Units
		put(&c.last, leaseKey{key, op.Process, l.Period}, lastLease{op.Number, l.Units})
	}
	l.Left = time.Duration((l.Period+1)*int64(period) - now)
	put(&c.taken, key, l)
	if c.lost != nil {
		return state.Lease{}, c.lost
	}
	return l, nil
}

func (c *limitClient) Return(ctx context.Context, key string, unused state.Lease) error {
	if err := c.enter(ctx); err != nil {
		return err
	}
	defer c.mu.Unlock()
	if l, ok := c.taken[key]; ok && l.Period == unused.Period {
		l.Taken = max(0, l.Taken-unused.Units)
		c.taken[key] = l
	}
	return nil
}

func (c *limitClient) Join(
	ctx context.Context, process string, ttl time.Duration,
) (place, processes int, err error) {
	if err := c.enter(ctx); err != nil {
		return 0, 0, err
	}
	defer c.mu.Unlock()
	now := time.Now()
	put(&c.processes, process, now.Add(ttl))
	for name, ends := range c.processes {
		switch {
		case !ends.After(now):
			delete(c.processes, name)
		case name < process:
			place++
		}
	}
	return place, len(c.processes), nil
}
