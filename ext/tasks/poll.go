package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Limits of polling.
const (
	defaultPollInterval = time.Second
	// minPollInterval limits the load that a server can ask for.
	minPollInterval = 50 * time.Millisecond
	// maxPollInterval limits how late the end of a task is noticed.
	maxPollInterval = 5 * time.Minute
	// subscribedInterval is how often a task with a subscription is polled at most, because its
	// stream may be broken without an error.
	subscribedInterval = 30 * time.Second
	// maxOutage is how long polling may fail, and minAttempts how many times, before the wait
	// fails. A server that restarts is back by then.
	maxOutage   = 2 * time.Minute
	minAttempts = 3
	// firstRetry and maxRetry bound the pause between attempts, which doubles each time.
	firstRetry = 500 * time.Millisecond
	maxRetry   = 30 * time.Second
	// expiryGrace is how long a task is polled beyond its TTL, since clocks differ.
	expiryGrace = time.Minute
)

// A poller polls a task.
type poller struct {
	client          *mcp.Client
	form            clientForm
	id              string
	last            *seenTask // nil before the first response
	defaultInterval time.Duration
	options         mcp.CallOptions
	began           time.Time
	subscription    *subscription // may be nil
	lastEarly       time.Time     // when the task was last polled before the interval was over
	refused         bool          // the last response was an error that is not transient
	immediate       bool          // the next call of next does not wait
}

// next returns the task after the poll interval, or as soon as the subscription receives a change.
// Spec: tasks extension, Task Polling; basic/utilities/tasks (2025-11-25), Getting Tasks.
func (p *poller) next(ctx context.Context) (*seenTask, error) {
	if p.last != nil && p.last.isDetailed && p.immediate {
		p.immediate = false
		return p.last, nil
	}
	if p.last != nil && p.last.TTL > 0 && time.Since(p.began) > p.last.TTL+expiryGrace {
		return nil, fmt.Errorf("tasks: task %q has not ended within its TTL of %v: %w", p.id, p.last.TTL,
			mcp.ErrTimeout)
	}
	received, err := p.pause(ctx)
	if err != nil {
		return nil, err
	}
	if received != nil {
		p.last = received
		return received, nil
	}
	if err := p.refresh(ctx); err != nil {
		return nil, err
	}
	return p.last, nil
}

func (p *poller) refresh(ctx context.Context) error {
	return p.retry(ctx, func() error {
		t, err := p.get(mcp.WithCallOptions(ctx, p.options))
		if err == nil {
			p.last = t
		}
		return err
	})
}

// pause waits until it is time to poll, or returns a task that the subscription received. If
// the subscription says that the task should be polled, the pause ends early, but not more often
// than once per poll interval.
func (p *poller) pause(ctx context.Context) (*seenTask, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if p.immediate {
		p.immediate = false
		return nil, nil
	}
	due, early := time.Now().Add(p.interval()), false
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for {
		select {
		case <-p.subscription.changes():
			if t := p.subscription.received(); t != nil {
				return t, nil
			}
			early = true
			timer.Reset(min(time.Until(due), time.Until(p.lastEarly.Add(p.serverInterval()))))
		case <-timer.C:
			if early {
				p.lastEarly = time.Now()
			}
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (p *poller) interval() time.Duration {
	if p.subscription.isAccepted() {
		return max(p.serverInterval(), subscribedInterval)
	}
	return p.serverInterval()
}

// serverInterval returns the poll interval that the server asks for, within limits.
func (p *poller) serverInterval() time.Duration {
	d := p.defaultInterval
	if p.last != nil && p.last.PollInterval > 0 {
		d = p.last.PollInterval
	}
	return min(max(d, minPollInterval), maxPollInterval)
}

func (p *poller) get(ctx context.Context) (*seenTask, error) {
	raw, err := p.client.Do(ctx, methodGet, taskParams{ID: p.id})
	p.refused = isRefusal(err)
	if err != nil {
		return nil, err
	}
	t, err := p.form.decodeTask(raw)
	if err == nil && t.ID != p.id {
		err = fmt.Errorf("the taskId is %.64q, want %.64q", t.ID, p.id)
	}
	if err != nil {
		return nil, invalid(methodGet, err)
	}
	return t, nil
}

type taskParams struct {
	ID             string          `json:"taskId"`
	InputResponses json.RawMessage `json:"inputResponses,omitzero"`
	Meta           json.RawMessage `json:"_meta,omitzero"`
}

// do sends a request without a result.
func (p *poller) do(ctx context.Context, method string, responses json.RawMessage) error {
	_, err := p.client.Do(mcp.WithCallOptions(ctx, p.options), method, taskParams{ID: p.id, InputResponses: responses})
	return err
}

// retry calls f, which must be repeatable, until it succeeds or fails for good or for maxOutage.
func (p *poller) retry(ctx context.Context, f func() error) error {
	var attempts failures
	backoff := firstRetry
	for {
		err := f()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !isTransient(err):
			return err
		case attempts.lastFor(maxOutage):
			return fmt.Errorf("tasks: task %q: no response for %v: %w", p.id,
				time.Since(attempts.began).Round(time.Second), err)
		}
		timer := time.NewTimer(max(backoff, retryAfter(err)))
		backoff = min(2*backoff, maxRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

type failures struct {
	began time.Time
	count int
}

// lastFor counts a failure. It reports whether there were minAttempts, over at least d.
func (f *failures) lastFor(d time.Duration) bool {
	if f.count++; f.count == 1 {
		f.began = time.Now()
	}
	return f.count >= minAttempts && time.Since(f.began) >= d
}

// isTransient reports whether a repetition may succeed: no response, or a busy or failing server.
func isTransient(err error) bool {
	var fault *mcp.Error
	if errors.As(err, &fault) {
		return fault.Code == mcp.CodeBusy || fault.Code == mcp.CodeInternalError
	}
	var status interface{ HTTPStatus() int }
	if errors.As(err, &status) && (status.HTTPStatus() == 401 || status.HTTPStatus() == 403) {
		return false
	}
	var failed *mcp.TransportError
	return errors.As(err, &failed) && !errors.Is(err, mcp.ErrInvalidResult) && !isClosed(err)
}

// isRefusal reports whether the server responded with an error that is not transient.
func isRefusal(err error) bool {
	var fault *mcp.Error
	return errors.As(err, &fault) && fault.Remote() && !isTransient(err)
}

func retryAfter(err error) time.Duration {
	var fault *mcp.Error
	if !errors.As(err, &fault) {
		return 0
	}
	var data struct {
		After json.RawMessage `json:"retryAfterMs"`
	}
	if jsonv2.Unmarshal(fault.Data, &data) != nil {
		return 0
	}
	return min(milliseconds(data.After), maxRetry)
}

func (p *poller) subscribe(ctx context.Context) {
	if p.form.hasNotifications() {
		p.subscription = newSubscription(ctx, p.client, p.id)
	}
}

func (p *poller) unsubscribe() {
	p.subscription.stop()
	p.subscription = nil
}
