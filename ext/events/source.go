package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Position is where a [Source] reads.
type Position struct {
	// Cursor is a cursor of an earlier [Batch]. Clients can change it: it must be checked. If it is
	// empty, the subscription starts now: the source returns its current cursor and no occurrence.
	Cursor string
	// Since is the time before which no occurrence is wanted; zero for no limit. Older occurrences
	// are dropped, so a source uses it only to skip them early.
	Since time.Time
	// Max is the wanted number of occurrences.
	Max int
}

// A Batch contains the occurrences after a position, in order.
type Batch[Payload any] struct {
	Events []Occurrence[Payload]
	// Cursor is the position after the batch, also if it contains no occurrence. A source without
	// history leaves it empty, always: its subscriptions cannot continue after an interruption.
	Cursor string
	// HasMore reports that more occurrences are available now.
	HasMore bool
	// Truncated reports that occurrences were skipped, because the cursor is too old or unknown. Start
	// is then the position before the first occurrence. Default: the position that was read, from
	// which the occurrences can be read again, or Cursor if there are none.
	Truncated bool
	Start     string
	// NextPoll is when a client should poll again. Default: [Source].Interval.
	NextPoll time.Duration
}

// A Source provides the occurrences of an event type and decides who receives them. The zero Source
// delivers everything that is emitted to everybody. Its functions must be safe for concurrent use.
// Their context carries the subscriber, [mcp.PrincipalFrom], also when no request is in progress.
// Args are the validated arguments of the subscription.
type Source[Args, Payload any] struct {
	// Check returns the occurrences after a position, for a source with a history of its own. It is
	// called for each poll and, while a client follows a stream, at Interval and after
	// [Type.Changed]. If an occurrence has no Cursor, a larger batch than Position.Max is delivered
	// whole. An error is logged and the check repeated later, and the client sees only the text of an
	// [*mcp.Error]; [Forbidden] ends the subscription. If Check is nil, occurrences are emitted with
	// [Type.Emit].
	Check func(ctx context.Context, args Args, at Position) (Batch[Payload], error)
	// Interval is the time between checks of a stream and the poll interval that clients are told.
	// Default: 5 seconds for Check, 1 second for emitted occurrences.
	Interval time.Duration
	// Match reports whether a subscription receives an emitted occurrence. Default: always.
	Match func(ctx context.Context, args Args, data Payload) bool
	// Transform returns the payload for a subscription; it must not change data. Default: unchanged.
	Transform func(ctx context.Context, args Args, data Payload) (Payload, error)
	// Authorize returns an error if the caller may not subscribe: [Forbidden], or an error that is
	// logged if the permission cannot be determined. It is called for each poll, at the begin of a
	// stream and then every [Options].Recheck. The principal of a webhook contains no Claims, which
	// are not stored: a decision that needs them refuses webhooks. Default: everybody may.
	Authorize func(ctx context.Context, args Args) error
}

// A Type is an event type of a [Server]. It is safe for concurrent use.
type Type[Payload any] struct {
	entry *entry
	ring  *ring[Payload] // nil for a source with Check
}

// Add registers an event type and returns it. Args and Payload are structs or maps, or, with the
// respective schema in e, [json.RawMessage]. Subscribers of events/list are notified.
//
// Add panics if the event type is invalid: a bad name, a type without a schema, a name that is in
// use, or an unknown delivery mode.
func Add[Args, Payload any](s *Server, e *Event, src Source[Args, Payload]) *Type[Payload] {
	t, err := add(s, e, src)
	if err != nil {
		panic("events: Add: " + err.Error())
	}
	return t
}

func add[Args, Payload any](s *Server, e *Event, src Source[Args, Payload]) (*Type[Payload], error) {
	if e == nil {
		return nil, errors.New("the event is nil")
	}
	n, err := newEntry(s, e, reflect.TypeFor[Args](), reflect.TypeFor[Payload]())
	if err != nil {
		return nil, fmt.Errorf("event %.128q: %w", e.Name, err)
	}
	if n.interval = src.Interval; n.interval == 0 {
		n.interval = time.Second
		if src.Check != nil {
			n.interval = 5 * time.Second
		}
	}
	t := &Type[Payload]{entry: n}
	if src.Check == nil {
		t.ring = newRing[Payload](s.opts.BufferEvents, s.opts.BufferAge)
	} else {
		n.checks = true
	}
	n.bind = func(raw json.RawMessage) (reader, error) {
		r := &boundSource[Args, Payload]{entry: n, source: &src, ring: t.ring}
		if err := n.input.Decode(raw, &r.args); err != nil {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.arguments: %v", err)
		}
		return r, nil
	}
	return t, s.register(n)
}

// schemaOf returns the schema of a type, or the given schema. It must be a schema of objects.
func schemaOf(given json.RawMessage, t reflect.Type) (s *jsonschema.Schema, err error) {
	if given != nil {
		s, err = jsonschema.Compile(given)
	} else {
		s, err = jsonschema.Infer(t)
	}
	if err != nil {
		return nil, err
	}
	for _, other := range []string{"[]", "0", `""`, "null", "true"} {
		if s.Validate([]byte(other)) == nil {
			return nil, fmt.Errorf("the schema of %s accepts %s, want a schema of objects", t, other)
		}
	}
	return s, nil
}

// Emit delivers an occurrence to the subscriptions that match. It does not wait for them. It returns
// an error if the payload is invalid or exceeds 250 KiB, if the source has a Check, or after Remove.
func (t *Type[Payload]) Emit(o Occurrence[Payload]) error {
	if t.ring == nil {
		return fmt.Errorf("events: emit %q: its source has a Check: call Changed instead", t.entry.event.Name)
	}
	d, err := deliver(t.entry.event.Name, t.entry.payload, &o)
	if err == nil {
		err = t.entry.endedBecause()
	}
	if err != nil {
		return fmt.Errorf("events: emit: %w", err)
	}
	t.ring.add(o, d)
	t.entry.notify(nil)
	return nil
}

// Changed makes all streams of the event type check its source now.
func (t *Type[Payload]) Changed() { t.entry.notify(nil) }

// Update changes the description, delivery modes and Meta of the event type, and notifies the
// subscribers of events/list. Changes of the name and of the schemas are ignored: a new schema needs
// Remove and Add, and should have another name.
//
// Spec: SEP-3415, Schema evolution.
func (t *Type[Payload]) Update(change func(*Event)) error {
	return t.entry.server.update(t.entry, change)
}

// Remove removes the event type and ends its subscriptions with a reason, such as [SchemaChanged];
// nil means that the event type no longer exists. A removed name can be added again.
//
// Spec: SEP-3415, Event type removal and breaking changes.
func (t *Type[Payload]) Remove(reason *mcp.Error) {
	if reason == nil {
		reason = NotFound("event")
	}
	t.entry.server.remove(t.entry, reason)
}

// A reader reads a source for a subscription.
type reader interface {
	authorize(ctx context.Context) error
	// read returns the occurrences after a position. Those of a source with Check are not limited.
	read(ctx context.Context, at Position) (*batch, error)
}

// A batch is an encoded [Batch].
type batch struct {
	events          []*Delivered
	cursor, start   string
	more, truncated bool
	next            time.Duration
}

type boundSource[Args, Payload any] struct {
	entry  *entry
	source *Source[Args, Payload]
	ring   *ring[Payload]
	args   Args
}

func (b *boundSource[Args, Payload]) authorize(ctx context.Context) error {
	if b.source.Authorize == nil {
		return nil
	}
	return b.source.Authorize(ctx, b.args)
}

func (b *boundSource[Args, Payload]) read(ctx context.Context, at Position) (*batch, error) {
	if b.ring != nil {
		return b.ring.read(ctx, at, b.emitted)
	}
	got, err := b.source.Check(ctx, b.args, at)
	if err != nil {
		return nil, err
	}
	if len(got.Cursor) > maxCursor {
		return nil, fmt.Errorf("event %q: the cursor has %d bytes, want at most %d",
			b.entry.event.Name, len(got.Cursor), maxCursor)
	}
	out := &batch{cursor: got.Cursor, start: got.Start, more: got.HasMore, truncated: got.Truncated, next: got.NextPoll}
	if at.Cursor == "" && got.Cursor != "" {
		out.more = false
		return out, nil // the subscription starts now
	}
	for i := range got.Events {
		d, err := deliver(b.entry.event.Name, b.entry.payload, &got.Events[i])
		if err != nil {
			return nil, err
		}
		out.events = append(out.events, d)
	}
	return out, nil
}

// emitted returns an emitted occurrence for the subscription, or nil if it does not match.
func (b *boundSource[Args, Payload]) emitted(
	ctx context.Context, o Occurrence[Payload], d *Delivered,
) (*Delivered, error) {
	if b.source.Match != nil && !b.source.Match(ctx, b.args, o.Data) {
		return nil, nil
	}
	if b.source.Transform == nil {
		return d, nil
	}
	var err error
	if o.Data, err = b.source.Transform(ctx, b.args, o.Data); err != nil {
		return nil, err
	}
	return deliver(b.entry.event.Name, b.entry.payload, &o)
}
