package redis

import (
	"sync"
	"time"
)

const (
	// breakerFailures is the number of consecutive failures that open the breaker.
	breakerFailures = 3
	// breakerPause is how long an open breaker refuses operations. After the pause, a single
	// operation tries the server again.
	breakerPause = time.Second
)

// A breaker temporarily refuses operations after several consecutive failures.
type breaker struct {
	mu       sync.Mutex // guards the fields below
	failures int        // in a row
	last     time.Time  // when the last counted failure ended
	retry    time.Time  // when an open breaker allows the next operation
}

// allow reports whether an operation may run. While the breaker is open, a single operation may run
// after each pause.
func (b *breaker) allow(now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.failures < breakerFailures {
		return true
	}
	if now.Before(b.retry) {
		return false
	}
	b.retry = now.Add(breakerPause)
	return true
}

// done records the end of an operation. Operations that wait for the same stall count as a single
// failure: a failure counts only if the operation began after the last counted failure.
func (b *breaker) done(failed bool, begin, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !failed {
		b.failures = 0
		return
	}
	if begin.Before(b.last) {
		return
	}
	b.failures++
	b.last = now
	b.retry = now.Add(breakerPause)
}
