package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/replica"
)

var (
	scriptLeaseGrant = script("lease", "lease_grant")
	scriptLeaseFind  = script("lease", "lease_find")
	scriptLeaseEnd   = script("lease", "lease_end")
)

type leaseStore struct{ *Store }

// Leases returns a store of leases, by the clock of the Redis server. If the clock jumps ahead, or the server loses
// its data, a lease may end early: its holder notices it at the next Grant.
func (s *Store) Leases() replica.LeaseStore { return leaseStore{s} }

func (s leaseStore) key(name string) []string {
	return []string{s.opts.Prefix + ":lease:{" + digest(name) + "}"}
}

func (s leaseStore) Grant(ctx context.Context, name, value string, ttl time.Duration) (replica.Holder, error) {
	reply, err := s.eval(ctx, "grant lease", scriptLeaseGrant, 0, s.key(name), value,
		strconv.FormatInt(ttl.Milliseconds(), 10))
	return s.holder(reply, err)
}

func (s leaseStore) Find(ctx context.Context, name string) (replica.Holder, error) {
	reply, err := s.eval(ctx, "find lease", scriptLeaseFind, 0, s.key(name))
	return s.holder(reply, err)
}

func (s leaseStore) End(ctx context.Context, name string, token uint64) error {
	_, err := s.eval(ctx, "end lease", scriptLeaseEnd, 0, s.key(name), strconv.FormatUint(token, 10))
	return err
}

// holder returns the holder of a reply: the token, the value, and the milliseconds until the end.
func (s leaseStore) holder(reply rueidis.RedisMessage, err error) (h replica.Holder, _ error) {
	if err != nil {
		return h, err
	}
	all, err := reply.AsStrSlice()
	if err == nil && len(all) == 0 {
		return h, nil
	}
	if err == nil && len(all) != 3 {
		err = errors.New("unexpected reply")
	}
	var left int64
	if err == nil {
		h.Value = all[1]
		h.Token, err = strconv.ParseUint(all[0], 10, 64)
	}
	if err == nil {
		left, err = strconv.ParseInt(all[2], 10, 64)
	}
	if err != nil {
		return replica.Holder{}, fmt.Errorf("redis: %s: leases: %w", s.server, err)
	}
	h.Left = time.Duration(left) * time.Millisecond
	return h, nil
}
