package driver

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
)

// A Timeout is a context that ends after a time, and whose time can be paused, as [PauseTimeouts]
// does while a user logs in. It is safe for concurrent use.
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

// PauseTimeouts pauses the timeouts of the mcp.Client request that ctx belongs to: the timeouts of
// mcp.CallOptions and of mcp.Connect. The caller must call done once to resume them. A deadline that
// the user of the client set is not affected. It is for middleware and transports that wait for a
// person, as in a login, or for work of unknown length, such as a task of the server.
func PauseTimeouts(ctx context.Context) (done func()) { return peer.PauseTimeouts(ctx) }

// OnRequestDone registers f to be called when the mcp.Client request that ctx belongs to ends. The
// method of the client waits for f before it returns. It is for middleware that keeps state while a
// request is sent again with input. Functions are called in reverse order. After the end of the request,
// f is called at once; if ctx belongs to no request, f is not called.
func OnRequestDone(ctx context.Context, f func()) {
	if r, ok := ctx.Value(peer.RequestKey{}).(interface{ OnDone(f func()) }); ok {
		r.OnDone(f)
	}
}
