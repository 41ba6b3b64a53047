package mcphttp

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"
)

// A StreamKey identifies one stream of one session. A store must compare all three parts: an event
// is available only to the principal and the session that it was sent to.
type StreamKey struct {
	Session   string
	Principal string // a digest; empty for anonymous callers
	Stream    string
}

// An EventStore stores the events of streams, so that a client whose connection broke can resume a
// stream without a loss. Its methods are called from several goroutines.
type EventStore interface {
	// Append stores event number n of a stream. The numbers of one stream increase by one, from 1.
	// Append must not retain data.
	Append(ctx context.Context, stream StreamKey, n int64, data []byte) error
	// After returns the data of the events after number n, in order; it may return none. If the
	// stream is unknown or one of these events is no longer stored, the first pair has the error
	// ErrEventGap.
	After(ctx context.Context, stream StreamKey, n int64) iter.Seq2[[]byte, error]
	// EndSession deletes every stream of a session. It is called when the session has ended.
	EndSession(ctx context.Context, session, principal string) error
}

// ErrEventGap reports that events after the one that a client saw last are no longer stored.
var ErrEventGap = errors.New("mcphttp: events are no longer stored")

// Limits of the events that are stored in memory.
const (
	maxStreamEvents = 1000
	maxStreamBytes  = 4 << 20
	maxEventAge     = 10 * time.Minute
	maxEventBytes   = 256 << 20 // of all streams
)

// memoryEvents is an [EventStore] in memory. Each stream has an eventRing. When the store is full it
// discards the stream that was least recently appended to.
type memoryEvents struct {
	begin time.Time // times are stored as durations since then

	mu       sync.Mutex // guards the fields below
	sessions map[sessionKey]map[string]*eventRing
	lru      eventRing // head of the circular list of all rings, least recently appended first
	bytes    int       // sum of the sizes of all rings
}

type sessionKey struct{ session, principal string }

func newMemoryEvents() *memoryEvents {
	m := &memoryEvents{begin: time.Now(), sessions: make(map[sessionKey]map[string]*eventRing)}
	m.lru.prev, m.lru.next = &m.lru, &m.lru
	return m
}

// Append stores an event. It discards events that are too old, and streams if the store is full.
func (m *memoryEvents) Append(_ context.Context, key StreamKey, n int64, data []byte) error {
	now := time.Since(m.begin)
	e := storedEvent{now, append([]byte(nil), data...)}
	m.mu.Lock()
	defer m.mu.Unlock()
	ring := m.ring(key)
	m.bytes -= ring.size
	ring.append(n, e)
	ring.expire(now)
	m.bytes += ring.size
	ring.unlink()
	ring.linkBefore(&m.lru)
	m.evict(now)
	return nil
}

// ring returns the ring of a stream, which is new if the stream is unknown. The caller holds m.mu.
func (m *memoryEvents) ring(key StreamKey) *eventRing {
	of := sessionKey{key.Session, key.Principal}
	rings := m.sessions[of]
	if rings == nil {
		rings = make(map[string]*eventRing)
		m.sessions[of] = rings
	}
	ring := rings[key.Stream]
	if ring == nil {
		ring = &eventRing{key: key, size: ringOverhead}
		rings[key.Stream] = ring
		m.bytes += ring.size
		ring.linkBefore(&m.lru)
	}
	return ring
}

// evict discards events that are too old, and the least recently used streams while there are too
// many bytes. The caller holds m.mu.
func (m *memoryEvents) evict(now time.Duration) {
	for ring := m.lru.next; ring != &m.lru; ring = m.lru.next {
		m.bytes -= ring.size
		ring.expire(now)
		m.bytes += ring.size
		if ring.count > 0 && m.bytes <= maxEventBytes {
			return
		}
		m.remove(ring)
	}
}

// remove discards a stream. The caller holds m.mu.
func (m *memoryEvents) remove(ring *eventRing) {
	ring.unlink()
	m.bytes -= ring.size
	of := sessionKey{ring.key.Session, ring.key.Principal}
	rings := m.sessions[of]
	delete(rings, ring.key.Stream)
	if len(rings) == 0 {
		delete(m.sessions, of)
	}
}

// After returns the events after number n.
func (m *memoryEvents) After(_ context.Context, key StreamKey, n int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		events, err := m.after(key, n)
		if err != nil {
			yield(nil, err)
			return
		}
		for _, data := range events {
			if !yield(data, nil) {
				return
			}
		}
	}
}

// after returns a snapshot of the events, so that a slow client does not hold the lock.
func (m *memoryEvents) after(key StreamKey, n int64) ([][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ring := m.sessions[sessionKey{key.Session, key.Principal}][key.Stream]
	if ring == nil {
		return nil, ErrEventGap
	}
	ring.expire(time.Since(m.begin))
	return ring.after(n)
}

// EndSession deletes the streams of a session.
func (m *memoryEvents) EndSession(_ context.Context, session, principal string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ring := range m.sessions[sessionKey{session, principal}] {
		m.remove(ring)
	}
	return nil
}

const (
	minRingLen      = 4
	ringOverhead    = 256 // approximate size of a ring without events, in bytes
	storedEventSize = 32
)

// An eventRing holds the last events of one stream in a ring buffer.
type eventRing struct {
	prev, next *eventRing // in the list of the store
	key        StreamKey

	first  int64         // number of the first event
	events []storedEvent // the first one is at index head
	head   int
	count  int
	size   int // bytes, overhead included
}

// A storedEvent is an event and the time at which it was stored. Its data does not change.
type storedEvent struct {
	at   time.Duration
	data []byte
}

func (r *eventRing) unlink() { r.prev.next, r.next.prev = r.next, r.prev }

func (r *eventRing) linkBefore(next *eventRing) {
	r.prev, r.next = next.prev, next
	r.prev.next, r.next.prev = r, r
}

// append adds event number n. If events before it are missing, those in the ring are discarded.
func (r *eventRing) append(n int64, e storedEvent) {
	if r.first+int64(r.count) != n {
		for r.count > 0 {
			r.drop()
		}
		r.first = n
	}
	if r.count == len(r.events) {
		r.grow()
	}
	r.events[(r.head+r.count)%len(r.events)] = e
	r.count++
	r.size += len(e.data)
	for r.count > maxStreamEvents || r.size > maxStreamBytes && r.count > 0 {
		r.drop()
	}
}

// grow doubles the buffer.
func (r *eventRing) grow() {
	larger := make([]storedEvent, max(minRingLen, 2*len(r.events)))
	n := copy(larger, r.events[r.head:])
	copy(larger[n:], r.events[:r.head])
	r.size += (len(larger) - len(r.events)) * storedEventSize
	r.events, r.head = larger, 0
}

// drop discards the first event.
func (r *eventRing) drop() {
	r.size -= len(r.events[r.head].data)
	r.events[r.head] = storedEvent{}
	r.head = (r.head + 1) % len(r.events)
	r.count--
	r.first++
}

// expire discards the events that are too old.
func (r *eventRing) expire(now time.Duration) {
	for r.count > 0 && now-r.events[r.head].at >= maxEventAge {
		r.drop()
	}
}

// after returns the events after number n, or ErrEventGap.
func (r *eventRing) after(n int64) ([][]byte, error) {
	skip := n + 1 - r.first
	if skip < 0 || skip > int64(r.count) {
		return nil, ErrEventGap
	}
	events := make([][]byte, 0, r.count-int(skip))
	for i := int(skip); i < r.count; i++ {
		events = append(events, r.events[(r.head+i)%len(r.events)].data)
	}
	return events, nil
}
