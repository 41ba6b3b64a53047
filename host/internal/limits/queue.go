package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/internal/limit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Queue admits requests to a server, or to a process of the server, fairly between principals. If
// callers share it, a principal must leave the last quarter of the concurrency to others; the local user
// may use all of it. A request that has asked its caller a question is not counted while it waits for the
// answer. A nil Queue admits every request. A Queue is safe for concurrent use.
type Queue struct {
	server  *Server
	queue   *limit.Queue
	divided bool
}

// NewQueue returns a queue for requests to the server. shared tells whether callers share it.
func (s *Server) NewQueue(shared bool) *Queue {
	var shares func(principal string) bool
	if shared {
		shares = func(principal string) bool { return principal != LocalPrincipal }
	}
	return &Queue{server: s, queue: limit.NewQueue(queueLimits(s.settings.Load()), shares, s.limits.opts.Done)}
}

func queueLimits(s *config.ServerSettings) limit.QueueLimits {
	return limit.QueueLimits{Running: s.Concurrency, Waiting: s.Queue, Timeout: time.Duration(s.QueueTimeout),
		Rate: limitRate(s.Rate)}
}

// Divide makes the queue apply the share of the process, because other processes of the host send requests to
// the same server. It must be called before the queue is used.
func (q *Queue) Divide() {
	q.divided = true
	q.Update()
}

// Update applies changed settings of the server, also to the requests that wait.
func (q *Queue) Update() {
	l, own := queueLimits(q.server.settings.Load()), q.server.limits.shared.own()
	if q.divided && l.Running > 0 {
		l.Running = int(own.of(int64(l.Running)))
	}
	if q.divided && l.Rate.Burst > 0 {
		l.Rate.PerSecond /= float64(own.processes)
		l.Rate.Burst = int(own.of(int64(l.Rate.Burst)))
	}
	q.queue.SetLimits(l)
}

// Enter waits until a request may be sent. Unless Enter fails, the caller must call Leave. The error is
// an [*hosterr.Error], or the cause of the end of the context.
func (q *Queue) Enter(ctx context.Context, principal string) error {
	if q == nil {
		return nil
	}
	s := q.server.settings.Load()
	err := q.queue.Enter(ctx, principal)
	if err == nil {
		return nil
	}
	refused, ok := errors.AsType[*limit.QueueError](err)
	switch {
	case errors.Is(err, limit.ErrClosed):
		return &hosterr.Error{Code: hosterr.CodeUnavailable, Server: q.server.name, Err: mcp.ErrClosed}
	case !ok:
		return context.Cause(ctx)
	}
	setting, text := bottleneck(refused.By, s)
	if n := q.server.limits.shared.own().processes; q.divided && n > 1 {
		text += fmt.Sprintf(", divided between %d processes", n)
	}
	if refused.IsFull {
		return q.server.Refuse(hosterr.CodeLimited, "queue", RetryAfter,
			"%s, and queue of %d is full: send the request again in %v", text, s.Queue, RetryAfter)
	}
	return q.server.Refuse(hosterr.CodeLimited, setting, RetryAfter,
		"the request has waited for queueTimeout of %v: %s; send it again later", s.QueueTimeout, text)
}

// Force admits a request at once. The caller must call Leave.
func (q *Queue) Force(principal string) {
	if q != nil {
		q.queue.Force(principal)
	}
}

// Leave ends a request that was admitted.
func (q *Queue) Leave(principal string) {
	if q != nil {
		q.queue.Leave(principal)
	}
}

// Len returns the numbers of running and waiting requests.
func (q *Queue) Len() (running, waiting int) { return q.queue.Len() }

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
