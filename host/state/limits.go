package state

import (
	"context"
	"time"
)

// A LimitStore counts the limits of callers over all processes that share it. Keys are not empty and contain
// at most 64 KiB. Times are those of the store, because the clocks of processes differ. The methods are safe for
// concurrent use, and must return within a second, because requests wait for them: after an error a host admits
// its own share of a limit.
//
// Package stores/redis contains a LimitStore. Package storetest tests implementations.
type LimitStore interface {
	// Take takes n tokens from the bucket of a key, or all tokens that are left if there are fewer. A
	// bucket gets a token each time that every has passed, and never contains more than burst tokens,
	// which a new bucket does. Take returns the numbers of tokens that it took and that are left. If it
	// took none, wait is the time until there is a token.
	Take(ctx context.Context, key string, every time.Duration, burst, n int) (
		taken, left int, wait time.Duration, err error)
	// Lease takes n units of a budget, or all units that are left if there are fewer. A budget contains
	// limit units in each period; the first period begins at the start of 1970, UTC. An operation that
	// repeats the last lease of its process in the period takes nothing, and returns the Units of that
	// lease.
	Lease(ctx context.Context, key string, op Operation, period time.Duration, limit, n int64) (Lease, error)
	// Return returns the Units of a lease that were not used; negative Units were used without a lease. It
	// has no effect after the period.
	Return(ctx context.Context, key string, unused Lease) error
	// Join counts a process for a time, which the next Join replaces; zero removes the process. All
	// processes must join for the same time, so that the store can tell when its clock was ahead. Join
	// returns the number of processes, and how many of them have a lesser name.
	Join(ctx context.Context, process string, ttl time.Duration) (place, processes int, err error)
}

// An Operation identifies a lease, so that a process can repeat it without knowing whether the store applied
// it.
type Operation struct {
	Process string // as it joined
	Number  int64  // at least 1, and greater than in earlier operations of the process
}

// A Lease is a part of a budget.
type Lease struct {
	Units  int64         // that the process may use; zero if the budget is used up
	Taken  int64         // units of all leases in this period
	Period int64         // number of the period
	Left   time.Duration // until the period ends
}
