package limits

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/lru"
)

const (
	// stateBudget is the kind of the entries that contain the usage of callers today.
	stateBudget = "budget"
	// budgetWrite is the time for which usage is collected before it is written: a process that is
	// killed forgets no more.
	budgetWrite = 5 * time.Second
	// maxBudgets limits the callers whose budgets are in memory; other budgets are read again.
	maxBudgets = 10_000
	// budgetTimeout limits the time of writing all budgets.
	budgetTimeout = 5 * time.Second
)

// budgets count the usage of callers in a day. They are in the state, so that a restart resets nothing
// and several processes count together. They are safe for concurrent use.
type budgets struct {
	state   state.Store
	logger  *slog.Logger
	writing sync.Mutex // held by write
	pruned  string     // the last day on which entries of other days were deleted; guarded by writing

	mu     sync.Mutex // guards the fields below
	by     lru.Map[string, budget]
	unsent map[string]*budget // removed from by before they were written
	timer  *time.Timer        // of the next writing; nil if every budget is written
	closed bool
}

// A budget is the usage of one caller on a day.
type budget struct {
	day   string // of UTC, such as 2026-11-23
	known usage  // in the state when it was last read
	added usage  // since then by this process
}

// A usage is a value of the state: the calls and bytes of a caller on a day.
type usage struct {
	Day   string `json:"day"`
	Calls int64  `json:"calls"`
	Bytes int64  `json:"bytes"`
}

func (u usage) isZero() bool { return u.Calls == 0 && u.Bytes == 0 }

func newBudgets(store state.Store, logger *slog.Logger) *budgets {
	b := &budgets{state: store, logger: logger, unsent: map[string]*budget{}}
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

// check returns an error if the rest of a caller's budget is not enough for a request. The last request
// of a day may exceed the bytes.
func (b *budgets) check(ctx context.Context, r *Request, l *config.CallerLimits) error {
	if l.CallsPerDay == 0 && l.BytesPerDay == 0 {
		return nil
	}
	if err := b.load(ctx, r.Principal); err != nil {
		return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: r.Server.name, RetryAfter: RetryAfter,
			Err: fmt.Errorf("read the budget of the caller: %w", err)}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.todayLocked(r.Principal, time.Now()).check(r, l)
}

// spend is like check, and charges the request, for which check has returned nil.
func (b *budgets) spend(r *Request, l *config.CallerLimits) error {
	if l.CallsPerDay == 0 && l.BytesPerDay == 0 {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	today := b.todayLocked(r.Principal, time.Now())
	if err := today.check(r, l); err != nil {
		return err
	}
	b.addLocked(today, r.usage())
	return nil
}

func (b *budget) check(r *Request, l *config.CallerLimits) error {
	calls, bytes, more := b.known.Calls+b.added.Calls, b.known.Bytes+b.added.Bytes, r.usage()
	switch {
	case l.CallsPerDay > 0 && more.Calls > 0 && calls+more.Calls > l.CallsPerDay:
		return r.Server.overBudget("limits.callsPerDay", l.CallsPerDay)
	case l.BytesPerDay > 0 && bytes >= int64(l.BytesPerDay):
		return r.Server.overBudget("limits.bytesPerDay", l.BytesPerDay)
	}
	return nil
}

func (s *Server) overBudget(setting string, limit any) error {
	wait := untilMidnight(time.Now())
	return s.Refuse(hosterr.CodeLimited, setting, wait,
		"the caller has used %s of %v: send the request again after midnight UTC, in %v", setting, limit, rounded(wait))
}

// charge adds to the usage of a caller, even over its budget.
func (b *budgets) charge(principal string, l *config.CallerLimits, more usage) {
	if l.CallsPerDay == 0 && l.BytesPerDay == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.addLocked(b.todayLocked(principal, time.Now()), more)
}

// load reads the budget of a caller unless it is in memory.
func (b *budgets) load(ctx context.Context, principal string) error {
	b.mu.Lock()
	known := b.by.Get(principal) != nil || b.unsent[principal] != nil
	b.mu.Unlock()
	if known {
		return nil
	}
	value, _, err := b.state.Get(ctx, stateBudget, budgetKey(principal))
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

// todayLocked returns the budget of a caller, which begins anew with each day.
func (b *budgets) todayLocked(principal string, now time.Time) *budget {
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

// addLocked adds to a budget, and begins to wait for its writing.
func (b *budgets) addLocked(to *budget, more usage) {
	to.added.Calls += more.Calls
	to.added.Bytes += more.Bytes
	if b.timer == nil && !b.closed && !more.isZero() {
		b.timer = time.AfterFunc(budgetWrite, b.write)
	}
}

// write writes the usage of callers since the last time.
func (b *budgets) write() {
	b.writing.Lock()
	defer b.writing.Unlock()
	b.mu.Lock()
	b.timer = nil
	changed := map[string]*budget{}
	add := func(principal string, used *budget) {
		if !used.added.isZero() && !b.closed {
			changed[principal] = used
		}
	}
	b.by.All(add)
	for principal, used := range b.unsent {
		add(principal, used)
	}
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), budgetTimeout)
	defer cancel()
	for principal, used := range changed {
		if err := b.writeBudget(ctx, principal, used); err != nil {
			b.logger.Warn("host: budgets of callers could not be written, which is tried again", "error", err)
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

// writeBudget adds to the entry of a caller, which other processes may change at the same time.
func (b *budgets) writeBudget(ctx context.Context, principal string, used *budget) error {
	b.mu.Lock()
	added, day := used.added, used.day
	b.mu.Unlock()
	key := budgetKey(principal)
	for {
		value, version, err := b.state.Get(ctx, stateBudget, key)
		if err != nil {
			return err
		}
		now := parseUsage(value)
		if now.Day != day {
			now = usage{Day: day}
		}
		now.Calls += added.Calls
		now.Bytes += added.Bytes
		encoded, err := json.Marshal(now)
		if err != nil {
			return err
		}
		err = b.state.CompareAndSet(ctx, stateBudget, key, version, encoded)
		if errors.Is(err, state.ErrConflict) {
			continue
		}
		if err != nil {
			return err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		if used.day == day {
			used.known = now
			used.added.Calls -= added.Calls
			used.added.Bytes -= added.Bytes
		}
		if used.added.isZero() && b.unsent[principal] == used {
			delete(b.unsent, principal)
		}
		return nil
	}
}

// prune deletes the entries of other days.
func (b *budgets) prune(ctx context.Context, day string) {
	for e, err := range b.state.List(ctx, stateBudget) {
		if err != nil {
			return
		}
		if parseUsage(e.Value).Day < day {
			_ = b.state.CompareAndSet(ctx, stateBudget, e.Key, e.Version, nil) // else the next day
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
