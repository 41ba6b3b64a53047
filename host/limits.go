package host

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A BreakerState tells whether requests are sent to a server.
type BreakerState string

// States of a breaker.
const (
	BreakerClosed   BreakerState = "closed"    // all requests are sent
	BreakerOpen     BreakerState = "open"      // requests are refused
	BreakerHalfOpen BreakerState = "half-open" // one request at a time tries the server
)

// A LimitStatus contains the figures of the limits of a server at one time. See [config.ServerSettings] and
// [config.CallerLimits].
type LimitStatus struct {
	// Running is the number of requests at the server, and Queued the number of requests that wait for
	// their turn. Requests that wait for an answer of their caller do not count.
	Running, Queued int
	// Concurrency and Queue are the configured limits of Running and Queued: of each process if the server
	// is a command that is not shared.
	Concurrency, Queue int
	// Instances is the limit of processes or connections of the server.
	Instances int
	// Breaker is the state of the breaker that refuses most, and RetryAfter the time until it tries the
	// server again.
	Breaker    BreakerState
	RetryAfter time.Duration
	// Refused counts the requests that each setting has refused since the server was configured, such as
	// "concurrency" or "limits.perCaller".
	Refused map[string]uint64
}

// callerLimits returns the limits of callers that are in force.
func (h *Host) callerLimits() *config.CallerLimits { return &h.servers.Current().Settings().Limits }

// limited returns a call as limits know it.
func limited(c *call.Call) *limits.Request {
	return &limits.Request{Principal: viewOf(c).principal, Server: poolOf(c).Limits(), Kind: c.Kind, Target: c.Target,
		MCP: c.Request}
}

// admitCall checks the limits of the caller and the names of the arguments.
func (h *Host) admitCall(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		err := h.limits.Admit(ctx, limited(c))
		if err == nil {
			err = checkNames(c, c.Request)
		}
		if err != nil {
			return nil, err
		}
		return next(ctx, c)
	}
}

// queueCall waits until it is the turn of the call at its server.
func (h *Host) queueCall(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		q, err := viewOf(c).enter(ctx, c)
		if err != nil {
			return nil, err
		}
		defer q.Leave(viewOf(c).principal)
		return next(ctx, c)
	}
}

// spendBudget charges the budget of the caller for the request. [result.Steps.Bytes] charges its result.
func (h *Host) spendBudget(next call.Next) call.Next {
	return func(ctx context.Context, c *call.Call) (mcp.Result, error) {
		if err := h.limits.Spend(limited(c)); err != nil {
			return nil, err
		}
		return next(ctx, c)
	}
}

// enter waits until it is the turn of a call. The caller must call Leave. The answer to a question of a
// call that waits at the server is sent at once: the server may serve no other request before it. So is a
// call that cannot be sent again because its approval was used. Calls that the host serves itself do not
// wait.
func (v *View) enter(ctx context.Context, c *call.Call) (*limits.Queue, error) {
	if c.Local != nil {
		return nil, nil
	}
	q := poolOf(c).Queue()
	if st, ok, err := c.Continues(); ok && err == nil && (st.Instance != "" || st.Nonce != "") {
		q.Force(v.principal)
		return q, nil
	}
	if err := q.Enter(ctx, v.principal); err != nil {
		return nil, poolOf(c).RequestError(ctx, err)
	}
	return q, nil
}
