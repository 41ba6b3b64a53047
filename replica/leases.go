package replica

import (
	"context"
	"time"
)

// A LeaseStore grants leases to processes that share it. A name contains at most 1 KiB, a value 4 KiB. Times are
// those of the store, because the clocks of processes differ. The methods are safe for concurrent use, and must
// return within a second.
//
// Package stores/redis contains a LeaseStore. Package storetest tests implementations.
type LeaseStore interface {
	// Grant grants a lease for a time if no process holds it, or if its holder has the same value; then the
	// lease begins anew with the same token. Grant returns the present holder. Values must differ between
	// processes, so that a process can repeat Grant without knowing whether the store applied it.
	Grant(ctx context.Context, name, value string, ttl time.Duration) (Holder, error)
	// Find returns the holder of a lease, or the zero Holder.
	Find(ctx context.Context, name string) (Holder, error)
	// End ends a lease with a token. It has no effect on a lease with another token.
	End(ctx context.Context, name string, token uint64) error
}

// A Holder is a process that holds a lease.
type Holder struct {
	// Token increases with each holder of a lease. It is never zero.
	Token uint64
	Value string
	Left  time.Duration // until the lease ends
}

type memoryLease struct {
	Holder
	until time.Time
}

// Grant implements [LeaseStore].
func (m *Memory) Grant(ctx context.Context, name, value string, ttl time.Duration) (Holder, error) {
	if err := context.Cause(ctx); err != nil {
		return Holder{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	l := m.leases[name]
	held := now.Before(l.until)
	if held && l.Value != value {
		l.Left = l.until.Sub(now)
		return l.Holder, nil
	}
	if !held {
		l.Token++
	}
	l.Value, l.Left, l.until = value, ttl, now.Add(ttl)
	if m.leases == nil {
		m.leases = map[string]memoryLease{}
	}
	m.leases[name] = l
	return l.Holder, nil
}

// Find implements [LeaseStore].
func (m *Memory) Find(ctx context.Context, name string) (Holder, error) {
	if err := context.Cause(ctx); err != nil {
		return Holder{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	l := m.leases[name]
	if l.Left = time.Until(l.until); l.Left <= 0 {
		return Holder{}, nil
	}
	return l.Holder, nil
}

// End implements [LeaseStore].
func (m *Memory) End(ctx context.Context, name string, token uint64) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if l := m.leases[name]; l.Token == token {
		l.until = time.Time{}
		m.leases[name] = l
	}
	return nil
}
