package mcp

import (
	"context"

	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// sessionBegan reports the session of a connection to a server and its end.
func (c *Client) sessionBegan(ctx context.Context, conn *connection) {
	o, ok := c.opts.Observer.(driver.SessionObserver)
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
	if o, ok := observerOf(s.handler).(driver.SessionObserver); ok {
		ended := o.SessionBegan(session.ctx, driver.Via{Network: "pipe"})
		context.AfterFunc(session.ctx, func() { ended(context.Cause(session.ctx)) })
	}
}
