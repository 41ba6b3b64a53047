package postgres

import (
	"context"
	"fmt"
	"time"

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
		return fmt.Errorf("postgres: invalid state of %d bytes: must have at most %d", len(state), maxState)
	}
	left := time.Until(expires)
	if left <= 0 {
		return context.Cause(ctx)
	}
	return s.query(ctx, "store state", len(state), nil, digest(key), append([]byte{}, state...), left)
}

func (s onceStore) Get(ctx context.Context, key string) ([]byte, error) {
	state, _, err := s.value(ctx, "read state", maxState, digest(key))
	return state, err
}

// Once reports whether the call is the first call with the key. A call that fails may have used the
// key.
func (s onceStore) Once(ctx context.Context, key string, expires time.Time) (first bool, err error) {
	n, err := s.number(ctx, "use once", 0, digest(key), max(time.Until(expires), 0)+clockSkew)
	return err == nil && n == 1, err
}
