package connection

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// checkInterval is how often a connection that ends with its requests is checked for suspended
// requests, whose end is not reported. idleCheck is how often a connection is checked that is busy
// although no request is in progress.
const (
	checkInterval = time.Second
	idleCheck     = time.Minute
)

// Use adds a request. The connection may not be connected yet: see [Conn.Wait].
func (c *Conn) Use() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users++
}

// Resume adds a request whose caller answered a question of this connection. It reports whether
// requests can still use the connection.
func (c *Conn) Resume() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isConnectedLocked() {
		return false
	}
	c.users++
	c.resumed++
	return true
}

// Release ends a request that Use added.
func (c *Conn) Release() { c.release(0) }

// ReleaseResumed ends a request that Resume added.
func (c *Conn) ReleaseResumed() { c.release(1) }

func (c *Conn) release(resumed int) {
	kind := c.endRequest(resumed)
	if kind == 0 {
		return
	}
	c.notify(kind, nil)
	if kind == Stopped {
		c.cancel(mcp.ErrClosed) // after its cause was reported, so that Ended follows Stopped
	}
}

// endRequest ends a request, and returns the event that the end causes, or 0.
func (c *Conn) endRequest(resumed int) (event EventKind) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.resumed -= resumed
	c.users--
	c.used = now
	if c.users == 0 && c.idle != nil {
		close(c.idle)
		c.idle = nil
	}
	c.checkRenewedLocked()
	if c.users > 0 || c.stopping || !c.endsLocked() {
		return 0
	}
	if c.isBusyLocked(now) {
		return Unused
	}
	c.stopping = true
	return Stopped
}

// endsLocked reports whether the connection ends with its requests.
func (c *Conn) endsLocked() bool { return c.state == status.Draining || c.options.Single }

// isBusyLocked reports whether requests, including suspended requests, or tasks need the connection.
func (c *Conn) isBusyLocked(now time.Time) bool {
	if c.state == status.Starting || c.users > 0 || c.tasks.running(now) {
		return true
	}
	if c.options.Single && now.Before(c.answerDeadline) {
		return true
	}
	usage := c.forward.Usage()
	return usage.InProgress > 0 || usage.Suspended > 0
}

// Check returns whether the connection must be stopped: because it is idle, or because it was
// replaced and its requests ended. Otherwise, due is the time of the next check; zero means not
// before the next event. Connections that are watched are not idle; if idle is zero, no connection
// is.
func (c *Conn) Check(now time.Time, idle time.Duration, watched bool) (due time.Time, stop bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isConnectedLocked() {
		return due, false
	}
	busy := c.isBusyLocked(now)
	if c.endsLocked() {
		suspended := c.resumed > 0 || c.forward.Usage().Suspended > 0
		expired := !c.cut.IsZero() && !now.Before(c.cut)
		if !busy || expired && !suspended && !c.tasks.running(now) {
			return due, true
		}
		return now.Add(checkInterval), false
	}
	if idle <= 0 {
		return due, false
	}
	if busy || watched {
		c.used = now
		return now.Add(min(idle, idleCheck)), false
	}
	end := c.used.Add(idle)
	if end.Before(c.answerDeadline) {
		end = c.answerDeadline
	}
	if now.Before(end) {
		return end, false
	}
	return due, true
}

// IdleSince returns the end of the last request. ok reports whether the connection is not needed
// now, so that it may make room for another connection.
func (c *Conn) IdleSince(now time.Time) (used time.Time, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used, c.isConnectedLocked() && !c.endsLocked() && !c.isBusyLocked(now)
}

// AwaitAnswer keeps a connection for the answer to a question until a time; zero means that no answer is
// awaited any more.
func (c *Conn) AwaitAnswer(until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.answerDeadline = until
}
