package limits

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/internal/lru"
	"github.com/patchbay-mcp/patchbay/internal/singleflight"
)

const (
	// leaseParts is the number of parts of a burst that processes lease, and of a budget that each process
	// leases if it uses the whole budget. With fewer parts, a process that is killed takes more of a budget
	// with it; with more parts, more requests wait for the store.
	leaseParts = 32
	// budgetPeriod begins at midnight UTC.
	budgetPeriod = 24 * time.Hour
	// maxBudgets limits the budgets in memory, two for each caller; the rests of others are returned.
	maxBudgets = 20_000
	// leaseTimeout limits the time of leasing a part, and of returning all rests.
	leaseTimeout = 5 * time.Second
)

// A lender lends parts of budgets: a [state.LimitStore], or the state of the host.
type lender interface {
	Lease(ctx context.Context, key string, op state.Operation, period time.Duration, limit, n int64) (
		state.Lease, error)
	Return(ctx context.Context, key string, unused state.Lease) error
}

// budgets count the usage of callers in a day. A process leases a part of a budget before it uses the part, so
// that a restart resets nothing and several processes count together. They are safe for concurrent use.
type budgets struct {
	lender  lender
	shared  *shared
	logger  *slog.Logger
	leasing singleflight.Group[budgetKey, int64]

	mu     sync.Mutex // guards the fields below
	by     lru.Map[budgetKey, budget]
	rests  map[budgetKey]state.Lease // of budgets that by does not contain any more
	leases int64                     // the number of the last lease
}

// A budgetKey identifies a budget of a caller.
type budgetKey struct {
	unit      string // calls or bytes
	principal string
}

// text returns the key for the lender. Units contain no colon.
func (k budgetKey) text() string { return k.unit + ":" + k.principal }

// A budget is the usage of a caller in a period.
type budget struct {
	granted int64 // units that the process leased
	spent   int64 // units that the process used: more than granted after a large result, or without the lender
	taken   int64 // units that all processes leased, when this process last did
	period  int64 // zero until the lender answered
	ends    time.Time
	leasing int64 // the number of a lease without an answer, which the next attempt repeats; or zero
}

// A usage is a number of calls and bytes.
type usage struct{ Calls, Bytes int64 }

func newBudgets(alone lender, s *shared, logger *slog.Logger) *budgets {
	b := &budgets{lender: alone, shared: s, logger: logger, rests: map[budgetKey]state.Lease{}}
	if s.store != nil {
		b.lender = s.store
	}
	b.by.Max, b.by.OnEvict = maxBudgets, b.evict
	return b
}

// untilMidnight returns the time until the next day of UTC begins.
func untilMidnight(now time.Time) time.Duration {
	return now.UTC().Truncate(budgetPeriod).Add(budgetPeriod).Sub(now)
}

// admit returns an error if the rest of a caller's budgets is not enough for a request, which it charges to them
// if it spends. The last requests of a day may exceed the bytes.
func (b *budgets) admit(ctx context.Context, r *Request, l *config.CallerLimits, spends bool) error {
	needs, spent := r.usage(), usage{}
	if spends {
		spent = needs
	}
	if l.CallsPerDay > 0 && needs.Calls > 0 {
		if err := b.draw(ctx, r, "calls", l.CallsPerDay, needs.Calls, spent.Calls); err != nil {
			return err
		}
	}
	if l.BytesPerDay > 0 {
		return b.draw(ctx, r, "bytes", int64(l.BytesPerDay), 1, spent.Bytes)
	}
	return nil
}

// draw spends units of a budget of which as many are left as needed, or refuses the request. It leases a part of the
// budget when the process has used its parts.
func (b *budgets) draw(ctx context.Context, r *Request, unit string, limit, needed, spent int64) error {
	key := budgetKey{unit, r.Principal}
	for !b.spend(key, 0, needed, spent) {
		units, err := b.lease(ctx, key, limit, needed)
		switch {
		case err != nil:
			return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: r.Server.name, RetryAfter: RetryAfter,
				Err: fmt.Errorf("read the budget of the caller: %w", err)}
		case units == unanswered && b.spend(key, b.current(key).alone(b.shared.own(), limit), needed, spent):
			return nil
		case units <= 0:
			return r.Server.overBudget(unit, limit, time.Until(b.current(key).ends))
		}
	}
	return nil
}

func (s *Server) overBudget(unit string, limit int64, wait time.Duration) error {
	setting, text := "limits."+unit+"PerDay", fmt.Sprint(limit)
	if unit == "bytes" {
		text = config.Size(limit).String()
	}
	return s.Refuse(hosterr.CodeLimited, setting, wait,
		"the caller has used %s of %s: send the request again after midnight UTC, in %v", setting, text, rounded(wait))
}

// spend spends units if the process leased the needed units, or may use them alone.
func (b *budgets) spend(key budgetKey, alone, needed, spent int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	used := b.todayLocked(key)
	if used.spent+needed > max(used.granted, alone) {
		return false
	}
	used.spent += spent
	return true
}

// alone returns the units of a budget that the process may use in a period without the lender: its share, or
// fewer if all processes together had leased more when the lender last answered.
func (u budget) alone(own share, limit int64) int64 {
	if u.period == 0 {
		return own.of(limit)
	}
	return min(own.of(limit), u.granted+max(0, limit-u.taken))
}

// unanswered is the result of lease if the process may use its share because the lender does not answer.
const unanswered = -1

// lease leases a part of a budget unless the process already holds as much as needed: requests that need the same
// budget at the same time wait for a single lease. The lease includes the units that the process used without a
// lease; if nothing is needed, it is of these alone. It returns zero if the budget is used up. Without an answer, the
// error is that of the lender if the process does not know how much of the budget it used before it started.
func (b *budgets) lease(ctx context.Context, key budgetKey, limit, needed int64) (units int64, err error) {
	return b.leasing.Do(ctx, key, func(ctx context.Context) (int64, error) {
		ctx, cancel := context.WithTimeout(ctx, leaseTimeout)
		defer cancel()
		b.giveBack(ctx)
		used := b.current(key)
		missing := used.spent - used.granted
		if missing+needed <= 0 {
			return max(-missing, 1), nil // never zero: other requests wait for the same result
		}
		n := max(missing, 0)
		if needed > 0 {
			n += max(limit/(leaseParts*int64(b.shared.own().processes)), 1)
		}
		units, err := b.take(ctx, key, limit, n)
		if err != nil && (b.shared.store != nil || used.period > 0) {
			return unanswered, nil
		}
		return units, err
	})
}

// take leases n units, or the rest of the limit.
func (b *budgets) take(ctx context.Context, key budgetKey, limit, n int64) (units int64, err error) {
	got, err := b.lender.Lease(ctx, key.text(), b.operation(key), budgetPeriod, limit, n)
	if err != nil {
		return 0, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	used := b.todayLocked(key)
	if used.period != got.Period && used.period > 0 {
		*used = budget{}
	}
	used.granted += got.Units
	used.taken, used.period, used.ends = got.Taken, got.Period, time.Now().Add(got.Left)
	used.leasing = 0
	return got.Units, nil
}

// operation returns the lease of a budget that is not answered, or a new lease.
func (b *budgets) operation(key budgetKey) state.Operation {
	b.mu.Lock()
	defer b.mu.Unlock()
	used := b.todayLocked(key)
	if used.leasing == 0 {
		b.leases++
		used.leasing = b.leases
	}
	return state.Operation{Process: b.shared.process, Number: used.leasing}
}

// settle leases the units that the process used without a lease, also over the limit, until done is closed or a
// lease fails: the next request of a caller leases the units that are left.
func (b *budgets) settle(done <-chan struct{}) {
	var keys []budgetKey
	b.mu.Lock()
	b.by.All(func(key budgetKey, used *budget) {
		if used.spent > used.granted {
			keys = append(keys, key)
		}
	})
	b.mu.Unlock()
	for _, key := range keys {
		for used := b.current(key); used.spent > used.granted; used = b.current(key) {
			select {
			case <-done:
				return
			default:
			}
			units, err := b.lease(context.Background(), key, math.MaxInt64, 0)
			if err != nil || units == unanswered {
				return
			}
			if units == 0 { // of a request that found the budget used up
				break
			}
		}
	}
}

// charge adds the bytes of a result to the usage of a caller, even over its budget.
func (b *budgets) charge(principal string, l *config.CallerLimits, bytes int) {
	if l.BytesPerDay == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.todayLocked(budgetKey{"bytes", principal}).spent += int64(bytes)
}

// current returns the usage of a caller now.
func (b *budgets) current(key budgetKey) budget {
	b.mu.Lock()
	defer b.mu.Unlock()
	return *b.todayLocked(key)
}

// todayLocked returns a budget, which begins anew with each period.
func (b *budgets) todayLocked(key budgetKey) *budget {
	found := b.by.Get(key)
	if found == nil {
		found = &budget{}
		b.by.Put(key, found)
	}
	if now := time.Now(); !now.Before(found.ends) {
		*found = budget{ends: now.Add(untilMidnight(now))}
	}
	return found
}

// evict keeps the part of a budget that the process leased and did not use, or used and did not lease.
func (b *budgets) evict(key budgetKey, used *budget) {
	if used.granted != used.spent && used.period > 0 {
		b.rests[key] = state.Lease{Units: used.granted - used.spent, Period: used.period}
	}
}

// giveBack returns the rests of evicted budgets to the lender.
func (b *budgets) giveBack(ctx context.Context) {
	b.mu.Lock()
	rests := b.rests
	b.rests = map[budgetKey]state.Lease{}
	b.mu.Unlock()
	for key, rest := range rests {
		if err := b.lender.Return(ctx, key.text(), rest); err != nil {
			b.logger.Warn("host: unused parts of budgets could not be returned, and end with the day", "error", err)
			return
		}
	}
}

// close returns the rests of all budgets.
func (b *budgets) close() {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	b.mu.Lock()
	b.by.All(b.evict)
	b.mu.Unlock()
	b.giveBack(ctx)
}
