package mcphttp

import (
	stdjson "encoding/json"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// firstRoom is the room that a buffer begins with: enough for most of what is written.
	firstRoom = 4 << 10
	// maxPooled is the largest buffer that is kept for later requests of every kind: most messages are far smaller, and
	// a few large ones must not pin their size for good.
	maxPooled = 64 << 10
	// maxLarge is the largest buffer that is kept at all.
	maxLarge = 2 << 20
	// largeMemory is for how many answers after a large one another is expected.
	largeMemory = 64
)

// buffers and largeBuffers hold byte slices between requests, for what is written. What was read is never among them: a
// goroutine that a handler has left behind may look at the params of its request for ever, and must not see another
// caller's.
var (
	buffers      = sync.Pool{New: func() any { return &buffer{bytes: make([]byte, 0, firstRoom)} }}
	largeBuffers sync.Pool // of more than maxPooled; what nobody takes for a while is collected
)

// A buffer is a byte slice that is used again for other requests, and so must not outlive its own.
type buffer struct{ bytes []byte }

func newBuffer() *buffer { return buffers.Get().(*buffer) }

// free returns the buffer back. Nothing may alias it any more.
func (b *buffer) free() {
	b.bytes = b.bytes[:0]
	switch size := cap(b.bytes); {
	case size <= maxPooled:
		buffers.Put(b)
	case size <= maxLarge:
		largeBuffers.Put(b)
	}
}

// encodeNotification returns a buffer with a notification. Whoever waits for that to be sent has no message on the stack.
func encodeNotification(method string, params stdjson.RawMessage) *buffer {
	buf := newBuffer()
	buf.bytes = jsonrpc.Append(buf.bytes, jsonrpc.NewNotification(method, params))
	return buf
}

// A sizeHint knows whether large answers are to be expected, because there was one among the last few. They are written
// into large buffers then, as are the small ones between them; else nobody takes those, and they are collected.
type sizeHint struct {
	left atomic.Int32 // answers until none is expected any more
}

// newBuffer returns a buffer for an answer.
func (f *sizeHint) newBuffer() *buffer {
	if f.left.Load() > 0 {
		if b, ok := largeBuffers.Get().(*buffer); ok {
			return b
		}
	}
	return newBuffer()
}

// learn takes note of the size of an answer.
func (f *sizeHint) learn(size int) {
	switch left := f.left.Load(); {
	case size > maxPooled:
		f.left.Store(largeMemory)
	case left > 0:
		f.left.CompareAndSwap(left, left-1) // one who comes in between has counted for both
	}
}
