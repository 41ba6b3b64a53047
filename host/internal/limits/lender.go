package limits

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/state"
)

// stateBudget is the kind of the entries that contain the leased parts of budgets.
const stateBudget = "budget"

// A stateLender lends the budgets of the state of a host.
type stateLender struct {
	state   state.Store
	pruned  atomic.Int64 // the last period in which entries of former periods were deleted
	pruning sync.WaitGroup
}

// A lent is a value of the state.
type lent struct {
	Period int64 `json:"period"`
	Taken  int64 `json:"taken"`
}

func parseLent(value []byte) (l lent) {
	_ = json.Unmarshal(value, &l) // an absent entry, or that of another version, is zero
	return l
}

// Lease implements [lender].
func (s *stateLender) Lease(
	ctx context.Context, key string, _ state.Operation, period time.Duration, limit, n int64,
) (l state.Lease, err error) {
	now := time.Now().UnixNano()
	l.Period = now / int64(period)
	l.Left = time.Duration((l.Period+1)*int64(period) - now)
	if s.pruned.Swap(l.Period) != l.Period {
		s.pruning.Go(func() { s.prune(l.Period) })
	}
	err = s.change(ctx, key, func(now *lent) {
		if now.Period != l.Period {
			*now = lent{Period: l.Period}
		}
		l.Units = max(0, min(n, limit-now.Taken))
		now.Taken += l.Units
		l.Taken = now.Taken
	})
	return l, err
}

// Return implements [lender].
func (s *stateLender) Return(ctx context.Context, key string, unused state.Lease) error {
	return s.change(ctx, key, func(now *lent) {
		if now.Period == unused.Period {
			now.Taken = max(0, now.Taken-unused.Units)
		}
	})
}

// change changes an entry, which other processes may change at the same time.
func (s *stateLender) change(ctx context.Context, key string, f func(now *lent)) error {
	sum := sha256.Sum256([]byte(key)) // the name of a principal may be long
	entry := hex.EncodeToString(sum[:])
	for {
		value, version, err := s.state.Get(ctx, stateBudget, entry)
		if err != nil {
			return err
		}
		now := parseLent(value)
		before := now
		if f(&now); now == before {
			return nil
		}
		encoded, err := json.Marshal(now)
		if err == nil {
			err = s.state.CompareAndSet(ctx, stateBudget, entry, version, encoded)
		}
		if !errors.Is(err, state.ErrConflict) {
			return err
		}
	}
}

// prune deletes the entries of former periods.
func (s *stateLender) prune(period int64) {
	ctx, cancel := context.WithTimeout(context.Background(), leaseTimeout)
	defer cancel()
	for e, err := range s.state.List(ctx, stateBudget) {
		if err != nil {
			return
		}
		if parseLent(e.Value).Period < period {
			_ = s.state.CompareAndSet(ctx, stateBudget, e.Key, e.Version, nil) // else in the next period
		}
	}
}
