package host

import (
	"context"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/internal/limit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A requestQueue admits requests to a server, fairly between principals. If callers share it, the last
// quarter of the concurrency is for other principals than the one that uses the rest; the local user may
// use all of it. A request that has asked its caller a question is not counted while it waits for the
// answer. It is safe for concurrent use.
type requestQueue struct {
	up *Upstream
	*limit.Queue
}

// newQueue returns a queue for requests to a server.
func (u *Upstream) newQueue(shared bool) *requestQueue {
	var shares func(principal string) bool
	if shared {
		shares = func(principal string) bool { return principal != localPrincipal }
	}
	return &requestQueue{u, limit.NewQueue(queueLimits(u.entry().settings), shares, u.host.ctx.Done())}
}

func queueLimits(s *config.ServerSettings) limit.QueueLimits {
	return limit.QueueLimits{Running: s.Concurrency, Waiting: s.Queue, Timeout: s.QueueTimeout, Rate: limitRate(s.Rate)}
}

// enter waits until a request may be sent. The error is an [*Error].
func (q *requestQueue) enter(ctx context.Context, principal string) error {
	s := q.up.entry().settings
	err := q.Enter(ctx, principal)
	if err == nil {
		return nil
	}
	refused, ok := errors.AsType[*limit.QueueError](err)
	switch {
	case errors.Is(err, limit.ErrClosed):
		return &Error{Code: CodeUnavailable, Server: q.up.name, Err: mcp.ErrClosed}
	case !ok:
		return q.up.requestError(ctx, context.Cause(ctx))
	}
	setting, text := bottleneck(refused.By, s)
	if refused.IsFull {
		return q.up.refusal(CodeLimited, "queue", limitedRetry,
			"%s, and queue of %d is full: send the request again in %v", text, s.Queue, limitedRetry)
	}
	return q.up.refusal(CodeLimited, setting, limitedRetry,
		"the request has waited for queueTimeout of %v: %s; send it again later", s.QueueTimeout, text)
}

// leave ends a request that was admitted.
func (q *requestQueue) leave(principal string) {
	if q != nil {
		q.Leave(principal)
	}
}

// bottleneck returns the setting that requests wait for, and as a sentence.
func bottleneck(by limit.Bottleneck, s *config.ServerSettings) (setting, sentence string) {
	switch by {
	case limit.ByRate:
		return "rate", fmt.Sprintf("the server has reached rate of %v", s.Rate)
	case limit.ByShare:
		return "concurrency", fmt.Sprintf("the caller uses three quarters of concurrency of %d", s.Concurrency)
	default:
		return "concurrency", fmt.Sprintf("the server is busy with concurrency of %d", s.Concurrency)
	}
}
