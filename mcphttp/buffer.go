package mcphttp

import (
	stdjson "encoding/json"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// initialSize is the capacity of a new buffer: enough for most responses.
	initialSize = 4 << 10
	// maxPooled is the largest buffer that is pooled for all requests. Most messages are far
	// smaller, and a few large responses must not hold memory for good.
	maxPooled = 64 << 10
	// maxLarge is the largest buffer that is pooled at all.
	maxLarge = 2 << 20
	// largeHint is the number of responses after a large response for which another large response
	// is expected.
	largeHint = 64
)

// buffers and largeBuffers are pools of buffers for writing. Buffers of read bytes are never
// pooled: a goroutine that a handler left behind may read the params of its request at any time,
// and must not see the params of another caller.
var (
	buffers      = sync.Pool{New: func() any { return &buffer{bytes: make([]byte, 0, initialSize)} }}
	largeBuffers sync.Pool // of more than maxPooled bytes
)

// A buffer is a pooled byte slice. It must not be used after free.
type buffer struct {
	bytes []byte
	// spliced is nil, or a part of the response that belongs at the offset at; see [wire.Splicer].
	spliced []byte
	at      int
	shared  bool
}

// minSplice is the length from which writing a part separately costs less than copying it.
const minSplice = 16 << 10

// Splice implements [wire.Splicer]. The buffer may be nil.
func (b *buffer) Splice(dst, part []byte, shared bool) bool {
	if b == nil || len(part) < minSplice || b.spliced != nil || cap(b.bytes) == 0 || &dst[0] != &b.bytes[:1][0] {
		return false
	}
	b.spliced, b.at, b.shared = part, len(dst), shared
	return true
}

// parts returns a response that is in the buffer: the bytes before the spliced part, that part, and
// the bytes after it. The buffer may be nil.
func (b *buffer) parts(response []byte) (before, spliced, after []byte) {
	if b == nil || b.spliced == nil {
		return response, nil, nil
	}
	return response[:b.at], b.spliced, response[b.at:]
}

// joined returns the same response as a whole.
func (b *buffer) joined(response []byte) []byte {
	if before, spliced, after := b.parts(response); spliced != nil {
		return slices.Concat(before, spliced, after)
	}
	return response
}

func newBuffer() *buffer { return buffers.Get().(*buffer) }

// free returns the buffer to its pool. The caller must not use it afterwards.
func (b *buffer) free() {
	b.bytes, b.spliced = b.bytes[:0], nil
	switch size := cap(b.bytes); {
	case size <= maxPooled:
		buffers.Put(b)
	case size <= maxLarge:
		largeBuffers.Put(b)
	}
}

func encodeNotification(method string, params stdjson.RawMessage) *buffer {
	buf := newBuffer()
	buf.bytes = jsonrpc.Append(buf.bytes, &jsonrpc.Message{Method: method, Params: params})
	return buf
}

// A sizeHint predicts large responses: it expects a large response if one of the last few was
// large. Then all responses are written to large buffers, and otherwise the large buffers are left
// to the garbage collector.
type sizeHint struct {
	left atomic.Int32 // responses until no large response is expected
}

// newBuffer returns a buffer for a response.
func (h *sizeHint) newBuffer() *buffer {
	if h.left.Load() > 0 {
		if b, ok := largeBuffers.Get().(*buffer); ok {
			return b
		}
	}
	return newBuffer()
}

func (h *sizeHint) learn(size int) {
	switch left := h.left.Load(); {
	case size > maxPooled:
		h.left.Store(largeHint)
	case left > 0:
		h.left.CompareAndSwap(left, left-1) // a concurrent response counted for both
	}
}
