package mcphttp

import (
	"container/list"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"
)

// A StreamKey identifies a stream of a session. A store must compare all three parts: an event
// is available only to the principal and the session that it was sent to.
type StreamKey struct {
	Session   string
	Principal string // a digest; empty for anonymous callers
	Stream    string
}

// An EventStore stores the events of streams, so that a client whose connection broke can resume a
// stream without a loss. Its methods are called from several goroutines.
type EventStore interface {
	// Append stores event number n of a stream. The numbers of a stream increase by 1, from 1, unless
	// events between may be lost. A process that is late may store a smaller number afterwards.
	// Append must not retain data.
	Append(ctx context.Context, stream StreamKey, n int64, data []byte) error
	// After returns the data of the events after number n, in order, or no event. If the
	// stream is unknown or one of these events is no longer stored, the first pair has the error
	// ErrEventGap.
	After(ctx context.Context, stream StreamKey, n int64) iter.Seq2[[]byte, error]
	// EndSession deletes every stream of a session. It is called soon after the session ended, and
	// may be called again. The context ends after 10 seconds. Up to 16 calls run at once.
	EndSession(ctx context.Context, session, principal string) error
}

// ErrEventGap reports that events after the last event that a client saw are no longer stored.
var ErrEventGap = errors.New("mcphttp: events were discarded")

// Limits of the events that are stored in memory.
const (
	maxEventAge     = 10 * time.Minute
	maxSessionBytes = 8 << 20
	maxEventBytes   = 256 << 20 // of all sessions
	maxOwnerBytes   = 64 << 20  // of the sessions of a principal
	maxStoredEvent  = maxSessionBytes / 2
)

// Limits of a block of events. A block without space or beyond its age is followed by another.
const (
	minBlock    = 128
	maxBlock    = 64 << 10
	maxBlockAge = maxEventAge / 4
	// lruPrecision is the time for which a block keeps its place in the LRU lists, because moving the
	// block for each event costs as much as storing the event.
	lruPrecision = time.Second
	// blockOverhead is the approximate size of a block without its events, in bytes.
	blockOverhead = 256
)

// memoryEvents is an [EventStore] in memory. The events of all streams of a session are together in
// blocks, which the garbage collector does not scan: nearly all streams are short and never
// resumed, so storing an event is cheap, and finding the events of a stream is a search in its
// session. When the store is full it discards a block of the principal with the most blocks. Of the
// blocks of a principal it discards the block that was least recently appended to. Anonymous
// callers count as a principal that may take half of the store.
type memoryEvents struct {
	begin time.Time // times are stored as durations since then

	mu       sync.Mutex // guards the fields below
	sessions map[sessionKey]*sessionEvents
	owners   map[string]*eventOwner // by principal
	lru      list.List              // of all *eventBlock, least recently appended to first
	bytes    int                    // size of all blocks
}

type sessionKey struct{ session, principal string }

// An eventOwner is the principal of stored events.
type eventOwner struct {
	principal string
	limit     int       // bytes
	bytes     int       // size of the blocks
	lru       list.List // of *eventBlock, least recently appended to first
}

// sessionEvents holds the events of a session, in the order in which they were stored.
type sessionEvents struct {
	key    sessionKey
	owner  *eventOwner
	blocks []*eventBlock
	bytes  int // size of the blocks
}

// An eventBlock is a sequence of encoded events. Only the last block of a session is appended to.
type eventBlock struct {
	element     *list.Element // of the list of the store
	owned       *list.Element // of the list of the owner
	session     *sessionEvents
	begin, last time.Duration // of the first and the last event
	moved       time.Duration // when it became the most recently appended to
	data        []byte
}

func newMemoryEvents() *memoryEvents {
	return &memoryEvents{
		begin:    time.Now(),
		sessions: make(map[sessionKey]*sessionEvents),
		owners:   make(map[string]*eventOwner),
	}
}

// Append stores an event. It discards blocks that are too old or too many. An event that would fill
// the store of its session is refused, so that it does not discard all others.
func (m *memoryEvents) Append(_ context.Context, key StreamKey, n int64, data []byte) error {
	if len(data) > maxStoredEvent {
		return fmt.Errorf("event of %d bytes: at most %d are stored", len(data), maxStoredEvent)
	}
	now := time.Since(m.begin)
	m.mu.Lock()
	defer m.mu.Unlock()
	b := m.block(key, eventHeader+len(key.Stream)+len(data), now)
	b.data = appendEvent(b.data, storedEvent{at: now, n: n, stream: []byte(key.Stream), data: data})
	b.last = now
	if now-b.moved > lruPrecision {
		m.lru.MoveToBack(b.element)
		b.session.owner.lru.MoveToBack(b.owned)
		b.moved = now
	}
	for e := m.lru.Front(); e != nil; e = m.lru.Front() {
		oldest := e.Value.(*eventBlock)
		if now-oldest.last < maxEventAge {
			break
		}
		m.removeFirst(oldest.session)
	}
	for b.session.bytes > maxSessionBytes {
		m.removeFirst(b.session)
	}
	for owner := b.session.owner; owner.bytes > owner.limit; {
		m.removeFirst(owner.oldest())
	}
	for m.bytes > maxEventBytes {
		m.removeFirst(m.largestOwner().oldest())
	}
	return nil
}

// oldest returns the session of the block that was least recently appended to.
func (o *eventOwner) oldest() *sessionEvents { return o.lru.Front().Value.(*eventBlock).session }

// largestOwner returns the principal with the most bytes. The caller holds m.mu.
func (m *memoryEvents) largestOwner() (largest *eventOwner) {
	for _, o := range m.owners {
		if largest == nil || o.bytes > largest.bytes {
			largest = o
		}
	}
	return largest
}

// owner returns the owner of the events of a principal. The caller holds m.mu.
func (m *memoryEvents) owner(principal string) *eventOwner {
	o := m.owners[principal]
	if o == nil {
		o = &eventOwner{principal: principal, limit: maxOwnerBytes}
		if principal == "" {
			o.limit = int(anonymousShare(maxEventBytes))
		}
		m.owners[principal] = o
	}
	return o
}

// block returns a block with room for an event of the given size. Each block of a session is
// larger than the previous block, so that its events are never copied. The caller holds m.mu.
func (m *memoryEvents) block(key StreamKey, size int, now time.Duration) *eventBlock {
	of := sessionKey{key.Session, key.Principal}
	s := m.sessions[of]
	if s == nil {
		s = &sessionEvents{key: of, owner: m.owner(of.principal)}
		m.sessions[of] = s
	}
	room := minBlock
	if len(s.blocks) > 0 {
		b := s.blocks[len(s.blocks)-1]
		if len(b.data)+size <= cap(b.data) && now-b.begin < maxBlockAge {
			return b
		}
		room = min(2*len(b.data), maxBlock)
	}
	b := &eventBlock{session: s, begin: now, moved: now, data: make([]byte, 0, max(room, minBlock, size))}
	b.element, b.owned = m.lru.PushBack(b), s.owner.lru.PushBack(b)
	s.blocks = append(s.blocks, b)
	m.grow(s, blockOverhead+cap(b.data))
	return b
}

// grow counts bytes of a session. The caller holds m.mu.
func (m *memoryEvents) grow(s *sessionEvents, by int) {
	s.bytes += by
	s.owner.bytes += by
	m.bytes += by
}

// removeFirst discards the first block of a session. The caller holds m.mu.
func (m *memoryEvents) removeFirst(s *sessionEvents) {
	b := s.blocks[0]
	m.lru.Remove(b.element)
	s.owner.lru.Remove(b.owned)
	m.grow(s, -blockOverhead-cap(b.data))
	s.blocks[0] = nil
	if s.blocks = s.blocks[1:]; len(s.blocks) == 0 {
		delete(m.sessions, s.key)
		if s.owner.lru.Len() == 0 {
			delete(m.owners, s.owner.principal)
		}
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

// after returns the events after number n, which alias the blocks: what was written to a block does
// not change.
func (m *memoryEvents) after(key StreamKey, n int64) (events [][]byte, err error) {
	oldest := time.Since(m.begin) - maxEventAge
	first, next := int64(0), int64(0) // numbers of the first event and of the event after the last
	for _, block := range m.blocks(key) {
		for len(block) > 0 {
			var e storedEvent
			e, block = cutEvent(block)
			if e.at <= oldest || string(e.stream) != key.Stream {
				continue
			}
			if e.n != next { // it is the first, or the events before it were discarded or stored late
				first, events = max(e.n, next), nil
			}
			next = e.n + 1
			if e.n > n {
				events = append(events, e.data)
			}
		}
	}
	if n+1 < first || n+1 > next || next == 0 {
		return nil, ErrEventGap
	}
	return events, nil
}

func (m *memoryEvents) blocks(key StreamKey) (blocks [][]byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[sessionKey{key.Session, key.Principal}]; s != nil {
		for _, b := range s.blocks {
			blocks = append(blocks, b.data)
		}
	}
	return blocks
}

// EndSession deletes the events of a session.
func (m *memoryEvents) EndSession(_ context.Context, session, principal string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s := m.sessions[sessionKey{session, principal}]; s != nil {
		for len(s.blocks) > 0 {
			m.removeFirst(s)
		}
	}
	return nil
}

// A storedEvent is an event in a block. It is encoded as its time, its number, the lengths of the
// name of its stream and of its data, and these two.
type storedEvent struct {
	at           time.Duration
	n            int64
	stream, data []byte
}

const eventHeader = 8 + 8 + 4 + 4

func appendEvent(dst []byte, e storedEvent) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.at))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.n))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.stream)))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.data)))
	return append(append(dst, e.stream...), e.data...)
}

// cutEvent decodes the first event of a block, and returns the bytes after it.
func cutEvent(b []byte) (e storedEvent, rest []byte) {
	e.at = time.Duration(binary.LittleEndian.Uint64(b))
	e.n = int64(binary.LittleEndian.Uint64(b[8:]))
	stream := eventHeader + int(binary.LittleEndian.Uint32(b[16:]))
	end := stream + int(binary.LittleEndian.Uint32(b[20:]))
	e.stream, e.data = b[eventHeader:stream], b[stream:end:end]
	return e, b[end:]
}
