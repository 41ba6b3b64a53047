package redis

import (
	"sync"
	"time"
)

const (
	// breakerFailures is the number of consecutive failures that open the breaker.
	breakerFailures = 3
	// breakerPause is the time for which an open breaker refuses operations. Then a single
	// operation tries the server again.
	breakerPause = time.Second
)

// A breaker refuses operations for a time after several failures in a row.
type breaker struct {
	mu       sync.Mutex // guards the fields below
	failures int        // in a row
	retry    time.Time  // when an open breaker allows the next operation
}

// allow reports whether an operation may be tried. While the breaker is open, each pause allows a
// single operation.
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

// done records the end of an operation.
func (b *breaker) done(failed bool, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !failed {
		b.failures = 0
		return
	}
	b.failures++
	b.retry = now.Add(breakerPause)
}
