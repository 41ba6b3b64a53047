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

// rooms are memory in which bytes are gathered. Each makes what there is moreRoom times as much as the ones before it. They
// are used again, and so nobody sees them outside this package: what is taken has memory of its own.
var rooms [6]sync.Pool // of *[]byte, empty

func newRoom(size int) *[]byte {
	if r, ok := rooms[size].Get().(*[]byte); ok {
		return r
	}
	n := FirstRoom
	if size > 0 {
		n *= moreRoom - 1
	}
	for range size - 1 {
		n *= moreRoom
	}
	r := make([]byte, 0, n)
	return &r
}

// A Buffer holds what has arrived. The zero Buffer is empty and ready. Whoever has put something into one calls Drop in the
// end, unless somebody may still write into its space. It is not safe for concurrent use.
type Buffer struct {
	// Limit, if not zero, is how much can arrive. There is room for no more, but for what [FirstRoom] has beyond it.
	Limit int64

	length int
	rooms  [len(rooms)]*[]byte // that the bytes are in, one after the other
	used   int                 // how many rooms; all but the last are full
	own    []byte              // that the bytes are in once they are in no rooms
}

// Len is how much has arrived.
func (b *Buffer) Len() int { return b.length }

// Space returns room for what arrives next, at least one byte of it; [Buffer.Filled] says how much of it was used. What has
// arrived is the beginning of claim bytes, or of an unknown number if that is negative. A claim is believed once a fifth
// of it is there: then there is room for all, and for one byte more, in which the end is seen.
func (b *Buffer) Space(claim int64) []byte {
	last := b.last()
	if len(*last) == cap(*last) {
		b.grow(claim)
		last = b.last()
	}
	return (*last)[len(*last):cap(*last)]
}

// Filled says that the first n bytes of the space have arrived.
func (b *Buffer) Filled(n int) {
	last := b.last()
	*last = (*last)[:len(*last)+n]
	b.length += n
}

// Add is Space and Filled for bytes that are there, of an unknown number.
func (b *Buffer) Add(p []byte) {
	for len(p) > 0 {
		n := copy(b.Space(-1), p)
		b.Filled(n)
		p = p[n:]
	}
}

// Take returns what has arrived, in memory of its own, and leaves the buffer empty.
func (b *Buffer) Take() []byte {
	taken := b.own
	if b.used > 0 {
		var parts [len(rooms)][]byte
		for i, r := range b.rooms[:b.used] {
			parts[i] = *r
		}
		taken = bytes.Join(parts[:b.used], nil)
	}
	b.Drop()
	return taken
}

// Drop forgets what has arrived.
func (b *Buffer) Drop() {
	for i, r := range b.rooms[:b.used] {
		*r = (*r)[:0]
		rooms[i].Put(r)
		b.rooms[i] = nil
	}
	b.length, b.used, b.own = 0, 0, nil
}

// last is where the last bytes are.
func (b *Buffer) last() *[]byte {
	if b.used > 0 {
		return b.rooms[b.used-1]
	}
	return &b.own
}

func (b *Buffer) grow(claim int64) {
	arrived := int64(b.length)
	left := claim + 1 - arrived
	switch {
	case 0 < left && (left <= moreRoom*arrived || left < FirstRoom):
		b.move(claim + 1)
	case b.own == nil && b.used < len(rooms) && (b.Limit == 0 || moreRoom*arrived <= b.Limit):
		b.rooms[b.used] = newRoom(b.used)
		b.used++
	case arrived < b.Limit:
		b.move(min(2*arrived, b.Limit))
	default:
		b.move(2 * arrived)
	}
}

// move moves all into memory of its own, of the given size.
func (b *Buffer) move(size int64) {
	own := make([]byte, 0, size)
	for _, r := range b.rooms[:b.used] {
		own = append(own, *r...)
	}
	own = append(own, b.own...)
	arrived := b.length
	b.Drop()
	b.own, b.length = own, arrived
}
