package tasks

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Bounds of asking for a task.
const (
	defaultPollInterval = time.Second
	// minPollInterval keeps a server that wants to be asked all the time from using up both sides.
	minPollInterval = 50 * time.Millisecond
	// maxPollInterval keeps a server that means never from being forgotten.
	maxPollInterval = 5 * time.Minute
	// listeningInterval is how often a task is asked for that is listened to: a stream may be dead without anybody
	// noticing.
	listeningInterval = 30 * time.Second
	// maxOutage is how long a server may fail to say how a task stands: a server that restarts is back by then.
	maxOutage = 2 * time.Minute
	// minTries is how often it is asked at least before it is given up, each time for as long as a request may take.
	minTries = 3
	// firstRetry and maxRetry are the pauses between tries; each is twice the one before.
	firstRetry = 500 * time.Millisecond
	maxRetry   = 30 * time.Second
	// expiryGrace is how much longer than its server keeps it a task is waited for: clocks and lines differ.
	expiryGrace = time.Minute
)

// A poller asks how one task stands.
type poller struct {
	client  *mcp.Client
	form    form
	id      string
	last    *sighting     // nil before the first
	every   time.Duration // if the server does not say
	options mcp.CallOptions
	began   time.Time
	feed    *feed     // nil if nobody listens
	hurried time.Time // when it was last asked for before it was time
	refused bool      // the server has no such task, by its last word
	isDue   bool      // nothing is waited for before the next answer
}

// next returns the task as it stands after the pause that the server wants, or once it is told.
//
// Spec: tasks extension, Task Polling; basic/utilities/tasks (2025-11-25), Getting Tasks.
func (p *poller) next(ctx context.Context) (*sighting, error) {
	if p.last != nil && p.last.isFull && p.isDue {
		p.isDue = false
		return p.last, nil
	}
	if p.last != nil && p.last.TTL > 0 && time.Since(p.began) > p.last.TTL+expiryGrace {
		return nil, fmt.Errorf("tasks: task %q is at no end, and the server keeps it for %v only: %w", p.id, p.last.TTL, mcp.ErrTimeout)
	}
	told, err := p.pause(ctx)
	if err != nil {
		return nil, err
	}
	if told != nil {
		p.last = told
		return told, nil
	}
	if err := p.look(ctx); err != nil {
		return nil, err
	}
	return p.last, nil
}

// look asks how the task stands.
func (p *poller) look(ctx context.Context) error {
	return p.persist(ctx, func() error {
		s, err := p.get(mcp.WithCallOptions(ctx, p.options))
		if err == nil {
			p.last = s
		}
		return err
	})
}

// isOver reports whether there is nothing that could be called off.
func (p *poller) isOver() bool {
	return p.refused || p.last != nil && p.last.Status.Final()
}

// pause waits until it is time to ask again. Whoever listens may be told by then how the task stands, or that it is time to
// look: that is done at once, but not more often than the server wants to be asked anyway.
func (p *poller) pause(ctx context.Context) (*sighting, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if p.isDue {
		p.isDue = false
		return nil, nil
	}
	due, woken := time.Now().Add(p.interval()), false
	timer := time.NewTimer(time.Until(due))
	defer timer.Stop()
	for {
		select {
		case <-p.feed.wakes():
			if told := p.feed.take(); told != nil {
				return told, nil
			}
			woken = true
			timer.Reset(min(time.Until(due), time.Until(p.hurried.Add(p.politeInterval()))))
		case <-timer.C:
			if woken {
				p.hurried = time.Now()
			}
			return nil, nil
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

func (p *poller) interval() time.Duration {
	if p.feed.isAgreed() {
		return max(p.politeInterval(), listeningInterval)
	}
	return p.politeInterval()
}

// politeInterval is how often the server wants to be asked.
func (p *poller) politeInterval() time.Duration {
	d := p.every
	if p.last != nil && p.last.PollInterval > 0 {
		d = p.last.PollInterval
	}
	return min(max(d, minPollInterval), maxPollInterval)
}

// get asks once.
func (p *poller) get(ctx context.Context) (*sighting, error) {
	raw, err := p.client.Request(ctx, methodGet, taskParams{ID: p.id})
	p.refused = isRefusal(err)
	if err != nil {
		return nil, err
	}
	s, err := p.form.seen(raw)
	if err == nil && s.ID != p.id {
		err = fmt.Errorf("asked for task %.64q it tells of %.64q", p.id, s.ID)
	}
	if err != nil {
		return nil, invalid(methodGet, err)
	}
	return s, nil
}

type taskParams struct {
	ID             string             `json:"taskId"`
	InputResponses stdjson.RawMessage `json:"inputResponses,omitzero"`
}

func (p *poller) update(ctx context.Context, answers stdjson.RawMessage) error {
	_, err := p.client.Request(mcp.WithCallOptions(ctx, p.options), methodUpdate, taskParams{p.id, answers})
	return err
}

func (p *poller) cancel(ctx context.Context) error {
	_, err := p.client.Request(mcp.WithCallOptions(ctx, p.options), methodCancel, taskParams{ID: p.id})
	return err
}

// persist does what may be done again until it works, fails for good, or has failed for too long.
func (p *poller) persist(ctx context.Context, f func() error) error {
	var failing outage
	pause := firstRetry
	for {
		err := f()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case !isTransient(err):
			return err
		case failing.lasts(maxOutage):
			return fmt.Errorf("tasks: task %q has not been heard of for %v: %w", p.id, time.Since(failing.began).Round(time.Second), err)
		}
		timer := time.NewTimer(max(pause, retryAfter(err)))
		pause = min(2*pause, maxRetry)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
	}
}

// An outage is a row of failures.
type outage struct {
	began time.Time
	tries int
}

// lasts notes a failure, and reports whether they have gone on for that long.
func (o *outage) lasts(most time.Duration) bool {
	if o.tries++; o.tries == 1 {
		o.began = time.Now()
	}
	return o.tries >= minTries && time.Since(o.began) >= most
}

// isTransient reports whether another try may help: the server did not answer, or says that it is unwell.
func isTransient(err error) bool {
	var fault *mcp.Error
	if errors.As(err, &fault) {
		return fault.Code == mcp.CodeBusy || fault.Code == mcp.CodeInternalError
	}
	var status interface{ HTTPStatus() int }
	if errors.As(err, &status) && (status.HTTPStatus() == 401 || status.HTTPStatus() == 403) {
		return false // who is not let in is not let in by asking again
	}
	var failed *mcp.TransportError
	return errors.As(err, &failed) && !errors.Is(err, mcp.ErrInvalidResult) && !isClosed(err)
}

// isRefusal reports whether the server has answered, and another try does not help.
func isRefusal(err error) bool {
	var fault *mcp.Error
	return errors.As(err, &fault) && fault.Remote() && !isTransient(err)
}

// retryAfter is for how long a busy server does not want to be asked.
func retryAfter(err error) time.Duration {
	var fault *mcp.Error
	if !errors.As(err, &fault) {
		return 0
	}
	var data struct {
		After stdjson.RawMessage `json:"retryAfterMs"`
	}
	if json.Unmarshal(fault.Data, &data) != nil {
		return 0
	}
	return min(milliseconds(data.After), maxRetry)
}

// listen has the poller told of changes, as far as the server agrees.
func (p *poller) listen(ctx context.Context) {
	if !p.form.is2025 {
		p.feed = newFeed(ctx, p.client, p.id)
	}
}

// stop ends the listening.
func (p *poller) stop() {
	p.feed.stop()
	p.feed = nil
}
