package mcphttp

import (
	"context"
	"net/http"

	"github.com/patchbay-mcp/patchbay/internal/wire"
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
	ReadClaimed       = readClaimed
	IsSameOrigin      = isSameOrigin
	SplitHost         = splitHost
	IsLoopbackName    = isLoopbackName
	NewMemoryEvents   = newMemoryEvents
	ErrEventUnknown   = errEventUnknown.err.Message
)

// Stored returns how many bytes are stored, and for how many sessions.
func (m *memoryEvents) Stored() (size, sessions int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes, len(m.sessions)
}

// AnswerBesideANote has a response written of which a page of items is left out, while a notification has opened the stream
// and has not been written yet.
func AnswerBesideANote(ctx context.Context, w http.ResponseWriter, before, items, behind string) error {
	left := &wire.Page{Items: []byte(items), At: len(before), Ended: []byte(items + behind)}
	x := &exchange{w: w, ctx: callContext{Context: ctx, handler: NewHandler(nil, nil)}, left: left}
	if _, err := x.open(); err != nil {
		return err
	}
	room := make([]byte, 0, 2*len(before+items+behind))
	x.write(append(room, before+behind...), nil)
	return nil
}
