package mcphttp

import "context"

// Hold returns a way to append to one stream of a store as a call does, and one to end the stream.
func Hold(store EventStore, key StreamKey) (put func(ctx context.Context, n int64, data []byte) error, end func()) {
	l := &streamLog{key: key}
	l.keepIn(store)
	l.holdBack()
	return l.append, l.end
}

// Kept returns how many bytes are kept or held, and of how many sessions something is kept.
func (m *memoryEvents) Kept() (size, sessions int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes, len(m.sessions)
}

// Collide has the name of a stream that is not kept lead to one that was packed, as if both had the same tag.
func (m *memoryEvents) Collide(key StreamKey, packed string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.sessions[sessionKey{key.Session, key.Principal}]
	s.packed[tagOf(key.Stream)] = s.packed[tagOf(packed)]
}
