// Package gather reads what a peer sends whose length is not certain before it is all there: bodies and long lines. It
// costs one copy and little memory that is not used again, and a peer cannot make it hold much more than was sent.
package gather

import (
	"bytes"
	"sync"
)

const (
	// FirstRoom is how much room there is at first.
	FirstRoom = 4 << 10
	// moreRoom is how many times as much there is next: few copies, and never much more than has arrived.
	moreRoom = 4
)

// rooms are memory in which bytes are gathered, each moreRoom times as large as the one before. They are used again, and
// so nobody sees them outside this package: what is taken has memory of its own.
var rooms [6]sync.Pool // of *room

type room struct {
	bytes []byte
	size  int // index in rooms
}

func newRoom(size int) *room {
	if r, ok := rooms[size].Get().(*room); ok {
		return r
	}
	n := FirstRoom
	for range size {
		n *= moreRoom
	}
	return &room{bytes: make([]byte, 0, n), size: size}
}

// A Buffer holds what has arrived. The zero Buffer is empty and ready. Whoever has put something into one calls Drop in the
// end. It is not safe for concurrent use.
type Buffer struct {
	// Limit, if not zero, is how much can arrive. Memory that is not used again is never larger.
	Limit int64

	bytes []byte
	room  *room // that the bytes are in; nil for memory of their own
}

// Len is how much has arrived.
func (b *Buffer) Len() int { return len(b.bytes) }

// Space gives room for what arrives next, at least one byte of it; [Buffer.Filled] says how much of it was used. What has
// arrived is the beginning of claim bytes, or of an unknown number if that is negative. A claim is believed once a fifth
// of it is there: then there is room for all, and for one byte more, in which the end is seen.
func (b *Buffer) Space(claim int64) []byte {
	if len(b.bytes) == cap(b.bytes) {
		b.grow(claim)
	}
	return b.bytes[len(b.bytes):cap(b.bytes)]
}

// Filled says that the first n bytes of the space have arrived.
func (b *Buffer) Filled(n int) { b.bytes = b.bytes[:len(b.bytes)+n] }

// Add is Space and Filled for bytes that are there, of an unknown number.
func (b *Buffer) Add(p []byte) {
	for len(p) > 0 {
		n := copy(b.Space(-1), p)
		b.Filled(n)
		p = p[n:]
	}
}

// Take gives what has arrived, in memory of its own, and leaves the buffer empty.
func (b *Buffer) Take() []byte {
	taken := b.bytes
	if b.room != nil {
		taken = bytes.Clone(taken)
	}
	b.Drop()
	return taken
}

// Drop forgets what has arrived.
func (b *Buffer) Drop() {
	if b.room != nil {
		rooms[b.room.size].Put(b.room)
	}
	b.bytes, b.room = nil, nil
}

func (b *Buffer) grow(claim int64) {
	arrived := int64(len(b.bytes))
	left := claim + 1 - arrived
	switch {
	case 0 < left && (left <= moreRoom*arrived || left < FirstRoom):
		b.move(make([]byte, 0, claim+1), nil)
	case b.bytes == nil:
		r := newRoom(0)
		b.move(r.bytes, r)
	case b.room != nil && b.room.size+1 < len(rooms):
		r := newRoom(b.room.size + 1)
		b.move(r.bytes, r)
	case arrived < b.Limit:
		b.move(make([]byte, 0, min(2*arrived, b.Limit)), nil)
	default:
		b.move(make([]byte, 0, 2*arrived), nil)
	}
}

func (b *Buffer) move(to []byte, r *room) {
	to = append(to, b.bytes...)
	b.Drop()
	b.bytes, b.room = to, r
}
