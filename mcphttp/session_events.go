package mcphttp

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// A StreamKey names one stream of one session. Its parts are apart so that no store can forget one of them: events
// belong to the principal and the session, not to whoever knows an id.
type StreamKey struct {
	Session   string
	Principal string // a digest; empty for anonymous callers
	Stream    string
}

// An EventStore keeps the events of streams, so that a client whose connection broke can be sent what it missed. It is
// called from several goroutines.
type EventStore interface {
	// Append keeps event number n of a stream. The numbers of one stream rise by one, from 1. The data is the caller's
	// and may change afterwards.
	Append(ctx context.Context, stream StreamKey, n int64, data []byte) error
	// After gives the data of the events after number n, in order, and nothing when there are none. The error is
	// ErrEventGap, and comes first, when the stream is unknown or one of these events is no longer kept.
	After(ctx context.Context, stream StreamKey, n int64) iter.Seq2[[]byte, error]
	// EndSession forgets every stream of a session, which has ended.
	EndSession(session, principal string) error
}

// ErrEventGap says that events between those that a client saw and those that are kept are lost.
var ErrEventGap = errors.New("mcphttp: events are no longer kept")

// Bounds of the events that are kept in memory.
const (
	maxStreamEvents = 1000
	maxStreamBytes  = 4 << 20
	maxEventAge     = 10 * time.Minute
	maxEventBytes   = 256 << 20 // of all streams
	// eventOverhead is what keeping an event costs beside its data, roughly.
	eventOverhead = 64
)

// memoryEvents is an [EventStore] in memory. When it is full, the stream that was silent for longest goes first.
type memoryEvents struct {
	begin time.Time // times are kept as distances from it

	mu       sync.Mutex // guards the fields below
	sessions map[sessionKey]map[string]*storedStream
	silent   storedStream // the ring of all streams: behind it the one that was silent for longest
	bytes    int
}

type sessionKey struct{ session, principal string }

type storedStream struct {
	key        StreamKey
	first      int64 // number of events[0]
	events     []storedEvent
	bytes      int
	prev, next *storedStream
}

type storedEvent struct {
	data []byte
	at   time.Duration
}

// usualEvents is room for what most streams carry: the empty event, a note and the answer.
const usualEvents = 3

func newMemoryEvents() *memoryEvents {
	m := &memoryEvents{begin: time.Now(), sessions: make(map[sessionKey]map[string]*storedStream)}
	m.silent.prev, m.silent.next = &m.silent, &m.silent
	return m
}

// Append keeps an event, and makes room for it.
func (m *memoryEvents) Append(_ context.Context, key StreamKey, n int64, data []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Since(m.begin)
	stored := m.stream(key, n)
	stored.events = append(stored.events, storedEvent{data: bytes.Clone(data), at: now})
	m.grow(stored, len(data)+eventOverhead)
	for len(stored.events) > maxStreamEvents || stored.bytes > maxStreamBytes {
		m.dropFirst(stored)
	}
	m.expire(stored, now)
	for silent := m.silent.next; silent != &m.silent; silent = m.silent.next {
		if m.expire(silent, now); len(silent.events) > 0 && m.bytes <= maxEventBytes {
			break
		}
		m.forget(silent)
	}
	return nil
}

// stream gives the stream that event n is to be appended to, and puts it last in the ring.
func (m *memoryEvents) stream(key StreamKey, n int64) *storedStream {
	stored := m.find(key)
	if stored == nil {
		stored = &storedStream{key: key, first: n, events: make([]storedEvent, 0, usualEvents)}
		of := sessionKey{key.Session, key.Principal}
		if m.sessions[of] == nil {
			m.sessions[of] = make(map[string]*storedStream)
		}
		m.sessions[of][key.Stream] = stored
	} else {
		stored.prev.next, stored.next.prev = stored.next, stored.prev
	}
	stored.prev, stored.next = m.silent.prev, &m.silent
	stored.prev.next, stored.next.prev = stored, stored
	if stored.first+int64(len(stored.events)) != n { // an event in between was not kept
		m.grow(stored, -stored.bytes)
		stored.first, stored.events = n, nil
	}
	return stored
}

// find gives the stream of a key, nil if nothing is kept of it.
func (m *memoryEvents) find(key StreamKey) *storedStream {
	return m.sessions[sessionKey{key.Session, key.Principal}][key.Stream]
}

func (m *memoryEvents) grow(stored *storedStream, by int) {
	stored.bytes += by
	m.bytes += by
}

func (m *memoryEvents) dropFirst(stored *storedStream) {
	m.grow(stored, -len(stored.events[0].data)-eventOverhead)
	stored.events[0] = storedEvent{}
	stored.events = stored.events[1:]
	stored.first++
}

// expire drops the events of a stream that are too old.
func (m *memoryEvents) expire(stored *storedStream, now time.Duration) {
	for len(stored.events) > 0 && now-stored.events[0].at >= maxEventAge {
		m.dropFirst(stored)
	}
}

func (m *memoryEvents) forget(stored *storedStream) {
	m.grow(stored, -stored.bytes)
	stored.prev.next, stored.next.prev = stored.next, stored.prev
	of := sessionKey{stored.key.Session, stored.key.Principal}
	delete(m.sessions[of], stored.key.Stream)
	if len(m.sessions[of]) == 0 {
		delete(m.sessions, of)
	}
}

// After gives the events after number n.
func (m *memoryEvents) After(_ context.Context, key StreamKey, n int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		events, err := m.after(key, n)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, e := range events {
			if !yield(e.data, nil) {
				return
			}
		}
	}
}

// after gives a copy of the list, since the client may be slow to take it.
func (m *memoryEvents) after(key StreamKey, n int64) ([]storedEvent, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	stored := m.find(key)
	if stored == nil {
		return nil, ErrEventGap
	}
	m.expire(stored, time.Since(m.begin))
	skip := n + 1 - stored.first
	if skip < 0 || skip > int64(len(stored.events)) {
		return nil, ErrEventGap
	}
	return append([]storedEvent(nil), stored.events[skip:]...), nil
}

// EndSession forgets the streams of a session.
func (m *memoryEvents) EndSession(session, principal string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, stored := range m.sessions[sessionKey{session, principal}] {
		m.forget(stored)
	}
	return nil
}
