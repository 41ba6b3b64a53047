package capture

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// NewSmall returns a ring of few exchanges and bytes.
func NewSmall(exchanges, bytes int) *Ring {
	r := New(&Options{Always: true})
	r.maxSlots, r.maxBytes = exchanges, bytes
	return r
}

// Held returns the bytes that the frames of a ring need, and their number.
func (r *Ring) Held() (size, frames int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := r.oldest(); id <= r.last; id++ {
		for _, f := range r.find(id).frames() {
			frames, size = frames+1, size+len(f.Text)+frameCost
		}
	}
	if size != r.size {
		panic("the size is wrong")
	}
	return size, frames
}

// Frames returns a function for frames of a connection.
func (r *Ring) Frames(server string) func(mcp.Frame) {
	return r.FramesFor(server, "")
}

// FramesFor returns a function for frames of a connection of a caller.
func (r *Ring) FramesFor(server, caller string) func(mcp.Frame) {
	return r.connection(server, caller).frame
}

// WireText returns the text of an exchange in an event.
func (r *Ring) WireText(id uint64) []byte {
	x, frames, _ := r.Get(id)
	text, err := json.Marshal(onWire(&x, frames))
	if err != nil {
		panic(err)
	}
	return text
}

const (
	MaxFrame   = maxFrame
	MaxChanged = maxChanged
	MaxUnread  = maxUnread
)
