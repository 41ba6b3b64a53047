package host

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// keepAlive is the interval of pings in sessions; maxMisses that fail in sequence end the session.
	keepAlive = 60 * time.Second
	// healthTimeout is how long a process may take to respond to a check. There are maxMisses checks in
	// sequence, so a slow server has time.
	healthTimeout = 20 * time.Second
	maxMisses     = 3
)

// errHangs is the reason for which a process is ended that does not respond.
var errHangs = errors.New("the server did not respond to any check")

// checkHealth checks a process after a request that has timed out, and ends it if it does not respond
// at all. Servers of the session era are pinged all the time.
func (s *start) checkHealth() {
	u := s.in.pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	if s.checking || s.stopping {
		return
	}
	s.checking = true
	u.host.work.run(func() {
		alive := s.responds()
		u.mu.Lock()
		s.checking = false
		u.mu.Unlock()
		if !alive {
			s.lost(fmt.Errorf("%w: %w", mcp.ErrDisconnected, errHangs))
		}
	})
}

// responds reports whether the server responds to one of several requests, or is being stopped.
func (s *start) responds() bool {
	for range maxMisses {
		ctx, cancel := context.WithTimeout(s.ctx, healthTimeout)
		_, err := s.client.Do(mcp.WithCallOptions(ctx, mcp.CallOptions{NoCache: true}), "server/discover", nil)
		expired := errors.Is(ctx.Err(), context.DeadlineExceeded)
		cancel()
		if err == nil || !expired {
			return true // also an error is a response, and the end of the connection is noticed otherwise
		}
	}
	return false
}
