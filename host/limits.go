package host

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/internal/limit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// localPrincipal is the principal of views of the local user.
const localPrincipal = "principal "

// A LimitStatus has the figures of the limits of a server at one time. See [config.ServerSettings] and
// [config.CallerLimits].
type LimitStatus struct {
	// Running is the number of requests at the server, and Queued of those that wait for their turn.
	// Requests that wait for an answer of their caller are neither.
	Running, Queued int
	// Concurrency and Queue are the most of them: of each process if the server is a command that is
	// not shared.
	Concurrency, Queue int
	// Instances is the most processes or connections of the server.
	Instances int
	// Breaker is the state of the breaker that refuses most, and RetryAfter when it tries the server
	// again.
	Breaker    BreakerState
	RetryAfter time.Duration
	// Refused is how many requests each setting has refused since the server was configured, such as
	// "concurrency" or "limits.perCaller".
	Refused map[string]uint64
}

// refusal returns the error of a request that a setting refuses, and counts it.
func (u *Upstream) refusal(
	code hosterr.Code, setting string, after time.Duration, format string, args ...any,
) *Error {
	u.refused.add(setting)
	e := u.errorf(code, format, args...)
	e.RetryAfter = after
	return e
}

// rounded returns a time to wait for texts.
func rounded(d time.Duration) time.Duration {
	if d > time.Second {
		return d.Round(time.Second)
	}
	return d.Round(time.Millisecond)
}

// limits returns the limits of callers that are in force.
func (h *Host) limits() *config.CallerLimits { return &h.set.Load().settings.Limits }

// admit checks the limits of the caller.
func (v *View) admit(ctx context.Context, req *mcp.Request, r *call) error {
	l, u := v.host.limits(), r.pool.up
	key := v.callerRate()
	if err := v.checkRate(u, &key, "limits.perCaller"); err != nil {
		return err
	}
	if r.kind == ActionCall {
		setting := "limits.perTool"
		key = rateKey{v.principal, u.name, r.target, l.PerTool}
		if own, ok := u.entry().settings.ToolRates[r.target]; ok {
			setting, key.rate = "toolRates", own
		}
		if err := v.checkRate(u, &key, setting); err != nil {
			return err
		}
	}
	if err := v.checkArguments(req, r, l); err != nil {
		return err
	}
	if err := r.checkNames(req); err != nil {
		return err
	}
	return v.host.budgets.check(ctx, u, v.principal, l, usageOf(req, r))
}

// callerRate returns the key of the rate of the caller.
func (v *View) callerRate() rateKey {
	key, l := rateKey{principal: v.principal}, v.host.limits()
	if key.rate = l.PerCaller; v.caller.Principal == nil {
		key.rate = l.Local
	}
	return key
}

func (v *View) checkRate(u *Upstream, key *rateKey, setting string) error {
	if key.rate == (config.Rate{}) {
		return nil
	}
	wait := v.host.rates.Take(*key, limitRate(key.rate), 1)
	if wait == 0 {
		return nil
	}
	return u.refusal(CodeLimited, setting, wait, "the caller has reached %s of %v: send the request again in %v",
		setting, key.rate, rounded(wait))
}

// checkArguments checks the size of the arguments: of the params if the method has none.
func (v *View) checkArguments(req *mcp.Request, r *call, l *config.CallerLimits) error {
	size := config.Size(len(req.Params))
	if l.ArgumentBytes == 0 || size <= l.ArgumentBytes {
		return nil
	}
	if r.kind == ActionCall || r.kind == ActionGet {
		arguments, _ := req.Param("arguments")
		size = config.Size(len(arguments))
	}
	if size <= l.ArgumentBytes {
		return nil
	}
	return r.pool.up.refusal(CodeTooLarge, "limits.argumentBytes", 0,
		"the arguments have %d bytes, more than limits.argumentBytes of %v", size, l.ArgumentBytes)
}

// admitCall checks the limits of the caller before its call is approved: too many calls must not ask a
// user, and an approved call must not be refused by them. Each round of a call that asks questions counts.
func (h *Host) admitCall(next next) next {
	return func(ctx context.Context, c *call) (mcp.Result, error) {
		if err := c.view.admit(ctx, c.request, c); err != nil {
			return nil, err
		}
		return next(ctx, c)
	}
}

// queueCall waits until it is the turn of the call at its server.
func (h *Host) queueCall(next next) next {
	return func(ctx context.Context, c *call) (mcp.Result, error) {
		q, err := c.view.enter(ctx, c)
		if err != nil {
			return nil, err
		}
		defer q.leave(c.view.principal)
		return next(ctx, c)
	}
}

// spendBudget charges the budget of the caller for the request. Its result is charged by countBytes.
func (h *Host) spendBudget(next next) next {
	return func(ctx context.Context, c *call) (mcp.Result, error) {
		err := h.budgets.spend(c.pool.up, c.view.principal, h.limits(), usageOf(c.request, c))
		if err != nil {
			return nil, err
		}
		return next(ctx, c)
	}
}

// countBytes charges the budget of the caller for the result of the server.
func (h *Host) countBytes(_ context.Context, c *call, res mcp.Result, failed error) (mcp.Result, error) {
	h.budgets.count(c.view.principal, h.limits(), usage{Bytes: int64(resultSize(res, failed))})
	return res, failed
}

// usageOf returns what a request adds to what its caller uses, without its result.
func usageOf(req *mcp.Request, r *call) (u usage) {
	u.Bytes = int64(len(req.Params))
	if r.kind == ActionCall {
		u.Calls = 1
	}
	return u
}

// enter waits until it is the turn of a request. The caller calls leave. The answer to a question of a
// call that waits at the server is sent at once: the server may serve no other request before it. So is
// one that cannot be sent again because its approval was used. Requests that package host serves itself
// do not wait.
func (v *View) enter(ctx context.Context, c *call) (*requestQueue, error) {
	if c.local != nil {
		return nil, nil
	}
	q := c.pool.queue()
	if continues(c.request) {
		if st, ok, err := c.continues(); ok && err == nil && (st.Instance != "" || st.Nonce != "") {
			q.Force(v.principal)
			return q, nil
		}
	}
	if err := q.enter(ctx, v.principal); err != nil {
		return nil, err
	}
	return q, nil
}

// queue returns the queue of the requests of a pool: its own if it has processes of its own.
func (p *pool) queue() *requestQueue {
	if p.up.isCommand() && p.up.share() != config.ShareShared {
		return p.requests
	}
	return p.up.requests
}

// queues calls f for each queue. The lock of the upstream is held.
func (u *Upstream) queues(f func(q *requestQueue)) {
	f(u.requests)
	for _, p := range u.pools {
		f(p.requests)
	}
}

// applyLimits makes changed limits those of requests that wait.
func (u *Upstream) applyLimits() {
	u.mu.Lock()
	defer u.mu.Unlock()
	limits := queueLimits(u.entry().settings)
	u.queues(func(q *requestQueue) { q.SetLimits(limits) })
}

// limitStatus returns the figures of the limits. The lock is held.
func (u *Upstream) limitStatus(now time.Time) LimitStatus {
	s := u.entry().settings
	st := LimitStatus{Concurrency: s.Concurrency, Queue: s.Queue, Instances: s.Instances, Breaker: BreakerClosed,
		Refused: u.refused.all()}
	u.queues(func(q *requestQueue) {
		running, waiting := q.Len()
		st.Running += running
		st.Queued += waiting
	})
	for _, p := range u.pools {
		for _, i := range p.instances {
			state, wait := i.breaker.State(now)
			if state == limit.Open || state == limit.HalfOpen && st.Breaker == BreakerClosed {
				st.Breaker = BreakerState(state)
			}
			st.RetryAfter = max(st.RetryAfter, wait)
		}
	}
	return st
}

// A timeoutError is a timeout with the setting that it is of.
type timeoutError struct {
	text string
	err  error
}

func (e *timeoutError) Error() string { return e.text }

// Unwrap returns the error of the request.
func (e *timeoutError) Unwrap() error { return e.err }

// withSetting names the setting of a timeout. A request that has paused, while its server waited for an
// answer, may have either.
func (u *Upstream) withSetting(failed *mcp.TransportError, took time.Duration) error {
	s := u.entry().settings
	text := "no response within maxTimeout of " + s.MaxTimeout.String()
	if took < s.MaxTimeout || s.MaxTimeout == 0 {
		text = "no response, and no progress, within timeout of " + s.Timeout.String()
	}
	named := *failed
	named.Err = hosterr.Public{Err: &timeoutError{text, failed.Err}}
	return &named
}
