package legacy

import (
	"bytes"
	"sync/atomic"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A frame is what nearly every result of one core begins with and no session gets: that it is complete, and who the server
// is. Its bytes are remembered, so that they are taken off without being read.
type frame struct{ known atomic.Pointer[[]byte] }

// maxFrame is the longest frame that is remembered: a server that describes itself at length, with icons within, is rather
// read each time than kept twice.
const maxFrame = 4 << 10

// learn takes the frame from the description that the core gives of its server. A `_meta` that says more than who the
// server is belongs to that one result.
func (f *frame) learn(discovered []byte) {
	meta, _ := jsonscan.Get(discovered, "_meta")
	if len(meta) > maxFrame || jsonscan.Kind(meta) != '{' {
		return
	}
	for key := range jsonscan.Members(meta) {
		if string(key) != wire.MetaServerInfo {
			return
		}
	}
	begin := append(append([]byte(`{"resultType":"complete","_meta":`), meta...), ',')
	if old := f.known.Load(); old == nil || !bytes.Equal(*old, begin) {
		f.known.Store(&begin)
	}
}

// takeOff takes the frame off the result that dst holds from the offset on, and reports whether the result begins with it.
func (f *frame) takeOff(dst []byte, from int) ([]byte, bool) {
	known := f.known.Load()
	if known == nil || !bytes.HasPrefix(dst[from:], *known) {
		return dst, false
	}
	return append(dst[:from+1], dst[from+len(*known):]...), true // the brace stays
}
