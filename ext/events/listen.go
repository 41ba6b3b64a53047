package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxQueued and maxQueuedBytes limit the notifications that wait for a slow loop. At the limit the
	// stream is closed, and renewed at the position of the loop.
	maxQueued      = 1000
	maxQueuedBytes = 4 << 20
)

var (
	errSilent = errors.New("the stream is silent")
	errSlow   = errors.New("the loop is too slow for the stream")
	errEnded  = errors.New("the server ended the stream")
)

// A terminatedError is the reason why the server ended a subscription.
type terminatedError struct{ reason *mcp.Error }

func (e *terminatedError) Error() string {
	return "the server ended the subscription: " + e.reason.Error()
}

func (e *terminatedError) Unwrap() error { return e.reason }

// listen opens a stream and receives from it until it ends. The error is never nil.
func (s *subscriber) listen() error {
	ctx, cancel := context.WithCancelCause(s.ctx)
	q := &queue{wake: make(chan struct{}, 1), overflow: func() { cancel(errSlow) }}
	done := make(chan struct{})
	var result error // of the request, once done is closed
	go func() {
		defer close(done)
		_, result = s.client.Do(mcp.WithCallOptions(ctx, mcp.CallOptions{Notify: q.put}), methodStream, s.params())
	}()
	defer func() {
		cancel(errLeft)
		<-done
	}()
	silence := time.NewTimer(s.opts.Silence)
	defer silence.Stop()
	for {
		select {
		case <-q.wake:
		case <-done:
			if err := s.handle(q.take()); err != nil {
				return err
			}
			return ended(ctx, result)
		case <-silence.C:
			cancel(errSilent)
			return errSilent
		}
		if err := s.handle(q.take()); err != nil {
			return err
		}
		silence.Reset(s.opts.Silence)
	}
}

// ended returns why a stream ended.
func ended(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return errEnded
	case errors.Is(context.Cause(ctx), errSlow):
		return errSlow
	}
	return err
}

// handle handles notifications of a stream.
func (s *subscriber) handle(all []notification) error {
	for _, n := range all {
		var d received
		if err := jsonv2.Unmarshal(n.params, &d); err != nil {
			return invalid(methodStream, fmt.Errorf("%.64q: %w", n.method, err))
		}
		switch n.method {
		case notificationActive:
			s.began(d.Truncated)
			s.moved(d.cursor())
		case notificationEvent:
			if !s.occurred(&d) {
				return errLeft
			}
			s.moved(d.cursor())
		case notificationHeartbeat:
			s.moved(d.cursor())
		case notificationError:
			if d.Error != nil && s.opts.Failed != nil {
				s.opts.Failed(fromSketch(d.Error))
			}
		case notificationTerminated:
			if d.Error == nil {
				d.Error = errFailed
			}
			return &terminatedError{fromSketch(d.Error)}
		}
	}
	return nil
}

type notification struct {
	method string
	params json.RawMessage
}

// A queue holds the notifications of a stream between the reader of the connection, which must not
// block, and the loop.
type queue struct {
	wake     chan struct{} // holds a token while there are notifications
	overflow func()

	mu    sync.Mutex // guards the fields below
	all   []notification
	bytes int
	full  bool // notifications were lost
}

func (q *queue) put(method string, params json.RawMessage) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.full = q.full || len(q.all) > 0 && (len(q.all) == maxQueued || q.bytes+len(params) > maxQueuedBytes)
	if q.full {
		q.overflow()
		return
	}
	q.all = append(q.all, notification{method, append(json.RawMessage(nil), params...)})
	q.bytes += len(params)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) take() []notification {
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.all
	q.all, q.bytes = nil, 0
	return all
}
