package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/lru"
)

const (
	// stateBudget is the kind of the entries with what callers have used today.
	stateBudget = "budget"
	// budgetWrite is how long what callers use is collected before it is written: a process that is
	// killed forgets at most that.
	budgetWrite = 5 * time.Second
	// maxBudgets bounds the callers whose budgets are in memory; the others are read again.
	maxBudgets = 10_000
	// budgetTimeout bounds one writing of all budgets.
	budgetTimeout = 5 * time.Second
)

// budgets count what callers use in a day, in the state, so that a restart resets nothing and several
// processes count together. It is safe for concurrent use.
type budgets struct {
	host    *Host
	writing sync.Mutex // held by write
	pruned  string     // the last day on which entries of others were deleted; guarded by writing

	mu     sync.Mutex // guards the fields below
	by     lru.Map[string, budget]
	unsent map[string]*budget // removed from by before they were written
	timer  *time.Timer        // of the next writing; nil if there is nothing to write
	closed bool
}

// A budget is what one caller has used on a day.
type budget struct {
	day   string // of UTC, such as 2026-11-23
	known usage  // in the state when it was last read
	added usage  // since then by this process
}

// A usage is what a caller has used: a value of the state, with the day.
type usage struct {
	Day   string `json:"day"`
	Calls int64  `json:"calls"`
	Bytes int64  `json:"bytes"`
}

func (u usage) isZero() bool { return u.Calls == 0 && u.Bytes == 0 }

func newBudgets(h *Host) *budgets {
	b := &budgets{host: h, unsent: map[string]*budget{}}
	b.by.Max = maxBudgets
	b.by.OnEvict = func(principal string, evicted *budget) {
		if !evicted.added.isZero() {
			b.unsent[principal] = evicted
		}
	}
	return b
}

func budgetDay(now time.Time) string { return now.UTC().Format(time.DateOnly) }

// untilMidnight returns the time until the next day of UTC begins.
func untilMidnight(now time.Time) time.Duration {
	return now.UTC().Truncate(24 * time.Hour).Add(24 * time.Hour).Sub(now)
}

// check returns an error if what is left of the budget of a caller is not enough for a request. The last
// one of a day may exceed the bytes.
func (b *budgets) check(
	ctx context.Context, u *Upstream, principal string, l *config.CallerLimits, more usage,
) error {
	if l.CallsPerDay == 0 && l.BytesPerDay == 0 {
		return nil
	}
	if err := b.load(ctx, principal); err != nil {
		return &Error{Code: CodeUnavailable, Server: u.name, RetryAfter: limitedRetry,
			Err: fmt.Errorf("read the budget of the caller: %w", err)}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.today(principal, time.Now()).check(u, l, more)
}

// spend is like check, and counts the request, for which check has returned nil.
func (b *budgets) spend(u *Upstream, principal string, l *config.CallerLimits, more usage) error {
	if l.CallsPerDay == 0 && l.BytesPerDay == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	today := b.today(principal, time.Now())
	if err := today.check(u, l, more); err != nil {
		return err
	}
	b.add(today, more)
	return nil
}

func (b *budget) check(u *Upstream, l *config.CallerLimits, more usage) error {
	calls, bytes := b.known.Calls+b.added.Calls, b.known.Bytes+b.added.Bytes
	switch {
	case l.CallsPerDay > 0 && more.Calls > 0 && calls+more.Calls > l.CallsPerDay:
		return u.overBudget("limits.callsPerDay", l.CallsPerDay)
	case l.BytesPerDay > 0 && bytes >= int64(l.BytesPerDay):
		return u.overBudget("limits.bytesPerDay", l.BytesPerDay)
	}
	return nil
}

func (u *Upstream) overBudget(setting string, limit any) error {
	wait := untilMidnight(time.Now())
	return u.refusal(CodeLimited, setting, wait,
		"the caller has used %s of %v: send the request again after midnight UTC, in %v", setting, limit, rounded(wait))
}

// count adds to what a caller uses, whatever is left of its budget.
func (b *budgets) count(principal string, l *config.CallerLimits, more usage) {
	if l.CallsPerDay == 0 && l.BytesPerDay == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.add(b.today(principal, time.Now()), more)
}

// load reads the budget of a caller unless it is in memory.
func (b *budgets) load(ctx context.Context, principal string) error {
	b.mu.Lock()
	known := b.by.Get(principal) != nil || b.unsent[principal] != nil
	b.mu.Unlock()
	if known {
		return nil
	}
	value, _, err := b.host.opts.State.Get(ctx, stateBudget, budgetKey(principal))
	if err != nil {
		return err
	}
	read := parseUsage(value)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.by.Get(principal) == nil && b.unsent[principal] == nil {
		b.by.Put(principal, &budget{day: read.Day, known: read})
	}
	return nil
}

func parseUsage(value []byte) (u usage) {
	if json.Unmarshal(value, &u) != nil {
		return usage{} // absent, or of another version
	}
	return u
}

// budgetKey returns the key of the entry of a principal, whose name may be long.
func budgetKey(principal string) string {
	sum := sha256.Sum256([]byte(principal))
	return hex.EncodeToString(sum[:])
}

// today returns the budget of a caller, which begins anew with each day. The lock is held.
func (b *budgets) today(principal string, now time.Time) *budget {
	found := b.by.Get(principal)
	if found == nil {
		if found = b.unsent[principal]; found == nil {
			found = &budget{}
		}
		delete(b.unsent, principal)
		b.by.Put(principal, found)
	}
	if day := budgetDay(now); found.day != day {
		*found = budget{day: day}
	}
	return found
}

// add adds to a budget, and begins to wait for its writing. The lock is held.
func (b *budgets) add(to *budget, more usage) {
	to.added.Calls += more.Calls
	to.added.Bytes += more.Bytes
	if b.timer == nil && !b.closed && !more.isZero() {
		b.timer = time.AfterFunc(budgetWrite, b.write)
	}
}

// write writes what callers have used since the last time.
func (b *budgets) write() {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	b.timer = nil
	changed := map[string]*budget{}
	add := func(principal string, one *budget) {
		if !one.added.isZero() && !b.closed {
			changed[principal] = one
		}
	}
	b.by.All(add)
	for principal, one := range b.unsent {
		add(principal, one)
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.host.ctx), budgetTimeout)
	defer cancel()
	for principal, one := range changed {
		if err := b.writeOne(ctx, principal, one); err != nil {
			b.host.opts.Logger.Warn("host: budgets of callers could not be written, which is tried again", "error", err)
			b.mu.Lock()
			if b.timer == nil && !b.closed {
				b.timer = time.AfterFunc(budgetWrite, b.write)
			}
			b.mu.Unlock()
			return
		}
	}
	if day := budgetDay(time.Now()); b.pruned != day && len(changed) > 0 {
		b.pruned = day
		b.prune(ctx, day)
	}
}

// writeOne adds to the entry of a caller, which other processes change too.
func (b *budgets) writeOne(ctx context.Context, principal string, one *budget) error {
	b.mu.Lock()
	added, day := one.added, one.day
	b.mu.Unlock()
	key := budgetKey(principal)
	for {
		value, version, err := b.host.opts.State.Get(ctx, stateBudget, key)
		if err != nil {
			return err
		}
		now := parseUsage(value)
		if now.Day != day {
			now = usage{Day: day}
		}
		now.Calls += added.Calls
		now.Bytes += added.Bytes
		err = b.host.opts.State.CompareAndSet(ctx, stateBudget, key, version, mustJSON(now))
		if errors.Is(err, state.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if one.day == day {
			one.known = now
			one.added.Calls -= added.Calls
			one.added.Bytes -= added.Bytes
		}
		if one.added.isZero() && b.unsent[principal] == one {
			delete(b.unsent, principal)
		}
		return nil
	}
}

// prune deletes the entries of other days.
func (b *budgets) prune(ctx context.Context, day string) {
	for e, err := range b.host.opts.State.List(ctx, stateBudget) {
		if err != nil {
			return
		}
		if parseUsage(e.Value).Day < day {
			_ = b.host.opts.State.CompareAndSet(ctx, stateBudget, e.Key, e.Version, nil) // else the next day
		}
	}
}

// close writes the budgets a last time.
func (b *budgets) close() {
	b.mu.Lock()
	if b.timer != nil {
		b.timer.Stop()
	}
	b.mu.Unlock()
	b.write()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}
