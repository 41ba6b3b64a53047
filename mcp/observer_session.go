package mcp

import (
	"context"

	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A SessionObserver is an [Observer] that also receives the sessions of revisions before 2026-07-28.
// SessionBegan is called when a session has been initialized, with the context of the initialize
// request at a server; the function that it returns is called once, when the session has ended, with
// the reason. Both must be fast and safe for concurrent use. On a stream it may be called shortly after
// [Serve] has returned.
type SessionObserver interface {
	Observer
	SessionBegan(ctx context.Context, v driver.Via) (ended func(cause error))
}

// A RefusalObserver is an [Observer] that also receives the requests that the HTTP transport has
// refused before a handler has seen them: with the status, and the reason as in mcphttp.Stats, which
// is one of a fixed set. Refused must be fast and safe for concurrent use.
type RefusalObserver interface {
	Observer
	Refused(status int, reason string)
}

// sessionBegan reports the session of a connection to a server and its end.
func (c *Client) sessionBegan(ctx context.Context, conn *connection) {
	o, ok := c.opts.Observer.(SessionObserver)
	if !ok || conn.session == nil {
		return
	}
	ended := o.SessionBegan(ctx, c.via.Via())
	go func() { // ends with the session
		<-conn.done
		ended(context.Cause(c.ctx))
	}()
}

// observeSession reports a session of the stream.
func (s *stream) observeSession(session *streamSession) {
	if o, ok := observerOf(s.handler).(SessionObserver); ok {
		ended := o.SessionBegan(session.ctx, driver.Via{Network: "pipe"})
		context.AfterFunc(session.ctx, func() { ended(context.Cause(session.ctx)) })
	}
}
