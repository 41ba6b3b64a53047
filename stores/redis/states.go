package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxState limits request state, in bytes. A server stores at most 16 MiB.
	maxState = 16 << 20
	// clockSkew extends the time for which a use is recorded. If the clock of another process is
	// slow, the process accepts a state for longer.
	clockSkew = time.Minute
)

type onceStore struct{ *Store }

// States returns a store of large request states, which also records used request states. The clock
// of the process that writes a state determines when the state expires.
func (s *Store) States() mcp.OnceStore { return onceStore{s} }

// Put stores a state until the state expires, and ignores an expired state.
func (s onceStore) Put(ctx context.Context, key string, state []byte, expires time.Time) error {
	if len(state) > maxState {
		return fmt.Errorf("redis: invalid state of %d bytes: must have at most %d", len(state), maxState)
	}
	left := time.Until(expires)
	if left < time.Millisecond {
		return context.Cause(ctx)
	}
	_, err := s.do(ctx, "store state", len(state), func(ctx context.Context) rueidis.RedisResult {
		return s.client.Do(ctx, s.client.B().Set().Key(s.opts.Prefix+":state:{"+key+"}").Value(string(state)).
			PxMilliseconds(left.Milliseconds()).Build())
	})
	return err
}

func (s onceStore) Get(ctx context.Context, key string) ([]byte, error) {
	return s.value(ctx, "read state", s.opts.Prefix+":state:{"+key+"}")
}

// Once reports whether the call is the first call with the key. A call that fails may have used the
// key.
func (s onceStore) Once(ctx context.Context, key string, expires time.Time) (first bool, err error) {
	left := max(time.Until(expires), 0) + clockSkew
	reply, err := s.do(ctx, "use once", 0, func(ctx context.Context) rueidis.RedisResult {
		return s.client.Do(ctx, s.client.B().Set().Key(s.opts.Prefix+":once:{"+key+"}").Value("1").Nx().
			PxMilliseconds(left.Milliseconds()).Build())
	})
	return err == nil && !reply.IsNil(), err
}
