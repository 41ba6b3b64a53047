package redis

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Limits of events.
const (
	defaultEventAge = 10 * time.Minute
	// eventOverhead is the approximate size of an event without its data and stream, in bytes. It
	// also limits the number of events of a session, by default to 8,192.
	eventOverhead = 128
	maxStreamName = 1 << 10
)

var (
	scriptEventsAppend = script("events_append")
	scriptEventsAfter  = script("events_after")
)

type eventStore struct{ *Store }

// Events returns a store of events for resumption. The events of all streams of a session share a
// Redis stream of at most [Options.EventBytes], which expires [Options.EventAge] after the last
// event. Older events are not returned. An event of more than half of the EventBytes is refused,
// so that a single event does not discard all others.
func (s *Store) Events() mcphttp.EventStore { return eventStore{s} }

// eventsKey returns a key without the id of the session, because the id is a secret.
func (s eventStore) eventsKey(session, principal string) string {
	return s.opts.Prefix + ":events:{" + digest(session, principal) + "}"
}

func (s eventStore) age() string { return strconv.FormatInt(s.opts.EventAge.Milliseconds(), 10) }

// maxEvent returns the largest size of the data of an event.
func (s eventStore) maxEvent() int { return s.opts.EventBytes / 2 }

func (s eventStore) Append(ctx context.Context, stream mcphttp.StreamKey, n int64, data []byte) error {
	switch {
	case len(data) > s.maxEvent():
		return fmt.Errorf("redis: invalid event of %d bytes: must have at most %d", len(data), s.maxEvent())
	case len(stream.Stream) > maxStreamName:
		return fmt.Errorf("redis: invalid stream name of %d bytes: must have at most %d",
			len(stream.Stream), maxStreamName)
	}
	_, err := s.eval(ctx, "append event", scriptEventsAppend, len(stream.Stream)+len(data),
		[]string{s.eventsKey(stream.Session, stream.Principal)}, stream.Stream, strconv.FormatInt(n, 10),
		string(data), strconv.Itoa(eventOverhead), strconv.Itoa(s.opts.EventBytes), s.age())
	return err
}

func (s eventStore) After(ctx context.Context, stream mcphttp.StreamKey, n int64) iter.Seq2[[]byte, error] {
	return each(func() ([][]byte, error) { return s.after(ctx, stream, n) })
}

// after reads the events of the session in parts, so that each run of the script is short. It begins with the
// last event.
func (s eventStore) after(ctx context.Context, stream mcphttp.StreamKey, n int64) (events [][]byte, err error) {
	first, isKnown := int64(0), false // the number of the first event of events; whether n is an event
	for before := "+"; before != ""; {
		reply, err := s.eval(ctx, "read events", scriptEventsAfter, s.maxEvent(),
			[]string{s.eventsKey(stream.Session, stream.Principal)}, stream.Stream, strconv.FormatInt(n, 10), before,
			s.age(), strconv.Itoa(smallReply))
		if err != nil {
			return nil, err
		}
		part, err := reply.AsStrSlice()
		if err != nil || len(part) == 0 {
			return nil, fmt.Errorf("redis: %s: read events: unexpected reply: %w", s.server, err)
		}
		if before = part[0]; before != "" {
			before = "(" + before
		}
		for part = part[1:]; len(part) > 1; part = part[2:] {
			number, _ := strconv.ParseInt(part[0], 10, 64)
			switch {
			case number == n:
				isKnown = true
			case number > n && (len(events) == 0 || number == first-1):
				first, events = number, append(events, []byte(part[1]))
			case number < n:
				before = ""
			default: // events are missing between this event and the next, or were stored late
				return nil, mcphttp.ErrEventGap
			}
		}
	}
	if len(events) == 0 && !isKnown || len(events) > 0 && first != n+1 {
		return nil, mcphttp.ErrEventGap
	}
	slices.Reverse(events)
	return events, nil
}

func (s eventStore) EndSession(ctx context.Context, session, principal string) error {
	_, err := s.do(ctx, "end session", 0, func(ctx context.Context) rueidis.RedisResult {
		return s.client.Do(ctx, s.client.B().Unlink().Key(s.eventsKey(session, principal)).Build())
	})
	return err
}
