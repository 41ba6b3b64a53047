package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// minPoll and maxPoll bound the interval in which a server is polled, whatever it asks for.
	minPoll = time.Second
	maxPoll = 5 * time.Minute
	// maxSilence ends a stream without a message: servers send a heartbeat every 30 seconds.
	maxSilence = 75 * time.Second
	// maxWaiting and maxWaitingBytes limit the notifications of a stream that wait for a slow caller. Beyond
	// them, the stream ends and continues from the last cursor.
	maxWaiting      = 256
	maxWaitingBytes = 4 << 20
	// minPause and maxPause bound the pause before a server is asked again after a failure.
	minPause = time.Second
	maxPause = 30 * time.Second
)

// A Source sends requests about events to a server for a caller.
type Source interface {
	// Call sends a request and returns its result. notify, which must not block, receives the notifications of
	// a stream; it is nil for other requests.
	Call(ctx context.Context, method string, params any,
		notify func(method string, params json.RawMessage)) (json.RawMessage, error)
}

// A Feed contains the events of a subscription at a server.
type Feed struct {
	Source Source
	// Pushes means that the server pushes the events; else it is polled.
	Pushes bool
}

// An Item is an event, or a position: the first item is the position at which the events begin.
type Item struct {
	Event  *Event  // nil for a position
	Cursor *string // of the server: the position after the item
	// Begins marks the position at which events begin, or begin again after a gap: with Truncated, events
	// were skipped.
	Begins, Truncated bool
	// Err is a failure after which the feed continues; then Event is nil.
	Err error
}

var (
	errSlow   = errors.New("the caller does not read events in time")
	errSilent = errors.New("the server has sent neither an event nor a heartbeat in time")
	errEnded  = errors.New("the server has ended the stream")
)

// Run yields the items of a subscription until ctx ends. After a failure of the server it continues from the last
// cursor. The last error, before the first item or for which [IsFinal] is true, ends it.
func (f *Feed) Run(ctx context.Context, at Request) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		begun, pause := false, minPause
		for {
			stopped := false
			err := f.follow(ctx, at, func(i Item) bool {
				pause = minPause
				if i.Cursor != nil {
					at.Cursor = i.Cursor
				}
				if i.Begins && begun && !i.Truncated {
					return true // the caller knows the position
				}
				if i.Begins {
					begun, at.MaxAge = true, nil
				}
				stopped = !yield(i, nil)
				return !stopped
			})
			switch {
			case stopped || ctx.Err() != nil:
				return
			case !begun || IsFinal(err):
				yield(Item{}, err)
				return
			case !yield(Item{Cursor: at.Cursor, Err: err}, nil) || !sleep(ctx, pause):
				return
			}
			pause = min(2*pause, maxPause)
		}
	}
}

// A Flow is a feed that runs in a goroutine.
type Flow struct {
	// Items is closed at the end of the feed.
	Items  <-chan Item
	err    error
	cancel context.CancelFunc
}

// Start runs the feed in a goroutine. The caller must stop it.
func (f *Feed) Start(ctx context.Context, at Request) *Flow {
	ctx, cancel := context.WithCancel(ctx)
	items := make(chan Item)
	flow := &Flow{Items: items, cancel: cancel}
	go func() {
		defer close(items)
		for i, err := range f.Run(ctx, at) {
			if err != nil {
				flow.err = err
				return
			}
			select {
			case items <- i:
			case <-ctx.Done():
			}
		}
	}()
	return flow
}

// Err returns the error that ended the feed, once Items is closed.
func (f *Flow) Err() error { return f.err }

// Stop ends the feed, and waits for it.
func (f *Flow) Stop() {
	f.cancel()
	for range f.Items {
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (f *Feed) follow(ctx context.Context, at Request, yield func(Item) bool) error {
	if f.Pushes {
		return f.stream(ctx, at, yield)
	}
	return f.poll(ctx, at, yield)
}

// poll polls the server, and yields the items until yield returns false.
func (f *Feed) poll(ctx context.Context, at Request, yield func(Item) bool) error {
	for first := true; ; first = false {
		raw, err := f.Source.Call(ctx, call.MethodEventsPoll, &at, nil)
		if err != nil {
			return err
		}
		r, err := ParseResult(raw)
		if err != nil {
			return err
		}
		if before := at.Cursor; first || r.Truncated {
			if before == nil || len(r.Events) == 0 {
				before = r.Cursor
			}
			if !yield(Item{Begins: true, Cursor: before, Truncated: r.Truncated}) {
				return nil
			}
		}
		if r.Failed > 0 && !yield(Item{Cursor: at.Cursor, Err: fmt.Errorf("%d events were invalid", r.Failed)}) {
			return nil
		}
		for n := range r.Events { // only the position after all of them is known
			if n == len(r.Events)-1 {
				at.Cursor = r.Cursor
			}
			if !yield(Item{Event: &r.Events[n], Cursor: at.Cursor}) {
				return nil
			}
		}
		at.Cursor, at.MaxAge = r.Cursor, nil
		if len(r.Events) == 0 && !yield(Item{Cursor: r.Cursor}) {
			return nil
		}
		wait := max(time.Duration(r.NextPoll)*time.Millisecond, minPoll)
		if r.HasMore && len(r.Events) > 0 {
			wait = 0
		}
		if !sleep(ctx, wait) {
			return ctx.Err()
		}
	}
}

// A notification is a message of a stream.
type notification struct {
	method string
	params json.RawMessage
}

// stream opens a stream, and yields its items until yield returns false.
func (f *Feed) stream(ctx context.Context, at Request, yield func(Item) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	in, ended := make(chan notification, maxWaiting), make(chan error, 1)
	var waiting atomic.Int64 // bytes of the notifications in the channel
	go func() {
		_, err := f.Source.Call(ctx, wire.MethodEventsStream, &at, func(method string, params json.RawMessage) {
			if len(params) > maxEvent {
				method, params = Failed, json.RawMessage(`{"error":{"code":-32603,"message":"an event is too large"}}`)
			}
			if waiting.Add(int64(len(params))) > maxWaitingBytes {
				cancel(errSlow)
				return
			}
			select {
			case in <- notification{method, bytes.Clone(params)}:
			default:
				cancel(errSlow)
			}
		})
		if err == nil {
			err = errEnded
		}
		ended <- err
		close(in)
	}()
	defer func() {
		cancel(nil)
		for range in { // until the request ended
		}
	}()
	silence := time.NewTimer(maxSilence)
	defer silence.Stop()
	for {
		select {
		case n, more := <-in:
			silence.Reset(maxSilence)
			waiting.Add(-int64(len(n.params)))
			if !more {
				return <-ended
			}
			if context.Cause(ctx) == errSlow { //nolint:errorlint // set above
				return errSlow
			}
			if more, err := n.yield(yield); !more {
				return err
			}
		case <-silence.C:
			return errSilent
		}
	}
}

// yield yields the item of a notification. It returns false at the end of the subscription, with its error.
func (n *notification) yield(yield func(Item) bool) (more bool, err error) {
	var m message
	if err := jsonv2.Unmarshal(n.params, &m); err != nil {
		return yield(Item{Err: fmt.Errorf("invalid notification %s", n.method)}), nil
	}
	switch n.method {
	case Active:
		return yield(Item{Begins: true, Cursor: m.Cursor, Truncated: m.Truncated}), nil
	case Heartbeat:
		return yield(Item{Cursor: m.Cursor}), nil
	case Failed:
		return yield(Item{Err: m.fault()}), nil
	case Occurred:
		if err := m.check(); err != nil {
			return yield(Item{Cursor: m.Cursor, Err: err}), nil
		}
		return yield(Item{Event: &m.Event, Cursor: m.Cursor}), nil
	case Terminated:
		e := m.fault()
		if !IsFinal(e) {
			e = &mcp.Error{Code: events.CodeForbidden, Message: e.Message, Data: e.Data}
		}
		return false, e
	}
	return true, nil // of a later version of the extension
}
