package connection

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// healthTimeout limits the response of a process to a check. A slow server gets more time,
	// because maxMisses checks must fail in sequence.
	healthTimeout = 20 * time.Second
	maxMisses     = 3
)

// CheckHealth checks a process after a request that timed out, and reports Lost with [ErrHangs] if
// the process does not respond at all. Connections with sessions need no check, because the client
// pings them all the time.
func (c *Conn) CheckHealth() {
	c.mu.Lock()
	needed := !c.checking && !c.stopping
	c.checking = c.checking || needed
	c.mu.Unlock()
	if !needed {
		return
	}
	c.options.Go(func() {
		alive := c.responds()
		c.mu.Lock()
		c.checking = false
		c.mu.Unlock()
		if !alive {
			c.notify(Lost, fmt.Errorf("%w: %w", mcp.ErrDisconnected, ErrHangs))
		}
	})
}

// responds reports whether the server responds to any of several requests, or is being stopped.
func (c *Conn) responds() bool {
	for range maxMisses {
		ctx, cancel := context.WithTimeout(c.ctx, healthTimeout)
		_, err := c.client.Do(mcp.WithCallOptions(ctx, mcp.CallOptions{NoCache: true}), "server/discover", nil)
		expired := errors.Is(ctx.Err(), context.DeadlineExceeded)
		cancel()
		if err == nil || !expired {
			return true // an error is a response, too, and the end of the connection is noticed otherwise
		}
	}
	return false
}
