package host

import (
	"hash/maphash"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/internal/lru"
)

const (
	// maxRates bounds the token buckets of callers and their tools: about 3 MiB.
	maxRates = 10_000
	// rateGroups is how many groups the keys of evicted buckets have: with more, one has less effect on
	// others.
	rateGroups = 1024
)

// A rateKey identifies the token bucket of a caller, or of the calls of a tool by a caller. A rate that
// the configuration has changed has new buckets.
type rateKey struct {
	principal, server, tool string
	rate                    config.Rate
}

// A rateGroup is what evicted buckets are counted by: a caller that uses more than maxRates keys does not
// get new tokens, and buckets with one rate do not affect those with another.
type rateGroup struct {
	rate config.Rate
	n    uint64
}

// A rateTable has the token buckets. It is safe for concurrent use.
type rateTable struct {
	mu      sync.Mutex // guards buckets
	buckets lru.Folding[rateKey, rateGroup, rate.Limiter]
}

func newRateTable() *rateTable {
	seed := maphash.MakeSeed()
	t := &rateTable{}
	t.buckets.Max = maxRates
	t.buckets.Group = func(key rateKey) (rateGroup, bool) {
		return rateGroup{key.rate, maphash.Comparable(seed, key) % rateGroups}, true
	}
	t.buckets.Add = func(to, from *rate.Limiter) {
		now := time.Now()
		spent := from.Burst() - int(from.TokensAt(now))
		to.AllowN(now, max(0, min(spent, int(to.TokensAt(now)))))
	}
	return t
}

// reserve takes a token, or returns how long to wait until there is one.
func (t *rateTable) reserve(key *rateKey) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buckets.Get(*key)
	if b == nil {
		b = t.buckets.GetOrPut(*key, func() *rate.Limiter { return newLimiter(key.rate) })
	}
	return takeToken(b)
}

func newLimiter(r config.Rate) *rate.Limiter {
	return rate.NewLimiter(rate.Limit(float64(r.Count)/r.Per.Seconds()), r.Burst)
}

// takeToken takes a token, or returns how long to wait until there is one.
func takeToken(b *rate.Limiter) (wait time.Duration) {
	now := time.Now()
	if b.AllowN(now, 1) {
		return 0
	}
	seconds := (1 - b.TokensAt(now)) / float64(b.Limit())
	return max(time.Duration(seconds*float64(time.Second)), time.Millisecond)
}
