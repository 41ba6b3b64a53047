package mcphttp

import (
	"io"
	"sync/atomic"
)

// Codecs that are tested for themselves.
var (
	EncodeHeaderValue = encodeHeaderValue
	DecodeHeaderValue = decodeHeaderValue
	EqualIntegers     = equalIntegers
	EventID           = eventID
	ParseEventID      = parseEventID
	IsJSON            = isJSON
	Accepts           = accepts
	ReadClaimed       = func(r io.Reader, claim, limit int64) ([]byte, error) {
		return readClaimed(r, claim, limit, &bodyCharge{}, new(atomic.Int64))
	}
	IsSameOrigin    = isSameOrigin
	SplitHost       = splitHost
	NewMemoryEvents = newMemoryEvents
	ErrEventUnknown = errEventUnknown.err.Message
)

// Stored returns how many bytes are stored, and for how many sessions.
func (m *memoryEvents) Stored() (size, sessions int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes, len(m.sessions)
}
