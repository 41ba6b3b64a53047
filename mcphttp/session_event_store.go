package mcphttp

import (
	"context"
	"encoding/binary"
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
var ErrEventGap = errors.New("mcphttp: events were discarded")

// Limits of the events that are stored in memory.
const (
	maxStreamEvents = 1000
	maxStreamBytes  = 4 << 20
	maxEventAge     = 10 * time.Minute
	maxEventBytes   = 256 << 20 // of all streams
)

// memoryEvents is an [EventStore] in memory. Each stream has an eventRing. When the store is full
// it discards the stream that was least recently appended to.
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
	m.appendTo(nil, key, n, data)
	return nil
}

// appendTo is Append for a caller that has the ring that the last call for the stream returned. It
// saves looking the ring up.
func (m *memoryEvents) appendTo(ring *eventRing, key StreamKey, n int64, data []byte) *eventRing {
	now := time.Since(m.begin)
	m.mu.Lock()
	defer m.mu.Unlock()
	if ring == nil || ring.removed {
		ring = m.ring(key)
	}
	m.bytes -= ring.size()
	ring.expire(now)
	ring.append(n, now, data)
	m.bytes += ring.size()
	ring.unlink()
	ring.linkBefore(&m.lru)
	m.evict(now)
	return ring
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
		ring = &eventRing{key: key}
		rings[key.Stream] = ring
		m.bytes += ring.size()
		ring.linkBefore(&m.lru)
	}
	return ring
}

// evict discards events that are too old, and the least recently used streams while there are too
// many bytes. The caller holds m.mu.
func (m *memoryEvents) evict(now time.Duration) {
	for ring := m.lru.next; ring != &m.lru; ring = m.lru.next {
		m.bytes -= ring.size()
		ring.expire(now)
		m.bytes += ring.size()
		if ring.count > 0 && m.bytes <= maxEventBytes {
			return
		}
		m.remove(ring)
	}
}

// remove discards a stream. The caller holds m.mu.
func (m *memoryEvents) remove(ring *eventRing) {
	ring.unlink()
	m.bytes -= ring.size()
	ring.removed, ring.buf = true, nil
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

// after returns copies of the events, so that a slow client does not hold the lock.
func (m *memoryEvents) after(key StreamKey, n int64) ([][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	ring := m.sessions[sessionKey{key.Session, key.Principal}][key.Stream]
	if ring == nil {
		return nil, ErrEventGap
	}
	m.bytes -= ring.size()
	ring.expire(time.Since(m.begin))
	m.bytes += ring.size()
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
	// minRingSize has room for the events of most calls: a progress notification and the response.
	minRingSize = 512
	// ringOverhead is the approximate size of a ring without its buffer, in bytes.
	ringOverhead = 256
	// eventHeader is the size of what precedes the data of an event: its time and its length.
	eventHeader = 8 + 4
)

// An eventRing holds the last events of one stream in a ring buffer of bytes. The garbage collector
// does not scan the buffer, which matters when hundreds of thousands of streams are stored.
type eventRing struct {
	prev, next *eventRing // in the list of the store
	key        StreamKey
	removed    bool // from the store

	first int64 // number of the first event
	count int
	buf   []byte
	head  int // index of the first event in buf
	used  int // bytes of all events
}

// size returns the memory that the ring takes, in bytes.
func (r *eventRing) size() int { return ringOverhead + len(r.buf) }

func (r *eventRing) unlink() { r.prev.next, r.next.prev = r.next, r.prev }

func (r *eventRing) linkBefore(next *eventRing) {
	r.prev, r.next = next.prev, next
	r.prev.next, r.next.prev = r, r
}

// append adds event number n. If events before it are missing, those in the ring are discarded.
func (r *eventRing) append(n int64, at time.Duration, data []byte) {
	if r.first+int64(r.count) != n {
		r.count, r.head, r.used = 0, 0, 0
		r.first = n
	}
	var header [eventHeader]byte
	binary.LittleEndian.PutUint64(header[:], uint64(at))
	binary.LittleEndian.PutUint32(header[8:], uint32(len(data)))
	r.reserve(eventHeader + len(data))
	r.write(header[:])
	r.write(data)
	r.count++
	for r.count > maxStreamEvents || r.used > maxStreamBytes {
		r.drop()
	}
}

// reserve makes room for n bytes. A large buffer grows slowly, since its size counts as used.
func (r *eventRing) reserve(n int) {
	if r.used+n <= len(r.buf) {
		return
	}
	size := max(r.used+n, minRingSize, len(r.buf)+len(r.buf)/4)
	if len(r.buf) < 8*minRingSize {
		size = max(size, 2*len(r.buf))
	}
	buf := make([]byte, size)
	r.read(0, buf[:r.used])
	r.buf, r.head = buf, 0
}

// write adds bytes, for which there is room.
func (r *eventRing) write(b []byte) {
	tail := r.head + r.used
	if tail >= len(r.buf) {
		tail -= len(r.buf)
	}
	n := copy(r.buf[tail:], b)
	copy(r.buf, b[n:])
	r.used += len(b)
}

// read fills b with the bytes at an offset from the first event.
func (r *eventRing) read(offset int, b []byte) {
	if len(b) == 0 {
		return
	}
	at := (r.head + offset) % len(r.buf)
	n := copy(b, r.buf[at:])
	copy(b[n:], r.buf)
}

// event returns the time and the length of the event at an offset.
func (r *eventRing) event(offset int) (at time.Duration, size int) {
	var header [eventHeader]byte
	r.read(offset, header[:])
	return time.Duration(binary.LittleEndian.Uint64(header[:])), int(binary.LittleEndian.Uint32(header[8:]))
}

// drop discards the first event. An empty ring has no buffer.
func (r *eventRing) drop() {
	_, size := r.event(0)
	r.head = (r.head + eventHeader + size) % len(r.buf)
	r.used -= eventHeader + size
	r.count--
	r.first++
	if r.count == 0 {
		r.buf, r.head = nil, 0
	}
}

// expire discards the events that are too old.
func (r *eventRing) expire(now time.Duration) {
	for r.count > 0 {
		if at, _ := r.event(0); now-at < maxEventAge {
			return
		}
		r.drop()
	}
}

// after returns the events after number n, or ErrEventGap.
func (r *eventRing) after(n int64) ([][]byte, error) {
	if n+1 < r.first || n+1 > r.first+int64(r.count) {
		return nil, ErrEventGap
	}
	var events [][]byte
	for i, offset := r.first, 0; i < r.first+int64(r.count); i++ {
		_, size := r.event(offset)
		if i > n {
			data := make([]byte, size)
			r.read(offset+eventHeader, data)
			events = append(events, data)
		}
		offset += eventHeader + size
	}
	return events, nil
}
