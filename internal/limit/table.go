// Package limit contains limiters: a table of token buckets, a fair queue, and a circuit breaker.
// Its types know neither requests nor errors of their users, who word the refusals.
package limit

import (
	"math"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/patchbay-mcp/patchbay/internal/lru"
)

// A Rate limits events per time, as a token bucket. The zero Rate means no limit where a user says
// so.
type Rate struct {
	PerSecond float64 // events per second, on average
	Burst     int     // events at once after a pause, at least 1
	// Window makes the limit strict: no Window contains more than Burst events. Zero means that a
	// bucket may see Burst events and the refilled tokens in a span.
	Window time.Duration
}

// Per returns the rate of count events in each span, and burst at once.
func Per(count int, span time.Duration, burst int) Rate {
	return Rate{PerSecond: float64(count) / span.Seconds(), Burst: burst}
}

// A bucket counts the events of a key.
type bucket struct {
	tokens *rate.Limiter
	taken  []time.Time // the last events of a strict rate, oldest first; at most Burst
	held   int         // tokens that Spend may take
}

func newBucket(r Rate) *bucket {
	return &bucket{tokens: rate.NewLimiter(rate.Limit(r.PerSecond), r.Burst)}
}

// take takes n tokens. If they are not available, it takes no token and returns the time until they
// are.
func (b *bucket) take(r Rate, n int, now time.Time) (wait time.Duration) {
	if r.Window > 0 {
		return b.takeStrictly(r, n, now)
	}
	if b.tokens.AllowN(now, n) {
		return 0
	}
	wait = math.MaxInt64
	seconds := (float64(n) - b.tokens.TokensAt(now)) / r.PerSecond
	if ns := seconds * float64(time.Second); ns < math.MaxInt64 {
		wait = time.Duration(ns)
	}
	return max(wait, time.Millisecond)
}

func (b *bucket) takeStrictly(r Rate, n int, now time.Time) (wait time.Duration) {
	b.taken = slices.DeleteFunc(b.taken, func(at time.Time) bool { return now.Sub(at) >= r.Window })
	excess := len(b.taken) + n - r.Burst
	if excess > 0 {
		return r.Window - now.Sub(b.taken[min(excess, len(b.taken))-1])
	}
	b.taken = append(b.taken, slices.Repeat([]time.Time{now}, n)...)
	return 0
}

// giveBack returns n tokens that were taken.
func (b *bucket) giveBack(r Rate, n int, now time.Time) {
	if r.Window > 0 {
		b.taken = b.taken[:max(0, len(b.taken)-n)]
		return
	}
	b.tokens.AllowN(now, -n) // a rate.Reservation cannot be canceled after its time
}

// add takes the tokens that another bucket spent, as far as there are any left.
func (b *bucket) add(other *bucket, now time.Time) {
	spent := other.tokens.Burst() - int(other.tokens.TokensAt(now))
	b.tokens.AllowN(now, max(0, min(spent, int(b.tokens.TokensAt(now)))))
	b.taken = append(b.taken, other.taken...)
	slices.SortFunc(b.taken, time.Time.Compare)
	b.taken = b.taken[max(0, len(b.taken)-b.tokens.Burst()):]
}

// A Table contains token buckets by key. When it is full, the least recently used bucket is
// evicted, and its spent tokens count for the group of its key, with which new buckets of the group
// begin. Otherwise a caller with many keys would reset the limit of each. A Table is safe for
// concurrent use.
type Table[K, G comparable] struct {
	mu      sync.Mutex // guards buckets
	buckets lru.Folding[K, G, bucket]
}

// NewTable returns a table of at most size buckets. The function group returns the group of a key;
// ok is false for a key without a group, whose evicted bucket is dropped. Nil means no groups.
func NewTable[K, G comparable](size int, group func(key K) (_ G, ok bool)) *Table[K, G] {
	if group == nil {
		group = func(K) (none G, ok bool) { return none, false }
	}
	add := func(to, from *bucket) { to.add(from, time.Now()) }
	return &Table[K, G]{buckets: lru.Folding[K, G, bucket]{Max: size, Group: group, Add: add}}
}

// Take takes n tokens from the bucket of a key. If they are not available, it takes no token and
// returns the time until they are, at least one millisecond. All calls for a key must pass the same
// rate.
func (t *Table[K, G]) Take(key K, r Rate, n int) (wait time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.bucket(key, r).take(r, n, time.Now())
}

// GiveBack returns n tokens that Take took.
func (t *Table[K, G]) GiveBack(key K, r Rate, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bucket(key, r).giveBack(r, n, time.Now())
}

// Set sets the tokens in the bucket of a key, at most the burst of the rate, and how many of them Spend
// may take.
func (t *Table[K, G]) Set(key K, r Rate, left, held int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	b, now := t.bucket(key, r), time.Now()
	b.tokens.AllowN(now, int(b.tokens.TokensAt(now))-left)
	b.held = held
}

// Spend takes n of the tokens that the bucket of a key holds for Spend, and reports whether there were as
// many and at least one.
func (t *Table[K, G]) Spend(key K, n int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	b := t.buckets.Get(key)
	if b == nil || b.held < max(n, 1) {
		return false
	}
	b.held -= n
	b.tokens.AllowN(time.Now(), n)
	return true
}

// Add adds the bucket of a key unless the table contains it.
func (t *Table[K, G]) Add(key K, r Rate) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.bucket(key, r)
}

// Contains reports whether the table contains the bucket of a key. It counts as a use of the
// bucket.
func (t *Table[K, G]) Contains(key K) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buckets.Get(key) != nil
}

// All calls f with each key and the tokens that its bucket holds now, in no order. It is no use of the
// buckets. Events of a strict rate count until the next Take after its Window. f must not use the table.
func (t *Table[K, G]) All(f func(key K, left float64)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.buckets.All(func(key K, b *bucket) {
		f(key, min(b.tokens.TokensAt(now), float64(b.tokens.Burst()-len(b.taken))))
	})
}

// Len returns the number of buckets.
func (t *Table[K, G]) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.buckets.Len()
}

// bucket returns the bucket of a key. The caller must hold t.mu.
func (t *Table[K, G]) bucket(key K, r Rate) *bucket {
	if b := t.buckets.Get(key); b != nil {
		return b
	}
	return t.buckets.GetOrPut(key, func() *bucket { return newBucket(r) })
}
