package events

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Limits for a server that is not trusted.
const (
	maxListed      = 10_000   // event types
	maxListedBytes = 64 << 20 // of all pages
	maxPages       = 1000
	maxRemembered  = 1000 // ids of occurrences, to drop duplicates
	maxFailures    = 5    // attempts in a row that fail
	maxPollDelay   = time.Hour
)

// Errors that callers test for with [errors.Is].
var (
	// ErrNotOffered reports that the server does not declare the extension.
	ErrNotOffered = errors.New("the server does not offer events")
	// ErrNoMode reports that an event type has no delivery mode that the client can use.
	ErrNoMode = errors.New("no compatible delivery mode")
)

// Offered reports whether the server of c declares the extension.
//
// Spec: SEP-3415, Capability Negotiation.
func Offered(c *mcp.Client) bool {
	caps := c.Capabilities()
	_, ok := caps.Extensions[ID].(map[string]any)
	return ok || len(caps.Other[capabilityMember]) > 0 && caps.Other[capabilityMember][0] == '{'
}

// List returns the event types of a server. An error ends the iteration, such as [ErrNotOffered].
//
// Spec: SEP-3415, Listing Available Events.
func List(ctx context.Context, c *mcp.Client) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		if !Offered(c) {
			yield(nil, fmt.Errorf("events: %s: %w", methodList, ErrNotOffered))
			return
		}
		count, size, cursor := 0, 0, ""
		for page := 1; ; page++ {
			raw, err := c.Do(ctx, methodList, listParams{cursor})
			if err != nil {
				yield(nil, fmt.Errorf("events: %w", err))
				return
			}
			var res struct {
				Events     []*Event `json:"events"`
				NextCursor string   `json:"nextCursor"`
			}
			err = jsonv2.Unmarshal(raw, &res)
			count, size = count+len(res.Events), size+len(raw)
			switch {
			case err != nil:
			case count > maxListed || size > maxListedBytes || page > maxPages:
				err = fmt.Errorf("the list has more than %d items, %d bytes or %d pages",
					maxListed, maxListedBytes, maxPages)
			case slices.Contains(res.Events, nil):
				err = errors.New("the list contains null")
			case res.NextCursor != "" && res.NextCursor == cursor:
				err = errors.New("a nextCursor is repeated")
			}
			if err != nil {
				yield(nil, invalid(methodList, err))
				return
			}
			for _, e := range res.Events {
				if !yield(e, nil) {
					return
				}
			}
			if cursor = res.NextCursor; cursor == "" {
				return
			}
		}
	}
}

type listParams struct {
	Cursor string `json:"cursor,omitzero"`
}

func invalid(method string, err error) error {
	return &mcp.TransportError{Method: method, MayHaveRun: true, Err: fmt.Errorf("%w: %w", mcp.ErrInvalidResult, err)}
}

// findEvent returns the description of an event type, or the error of an unknown one.
func findEvent(ctx context.Context, c *mcp.Client, name string) (*Event, error) {
	for e, err := range List(ctx, c) {
		if err != nil || e.Name == name {
			return e, err
		}
	}
	return nil, fmt.Errorf("events: %q: %w", name, NotFound("event"))
}

// SubscribeOptions configures a subscription of a client. The zero value, or nil, starts now.
type SubscribeOptions struct {
	// Cursor is a stored position at which to continue. Default: the subscription starts now.
	Cursor string
	// MaxAge is the age of the oldest occurrence to receive when the subscription continues at a
	// cursor. Default: no limit.
	MaxAge time.Duration
	// Position receives each new position, after the loop handled the occurrences before it: store it
	// as the Cursor of a later subscription. It is called by the goroutine of the loop. If the event
	// type has no history, it is never called.
	Position func(cursor string)
	// Gap is called before the occurrences after a gap: occurrences were skipped, so the program
	// should fetch the state that it needs. It is called by the goroutine of the loop. Without
	// history, each renewal counts as a gap. Default: gaps are ignored.
	Gap func()
	// Failed receives failures after which the subscription goes on. Default: they are ignored.
	Failed func(err error)
	// MinPoll is the shortest time between two polls, whatever the server asks for, unless it has
	// more occurrences. Default: 1 second.
	MinPoll time.Duration
	// MaxEvents limits the occurrences in a poll result. Default: the server's limit.
	MaxEvents int
	// Silence is the time without a sign of life after which a stream is renewed. Default: 1 minute,
	// twice the longest time between heartbeats.
	Silence time.Duration
}

// Subscribe returns the occurrences of an event type at a server, until ctx ends or the loop is left.
// It uses a stream if the event type has [ModePush], and polls otherwise. args are the arguments of
// the subscription, encoded as by encoding/json; nil means none.
//
// When the connection fails, Subscribe tries again, with growing delays, and continues at the last
// position; duplicates are dropped. When the event type was replaced, it subscribes to the new one.
// An occurrence that cannot be decoded yields an error that is an [mcp.ErrInvalidResult], and the
// iteration continues. Any other error ends it: an [*mcp.Error] of the server, such as
// [CodeForbidden], [ErrNotOffered], [ErrNoMode], or the error of the fifth failure in a row. When ctx
// ends, the iteration ends without an error.
//
// Spec: SEP-3415, Delivery mode selection.
func Subscribe[Payload any](ctx context.Context, c *mcp.Client, name string, args any, opts *SubscribeOptions,
) iter.Seq2[Occurrence[Payload], error] {
	return subscribe[Payload](ctx, c, name, args, opts, func(s *subscriber) error {
		e, err := findEvent(s.ctx, c, name)
		switch {
		case err != nil:
			return err
		case slices.Contains(e.Delivery, ModePush):
			return s.listen()
		case slices.Contains(e.Delivery, ModePoll):
			return s.poll()
		}
		return fmt.Errorf("events: %q offers %v: %w", name, e.Delivery, ErrNoMode)
	})
}

// Listen is [Subscribe] with a stream, without listing the event types first.
//
// Spec: SEP-3415, Push-Based Delivery.
func Listen[Payload any](ctx context.Context, c *mcp.Client, name string, args any, opts *SubscribeOptions,
) iter.Seq2[Occurrence[Payload], error] {
	return subscribe[Payload](ctx, c, name, args, opts, (*subscriber).listen)
}

// Poll is [Subscribe] by polling, without listing the event types first.
//
// Spec: SEP-3415, Poll-Based Delivery.
func Poll[Payload any](ctx context.Context, c *mcp.Client, name string, args any, opts *SubscribeOptions,
) iter.Seq2[Occurrence[Payload], error] {
	return subscribe[Payload](ctx, c, name, args, opts, (*subscriber).poll)
}

// subscribe decodes the occurrences that a subscriber receives.
func subscribe[Payload any](ctx context.Context, c *mcp.Client, name string, args any, opts *SubscribeOptions,
	once func(*subscriber) error) iter.Seq2[Occurrence[Payload], error] {
	return func(yield func(Occurrence[Payload], error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s := &subscriber{ctx: ctx, client: c, name: name, args: args}
		if opts != nil {
			s.opts = *opts
		}
		s.opts.MinPoll = cmp.Or(s.opts.MinPoll, time.Second)
		s.opts.Silence = cmp.Or(s.opts.Silence, 2*maxHeartbeat)
		s.cursor = s.opts.Cursor
		s.receive = func(d *received) bool {
			o := Occurrence[Payload]{ID: d.ID, Time: d.Time, Cursor: d.cursor(), Meta: d.Meta}
			if delete(o.Meta, metaSubscriptionID); len(o.Meta) == 0 {
				o.Meta = nil // encoded, it would be an empty member
			}
			if err := jsonv2.Unmarshal(d.Data, &o.Data); err != nil {
				return yield(o, fmt.Errorf("events: %q, id %.64q: %w", name, d.ID, invalid(methodStream, err)))
			}
			return yield(o, nil)
		}
		if err := s.run(once); err != nil && ctx.Err() == nil {
			yield(Occurrence[Payload]{}, err)
		}
	}
}

// errLeft reports that the loop was left.
var errLeft = errors.New("the loop was left")

// A received is an occurrence, or another notification of a stream.
type received struct {
	ID        string          `json:"eventId"`
	Name      string          `json:"name"`
	Time      time.Time       `json:"timestamp"`
	Data      json.RawMessage `json:"data"`
	Position  *string         `json:"cursor"`
	Truncated bool            `json:"truncated"`
	Error     *mcp.Error      `json:"error"`
	Meta      mcp.Meta        `json:"_meta"`
}

// cursor returns the position, or "".
func (d *received) cursor() string {
	if d.Position == nil {
		return ""
	}
	return *d.Position
}

// A subscriber receives the occurrences of a subscription, across connections. Only the goroutine of
// the loop uses it.
type subscriber struct {
	ctx     context.Context
	client  *mcp.Client
	name    string
	args    any
	opts    SubscribeOptions
	receive func(*received) bool // reports whether the loop goes on

	cursor   string // the last position; empty before the first and without history
	begun    bool   // a subscription was active before
	failures int    // in a row
	seen     []string
	received int // occurrences that were no duplicates
}

// run receives occurrences until the loop is left, ctx ends, or an error cannot be mended.
func (s *subscriber) run(once func(*subscriber) error) error {
	for {
		err := once(s)
		if errors.Is(err, errLeft) || s.ctx.Err() != nil {
			return nil
		}
		ended, terminated := errors.AsType[*terminatedError](err)
		if terminated && !s.replaced(ended.reason) || !terminated && isFinal(fromSketch(asError(err))) {
			return fmt.Errorf("events: %q: %w", s.name, err)
		}
		if errors.Is(err, ErrNoMode) || errors.Is(err, ErrNotOffered) || s.isClosed(err) {
			return err
		}
		s.failures++
		if s.failures > maxFailures {
			return err
		}
		if err != nil && s.opts.Failed != nil {
			s.opts.Failed(err)
		}
		delay := minRetry << (s.failures - 1)
		if !s.sleep(delay/2 + rand.N(delay)) {
			return nil
		}
	}
}

// isClosed reports whether the client was closed, so that no later request can succeed.
func (s *subscriber) isClosed(err error) bool {
	return errors.Is(err, mcp.ErrClosed) && !errors.Is(err, mcp.ErrDisconnected)
}

// replaced reports whether the event type exists in spite of the error that ended the subscription.
//
// Spec: SEP-3415, Event type removal and breaking changes.
func (s *subscriber) replaced(e *mcp.Error) bool {
	if e.Code != CodeNotFound && e.Code != CodeUnsupported {
		return false
	}
	found, err := findEvent(s.ctx, s.client, s.name)
	return err == nil && found != nil
}

func (s *subscriber) sleep(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// params are the params of a subscription at the current position.
type params struct {
	Name      string  `json:"name"`
	Arguments any     `json:"arguments,omitzero"`
	Cursor    *string `json:"cursor"`
	MaxAge    int64   `json:"maxAgeMs,omitzero"`
	MaxEvents int     `json:"maxEvents,omitzero"`
}

func (s *subscriber) params() params {
	p := params{Name: s.name, Arguments: s.args, Cursor: nullable(s.cursor)}
	if s.cursor != "" {
		p.MaxAge = s.opts.MaxAge.Milliseconds()
	}
	return p
}

// began handles the begin of a subscription: a lapse without a position may have skipped occurrences.
func (s *subscriber) began(truncated bool) {
	s.failures = 0
	if (truncated || s.begun && s.cursor == "") && s.opts.Gap != nil {
		s.opts.Gap()
	}
	s.begun = true
}

// moved records a position.
func (s *subscriber) moved(cursor string) {
	if cursor == "" || cursor == s.cursor || len(cursor) > maxCursor {
		return
	}
	s.cursor = cursor
	if s.opts.Position != nil {
		s.opts.Position(cursor)
	}
}

// occurred passes on an occurrence, unless it is a duplicate or of another event type.
func (s *subscriber) occurred(d *received) bool {
	if d.Name != s.name || len(d.ID) > maxEventID || d.ID != "" && slices.Contains(s.seen, d.ID) {
		return true
	}
	s.received++
	if len(s.seen) == maxRemembered {
		s.seen = slices.Delete(s.seen, 0, maxRemembered/10)
	}
	s.seen = append(s.seen, d.ID)
	return s.receive(d)
}

// poll polls until an error.
func (s *subscriber) poll() error {
	for first := true; ; first = false {
		p := s.params()
		p.MaxEvents = s.opts.MaxEvents
		if !first {
			p.MaxAge = 0 // it limits the replay
		}
		raw, err := s.client.Do(s.ctx, methodPoll, p)
		if err != nil {
			return err
		}
		var res struct {
			Events     []*received `json:"events"`
			Cursor     *string     `json:"cursor"`
			Truncated  bool        `json:"truncated"`
			HasMore    bool        `json:"hasMore"`
			NextPollMs int64       `json:"nextPollMs"`
		}
		if err := jsonv2.Unmarshal(raw, &res); err != nil || slices.Contains(res.Events, nil) {
			return invalid(methodPoll, cmp.Or(err, errors.New("events contains null")))
		}
		if first || res.Truncated {
			s.began(res.Truncated)
		}
		received, cursor := s.received, s.cursor
		for _, d := range res.Events {
			if !s.occurred(d) {
				return errLeft
			}
		}
		if res.Cursor != nil {
			s.moved(*res.Cursor)
		}
		delay := max(s.opts.MinPoll, time.Duration(min(res.NextPollMs, maxPollDelay.Milliseconds()))*time.Millisecond)
		if res.HasMore && s.received > received && s.cursor != cursor { // otherwise it could be endless
			delay = 0
		}
		if !s.sleep(delay) {
			return errLeft
		}
	}
}
