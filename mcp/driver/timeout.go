package driver

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
)

// A Timeout is a context that ends after a time, and whose time can be paused, as
// [github.com/patchbay-mcp/patchbay/mcp.PauseTimeouts] does while a user logs in. It is safe for
// concurrent use.
type Timeout struct {
	context.Context
	limit *peer.Timeout
}

// StartTimeout returns a Timeout below ctx that ends with cause after the time. The caller must call
// Stop in the end.
func StartTimeout(ctx context.Context, after time.Duration, cause error) *Timeout {
	limit := new(peer.Timeout)
	limit.Start(ctx, peer.TimeLimits{Total: after}, cause)
	return &Timeout{limit, limit}
}

// Pause stops the time until Resume is called as many times as Pause.
func (t *Timeout) Pause() { t.limit.Pause() }

// Resume continues the time after Pause.
func (t *Timeout) Resume() { t.limit.Resume() }

// Stop stops the time and ends the context.
func (t *Timeout) Stop() { t.limit.Stop() }
