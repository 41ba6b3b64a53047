package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/host/state"
)

var (
	scriptLimitTake   = script("limit_take")
	scriptLimitLease  = script("limit_lease")
	scriptLimitReturn = script("limit_return")
	scriptLimitJoin   = script("limit_join")
)

type limitStore struct{ *Store }

// Limits returns a store that counts the limits of callers over the processes that share it, by the clock of
// the Redis server. A rate or a budget is a key of its own, which expires when it is unused.
func (s *Store) Limits() state.LimitStore { return limitStore{s} }

func (s limitStore) key(kind, key string) []string {
	return []string{s.opts.Prefix + ":" + kind + ":{" + digest(key) + "}"}
}

// Take takes tokens. The server counts microseconds, so a rate of more than a million tokens a second is no
// limit.
func (s limitStore) Take(
	ctx context.Context, key string, every time.Duration, burst, n int,
) (taken, left int, wait time.Duration, err error) {
	reply, err := s.eval(ctx, "take tokens", scriptLimitTake, 0, s.key("rate", key),
		strconv.FormatFloat(float64(every)/float64(time.Microsecond), 'f', 3, 64), strconv.Itoa(burst), strconv.Itoa(n))
	all, err := s.integers(reply, err, 3)
	return int(all[0]), int(all[1]), time.Duration(all[2]) * time.Microsecond, err
}

// Lease takes units of a budget. A period must consist of whole seconds.
func (s limitStore) Lease(
	ctx context.Context, key string, op state.Operation, period time.Duration, limit, n int64,
) (state.Lease, error) {
	reply, err := s.eval(ctx, "lease budget", scriptLimitLease, 0, s.key("budget", key),
		op.Process, strconv.FormatInt(op.Number, 10),
		strconv.FormatInt(int64(period/time.Second), 10), strconv.FormatInt(limit, 10), strconv.FormatInt(n, 10))
	all, err := s.integers(reply, err, 4)
	left := time.Duration(all[3]) * time.Millisecond
	return state.Lease{Units: all[0], Taken: all[1], Period: all[2], Left: left}, err
}

func (s limitStore) Return(ctx context.Context, key string, unused state.Lease) error {
	_, err := s.eval(ctx, "return lease", scriptLimitReturn, 0, s.key("budget", key),
		strconv.FormatInt(unused.Period, 10), strconv.FormatInt(unused.Units, 10))
	return err
}

func (s limitStore) Join(ctx context.Context, process string, ttl time.Duration) (place, processes int, err error) {
	reply, err := s.eval(ctx, "join processes", scriptLimitJoin, 0, []string{s.opts.Prefix + ":processes"}, process,
		strconv.FormatInt(ttl.Milliseconds(), 10))
	n, err := s.integers(reply, err, 2)
	return int(n[0]), int(n[1]), err
}

// integers returns the n integers of a reply. With an error, they are zero.
func (s limitStore) integers(reply rueidis.RedisMessage, err error, n int) ([]int64, error) {
	if err != nil {
		return make([]int64, n), err
	}
	all, err := reply.AsIntSlice()
	if err == nil && len(all) != n {
		err = errors.New("unexpected reply")
	}
	if err != nil {
		return make([]int64, n), fmt.Errorf("redis: %s: limits: %w", s.server, err)
	}
	return all, nil
}
