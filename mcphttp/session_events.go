package mcphttp

import (
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
	// After returns the data of the events after number n, in order, and nothing when there are none. The error is
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
	// maxLentBytes is how much of it may be room that calls hold while they go on: it cannot be forgotten.
	maxLentBytes = maxEventBytes / 4
)

// memoryEvents is an [EventStore] in memory. When it is full, what was silent for longest goes first.
//
// Nearly all that is kept is of calls that are over, and hardly anybody comes back for it. If each of them were a few
// objects, to go through them would be most of a busy server's garbage collection. So they are packed; see streamLog.
type memoryEvents struct {
	begin time.Time // times are kept as distances from it

	mu       sync.Mutex // guards the fields below
	sessions map[sessionKey]*keptSession
	silent   keptPlace // the ring of all streams and packs: behind it what was silent for longest
	bytes    int       // all that is kept, and what is lent
	lent     int       // room that calls hold for their events
}

type sessionKey struct{ session, principal string }

// A keptSession is what is kept of one session.
type keptSession struct {
	streams   map[string]*keptStream // by name; nil until there is one
	packs     []*keptPack            // of short streams that are over, the oldest first
	forgotten int                    // packs that were forgotten
	packed    map[uint64]packedPlace // the streams in the packs, by tag; nil until there is one
}

// A keptPlace is the place of a stream or a pack in the ring.
type keptPlace struct {
	prev, next *keptPlace // nil until there is something in it
	of         sessionKey
	size       int
	what       interface {
		// expire drops events that are too old, and reports whether there are any left.
		expire(now time.Duration) bool
		leave(s *keptSession)
	}
}

func newMemoryEvents() *memoryEvents {
	m := &memoryEvents{begin: time.Now(), sessions: make(map[sessionKey]*keptSession)}
	m.silent.prev, m.silent.next = &m.silent, &m.silent
	return m
}

// Append keeps an event, and makes room for it.
func (m *memoryEvents) Append(_ context.Context, key StreamKey, n int64, data []byte) error {
	m.appendTo(nil, key, n, data)
	return nil
}

// appendTo is Append for one who was given the stream before, and need not have it looked for if it is not forgotten.
func (m *memoryEvents) appendTo(stream *keptStream, key StreamKey, n int64, data []byte) *keptStream {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Since(m.begin)
	if stream == nil || stream.next == nil {
		stream = m.stream(key)
	}
	before := stream.size
	stream.append(n, keptEvent{now, data})
	stream.expire(now)
	m.moveLast(&stream.keptPlace, before)
	m.makeRoom(now)
	return stream
}

// session returns what is kept of a session, of which something is about to be kept.
func (m *memoryEvents) session(key StreamKey) *keptSession {
	of := sessionKey{key.Session, key.Principal}
	s := m.sessions[of]
	if s == nil {
		s = &keptSession{}
		m.sessions[of] = s
	}
	return s
}

// stream returns the stream of a key, of which something is about to be kept.
func (m *memoryEvents) stream(key StreamKey) *keptStream {
	s := m.session(key)
	stream := s.streams[key.Stream]
	if stream == nil {
		if s.streams == nil {
			s.streams = make(map[string]*keptStream)
		}
		stream = newKeptStream(key)
		s.streams[key.Stream] = stream
		m.moveLast(&stream.keptPlace, 0)
	}
	return stream
}

// moveLast puts what has something new last in the ring, or enters it there. It had the given size before.
func (m *memoryEvents) moveLast(p *keptPlace, before int) {
	m.bytes += p.size - before
	if p.next == &m.silent {
		return
	}
	if p.next != nil {
		p.prev.next, p.next.prev = p.next, p.prev
	}
	p.prev, p.next = m.silent.prev, &m.silent
	p.prev.next, p.next.prev = p, p
}

// makeRoom forgets what is too old, and what was silent for longest if there is too much.
func (m *memoryEvents) makeRoom(now time.Duration) {
	for p := m.silent.next; p != &m.silent; p = m.silent.next {
		before := p.size
		isLeft := p.what.expire(now)
		m.bytes += p.size - before
		if isLeft && m.bytes <= maxEventBytes {
			return
		}
		m.forget(p)
	}
}

func (m *memoryEvents) forget(p *keptPlace) {
	p.prev.next, p.next.prev = p.next, p.prev
	p.prev, p.next = nil, nil
	m.bytes -= p.size
	s := m.sessions[p.of]
	if p.what.leave(s); len(s.streams) == 0 && len(s.packs) == 0 {
		delete(m.sessions, p.of)
	}
}

// lend counts room in which a call holds its events as kept here, if there is some to spare.
func (m *memoryEvents) lend(room int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.lent+room > maxLentBytes {
		return false
	}
	m.lent += room
	if m.bytes += room; m.bytes > maxEventBytes {
		m.makeRoom(time.Since(m.begin))
	}
	return true
}

// takeBack ends what lend began.
func (m *memoryEvents) takeBack(room int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlend(room)
}

func (m *memoryEvents) unlend(room int) {
	m.lent -= room
	m.bytes -= room
}

// pack keeps a short stream that is over, from its first event on. Room was lent for it.
func (m *memoryEvents) pack(key StreamKey, events []byte, last time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlend(keptRoom)
	s := m.session(key)
	p := s.packFor(key, events, last)
	before := p.size
	p.add(s, key.Stream, events, last)
	m.moveLast(&p.keptPlace, before)
	m.makeRoom(last)
}

// adopt keeps the first events of a stream that goes on, for which room was lent.
func (m *memoryEvents) adopt(key StreamKey, events []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unlend(keptRoom)
	stream := m.stream(key)
	before := stream.size
	for n := int64(1); len(events) > 0; n++ {
		var e keptEvent
		e, events = cutEvent(events)
		stream.append(n, e)
	}
	m.moveLast(&stream.keptPlace, before)
	m.makeRoom(time.Since(m.begin))
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

// after returns the events as they are now, since the client may be slow to take them.
func (m *memoryEvents) after(key StreamKey, n int64) ([][]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[sessionKey{key.Session, key.Principal}]
	if s == nil {
		return nil, ErrEventGap
	}
	first, blocks, ok := s.find(key.Stream)
	if !ok {
		return nil, ErrEventGap
	}
	now := time.Since(m.begin)
	var events [][]byte
	next := first
	for _, block := range blocks {
		for len(block) > 0 {
			var e keptEvent
			e, block = cutEvent(block)
			next++
			if e.isOld(now) {
				first = next
			} else if next > n+1 {
				events = append(events, e.data)
			}
		}
	}
	if n+1 < first || n+1 > next {
		return nil, ErrEventGap
	}
	return events, nil
}

// EndSession forgets the streams of a session.
func (m *memoryEvents) EndSession(session, principal string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	of := sessionKey{session, principal}
	s := m.sessions[of]
	if s == nil {
		return nil
	}
	for _, stream := range s.streams {
		m.forget(&stream.keptPlace)
	}
	for len(s.packs) > 0 {
		m.forget(&s.packs[0].keptPlace)
	}
	return nil
}
