package mcphttp

import "context"

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
