package connection

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// requestsTimeout limits how long the requests of an ended connection may take to notice the end.
const requestsTimeout = time.Second

// Run attempts to connect, and then waits for the end of the connection.
func (c *Conn) Run() {
	c.waitForEarlier()
	t, err := c.connect()
	c.notify(Connected, err)
	if c.err == nil {
		c.waitForEnd(t)
	}
	c.end(t)
}

// waitForEarlier waits for the end of the process of the earlier connection.
func (c *Conn) waitForEarlier() {
	if c.options.After == nil {
		return
	}
	select {
	case <-c.options.After.ended:
	case <-c.ctx.Done():
	}
	c.options.After = nil
}

// connect attempts to connect. It sets the client only if there is no error.
func (c *Conn) connect() (mcp.Transport, error) {
	timeout := c.options.StartTimeout
	ctx, cancel := context.WithTimeoutCause(c.ctx, timeout,
		fmt.Errorf("%w within startTimeout of %v", ErrNotReady, timeout))
	defer cancel()
	ctx, setup, err := c.options.Prepare(ctx)
	if err != nil {
		return nil, err
	}
	t, client, err := c.dial(ctx, setup)
	if err != nil {
		if cause := context.Cause(ctx); errors.Is(cause, ErrNotReady) {
			err = cause
		}
		return t, err
	}
	c.forward = mcp.Forward(client)
	revision, _ := wire.ParseRevision(client.Revision())
	c.session = !revision.Modern()
	c.client = client
	return t, nil
}

// endOf returns the reason for the end of a transport's connection, or nil.
func endOf(t mcp.Transport) error {
	if l, ok := t.(driver.Lifetime); ok {
		return l.Err()
	}
	return nil
}

// waitForEnd waits until the connection ends or is stopped. The client connects to a server over
// HTTP again itself, when the next request needs a session.
func (c *Conn) waitForEnd(t mcp.Transport) {
	for done := c.forward.Done(); ; {
		select {
		case <-done:
		case <-c.ctx.Done():
			return
		}
		if c.options.Command {
			c.notify(Lost, cmp.Or(endOf(t), ErrEnded))
			c.waitForRequests()
			return
		}
		renewed := make(chan (<-chan struct{}), 1)
		c.mu.Lock()
		c.lostSession, c.renewed = done, renewed
		c.checkRenewedLocked() // the request that noticed the loss may be over
		c.mu.Unlock()
		c.notify(SessionLost, nil)
		select {
		case done = <-renewed:
		case <-c.ctx.Done():
			return
		}
	}
}

// waitForRequests waits until the requests of an ended connection return. They would not return the
// reason of the end if the connection were closed first.
func (c *Conn) waitForRequests() {
	idle := make(chan struct{})
	c.mu.Lock()
	if c.users == 0 {
		close(idle)
	} else {
		c.idle = idle
	}
	c.mu.Unlock()
	timer := time.NewTimer(requestsTimeout)
	defer timer.Stop()
	select {
	case <-idle:
	case <-timer.C:
	}
}

// checkRenewedLocked passes on the session that a request opened in place of a lost session.
func (c *Conn) checkRenewedLocked() {
	if c.lostSession == nil {
		return
	}
	if done := c.forward.Done(); done != c.lostSession {
		c.lostSession = nil
		c.renewed <- done // buffered
	}
}

// end closes the connection, and waits for the end of the process.
func (c *Conn) end(t mcp.Transport) {
	c.cancel(mcp.ErrClosed)
	if c.client != nil {
		_ = c.client.Close()
	}
	c.close(t)
	c.notify(Ended, nil)
	close(c.ended)
}

// close closes a transport, which waits for the end of the process, and ends its limits and its sandbox.
func (c *Conn) close(t mcp.Transport) {
	if t != nil {
		_ = t.Close()
	}
	if c.limiter != nil {
		_ = c.limiter.Close() // the host can do no more about processes that cannot be killed
		c.limiter = nil
	}
	if c.sandbox != nil {
		c.sandbox.Close()
		c.sandbox = nil
	}
}
