// Package readbuf buffers input whose length is not known in advance, such as request bodies and
// long lines. The result costs a single copy, most of the memory is pooled, and the peer cannot
// make a Buffer allocate much more than it sent.
package readbuf

import "sync"

const (
	// FirstChunk is the size of the first chunk of a Buffer.
	FirstChunk = 4 << 10
	// growth is the factor by which each further chunk multiplies the capacity: few copies, and
	// never much more memory than arrived.
	growth = 4
)

// chunkPools hold the chunks of Buffers, by index. Chunks never leave this package.
var chunkPools [6]sync.Pool // of *[]byte, empty

func newChunk(index int) *[]byte {
	if c, ok := chunkPools[index].Get().(*[]byte); ok {
		return c
	}
	n := FirstChunk
	if index > 0 {
		n *= growth - 1
	}
	for range index - 1 {
		n *= growth
	}
	c := make([]byte, 0, n)
	return &c
}

// A Buffer holds the bytes that arrived. The zero Buffer is empty and ready. Drain and Reset
// return its chunks to the pools; they must not be called while a writer may still use its space. A
// Buffer is not safe for concurrent use.
type Buffer struct {
	// Limit, if not zero, is the largest number of bytes that can arrive. The Buffer allocates no
	// more, except for the part of the first chunk that is beyond it.
	Limit int64

	length int
	chunks [len(chunkPools)]*[]byte // the bytes, in order; all but the last chunk in use are full
	used   int                      // number of chunks in use
	own    []byte                   // the bytes, once they no longer fit into chunks
}

// Len returns the number of bytes that arrived.
func (b *Buffer) Len() int { return b.length }

// Space returns free space for the bytes that arrive next, at least a byte. [Buffer.Filled]
// then reports how much of it was used. claim is the total number of bytes that the peer
// announced, negative if it is not known. Once a fifth of the claim arrived, there is space for
// all of it and another byte, so that a reader sees the end.
func (b *Buffer) Space(claim int64) []byte {
	last := b.last()
	if len(*last) == cap(*last) {
		b.grow(claim)
		last = b.last()
	}
	return (*last)[len(*last):cap(*last)]
}

// Filled records that the first n bytes of the space arrived.
func (b *Buffer) Filled(n int) {
	last := b.last()
	*last = (*last)[:len(*last)+n]
	b.length += n
}

// Add appends a copy of p.
func (b *Buffer) Add(p []byte) {
	for len(p) > 0 {
		n := copy(b.Space(-1), p)
		b.Filled(n)
		p = p[n:]
	}
}

// Drain returns the bytes in memory that the caller owns, and empties the Buffer.
func (b *Buffer) Drain() []byte {
	if b.used > 0 {
		b.move(int64(b.length))
	}
	bytes := b.own
	b.Reset()
	return bytes
}

// Reset empties the Buffer.
func (b *Buffer) Reset() {
	for i, c := range b.chunks[:b.used] {
		*c = (*c)[:0]
		chunkPools[i].Put(c)
		b.chunks[i] = nil
	}
	b.length, b.used, b.own = 0, 0, nil
}

// last returns the slice that the next bytes are appended to.
func (b *Buffer) last() *[]byte {
	if b.used > 0 {
		return b.chunks[b.used-1]
	}
	return &b.own
}

func (b *Buffer) grow(claim int64) {
	arrived := int64(b.length)
	left := claim + 1 - arrived
	switch {
	case 0 < left && (left <= growth*arrived || left < FirstChunk):
		b.move(claim + 1)
	case b.own == nil && b.used < len(chunkPools) && (b.Limit == 0 || growth*arrived <= b.Limit):
		b.chunks[b.used] = newChunk(b.used)
		b.used++
	case arrived < b.Limit:
		b.move(min(2*arrived, b.Limit))
	default:
		b.move(2 * arrived)
	}
}

// move copies all bytes into a slice of the given capacity.
func (b *Buffer) move(size int64) {
	own := make([]byte, 0, size)
	for _, c := range b.chunks[:b.used] {
		own = append(own, *c...)
	}
	own = append(own, b.own...)
	arrived := b.length
	b.Reset()
	b.own, b.length = own, arrived
}
