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

// KeepIn returns a way to append to one stream of a store.
func KeepIn(store EventStore, key StreamKey) func(ctx context.Context, n int64, data []byte) error {
	l := streamLog{key: key}
	l.keepIn(store)
	return l.append
}

// MaxLentRooms is how many calls may hold their events at once.
const MaxLentRooms = maxLentBytes / keptRoom

// Lend counts the room of one call.
func (m *memoryEvents) Lend() bool { return m.lend(keptRoom) }

// TakeBack ends what Lend began.
func (m *memoryEvents) TakeBack() { m.takeBack(keptRoom) }

// Lent returns how many bytes calls hold.
func (m *memoryEvents) Lent() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lent
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
