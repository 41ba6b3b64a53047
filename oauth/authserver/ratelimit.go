package authserver

import (
	"slices"
	"sync"
	"time"
)

// maxLimited is the maximum number of keys of a limiter. The least recently used one is dropped,
// and then has its full rate again. 10,000 keys take about 3 MiB.
const maxLimited = 10_000

// A rateLimiter has a token bucket for each key. It is safe for concurrent use.
type rateLimiter struct {
	rate     Rate
	isStrict bool // no span of rate.Per sees more than rate.Count

	mu      sync.Mutex // guards the buckets
	buckets lru[bucket]
}

type bucket struct {
	tokens  float64 // at the time updated
	updated time.Time
	taken   []time.Time // the times of the last requests, the oldest first, if the limiter is strict
}

// A cost is one request that counts against a key of a limiter, whose rate is a multiple of the
// limiter's rate.
type cost struct {
	limiter *rateLimiter
	key     string
	times   int
}

// reserveAll takes all costs, or none. If one of them is not available, it returns the time until it
// will be.
func reserveAll(costs []cost) (wait time.Duration, ok bool) {
	for i, c := range costs {
		if wait, ok := c.reserve(); !ok {
			refund(costs[:i])
			return wait, false
		}
	}
	return 0, true
}

func refund(costs []cost) {
	for _, c := range costs {
		c.refund()
	}
}

func (c cost) reserve() (wait time.Duration, ok bool) {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(c)
	if c.isStrict() {
		return l.reserveStrict(b)
	}
	if b.tokens >= 1 {
		b.tokens--
		return 0, true
	}
	return time.Duration((1 - b.tokens) * float64(l.rate.Per) / c.capacity()), false
}

func (l *rateLimiter) reserveStrict(b *bucket) (wait time.Duration, ok bool) {
	b.taken = slices.DeleteFunc(b.taken, func(at time.Time) bool { return b.updated.Sub(at) >= l.rate.Per })
	if len(b.taken) < l.rate.Count {
		b.taken = append(b.taken, b.updated)
		return 0, true
	}
	return l.rate.Per - b.updated.Sub(b.taken[0]), false
}

func (c cost) refund() {
	l := c.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.bucket(c)
	b.tokens++
	if n := len(b.taken); n > 0 {
		b.taken = b.taken[:n-1]
	}
}

// isStrict reports whether the times of requests are kept. Multiples of the rate would be too many.
func (c cost) isStrict() bool { return c.limiter.isStrict && c.times == 1 }

func (c cost) capacity() float64 { return float64(c.times * c.limiter.rate.Count) }

func (c cost) isKnown() bool {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	return c.limiter.buckets.get(c.key) != nil
}

func (c cost) remember() {
	c.limiter.mu.Lock()
	defer c.limiter.mu.Unlock()
	c.limiter.bucket(c)
}

// bucket returns the bucket of a key, refilled. The caller holds l.mu.
func (l *rateLimiter) bucket(c cost) *bucket {
	now, capacity := time.Now(), c.capacity()
	b := l.buckets.get(c.key)
	if b == nil {
		b = &bucket{tokens: capacity, updated: now}
		l.buckets.put(c.key, b)
		return b
	}
	b.tokens = min(capacity, b.tokens+capacity*float64(now.Sub(b.updated))/float64(l.rate.Per))
	b.updated = now
	return b
}
