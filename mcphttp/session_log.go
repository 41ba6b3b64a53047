package mcphttp

import (
	"context"
	"iter"
	"sync"
	"time"
)

// A streamLog keeps the events of one stream in the store, or nothing where the revision has no resumption.
//
// Most calls that stream say little and are over soon, and the client never comes back for it. Where the store is this
// process's own memory, the events of such a call are put together here and go into the store in one piece when the call is
// over; or before, when they are asked for or become many.
type streamLog struct {
	store  EventStore // nil for none
	key    StreamKey
	memory *memoryEvents // the store if it is this process's memory, else nil
	holds  bool          // events are put together for the memory
	held   *heldEvents   // those events; nil until there is one
	kept   *keptStream   // where the memory keeps the others; nil until there is one
	last   time.Duration // when the last of them came
}

// heldEvents is room for the events of one call. The store counts it as its own while it is in use.
type heldEvents struct {
	bytes []byte // never grown
	room  [keptRoom]byte
}

var heldRooms = sync.Pool{New: func() any { return new(heldEvents) }}

// keepIn has events kept in the store.
func (l *streamLog) keepIn(store EventStore) {
	l.store = store
	l.memory, _ = store.(*memoryEvents)
}

// holdBack has events put together, if the store is the right one. It is not for a stream that lasts.
func (l *streamLog) holdBack() { l.holds = l.memory != nil }

// append keeps event number n.
func (l *streamLog) append(ctx context.Context, n int64, data []byte) error {
	if l.memory == nil {
		return l.store.Append(ctx, l.key, n, data)
	}
	if !l.hold(len(data)) {
		l.settle()
		l.kept = l.memory.appendTo(l.kept, l.key, n, data)
		return nil
	}
	l.last = time.Since(l.memory.begin)
	l.held.bytes = appendEvent(l.held.bytes, keptEvent{l.last, data})
	return nil
}

// hold makes room for an event, if it is to be put together with others and the store has room to spare.
func (l *streamLog) hold(size int) bool {
	switch {
	case !l.holds:
		return false
	case l.held != nil:
		return len(l.held.bytes)+keptEventHead+size <= keptRoom
	case keptEventHead+size > keptRoom, !l.memory.lend(keptRoom):
		return false
	}
	l.held = heldRooms.Get().(*heldEvents)
	l.held.bytes = l.held.room[:0]
	return true
}

// settle has the store take what is held, and all that comes.
func (l *streamLog) settle() {
	if l.held != nil {
		l.memory.adopt(l.key, l.held.bytes)
		l.free()
	}
	l.holds = false
}

// after returns the events after number n.
func (l *streamLog) after(ctx context.Context, n int64) iter.Seq2[[]byte, error] {
	l.settle()
	return l.store.After(ctx, l.key, n)
}

// end has the store take what is held, now that nothing more comes.
func (l *streamLog) end() {
	if l.held != nil {
		l.memory.pack(l.key, l.held.bytes, l.last)
		l.free()
	}
}

// drop forgets what is held.
func (l *streamLog) drop() {
	if l.held != nil {
		l.memory.takeBack(keptRoom)
		l.free()
	}
}

func (l *streamLog) free() {
	heldRooms.Put(l.held)
	l.held = nil
}
