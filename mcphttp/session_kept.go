package mcphttp

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"time"
)

const (
	// keptRoom is the room of events that are kept in one piece.
	keptRoom = 4 << 10
	// maxPack is the room of a pack: a few dozen short streams, which are forgotten together.
	maxPack = 16 << 10
	// packTime is for how long streams come into one pack, so that the first is not kept much longer than the last.
	packTime = maxEventAge / 10
	// keptOverhead is what a stream or a pack takes beside its events, roughly.
	keptOverhead = 256
)

// A keptEvent is an event as it is kept: when it came, how long it is, and its data.
type keptEvent struct {
	at   time.Duration
	data []byte
}

const keptEventHead = 8 + 4

func appendEvent(dst []byte, e keptEvent) []byte {
	dst = slices.Grow(dst, keptEventHead+len(e.data))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.at))
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(e.data)))
	return append(dst, e.data...)
}

// cutEvent returns the first event, and what follows it.
func cutEvent(b []byte) (e keptEvent, rest []byte) {
	end := keptEventHead + int(binary.LittleEndian.Uint32(b[8:]))
	return keptEvent{time.Duration(binary.LittleEndian.Uint64(b)), b[keptEventHead:end:end]}, b[end:]
}

func (e keptEvent) isOld(now time.Duration) bool { return now-e.at >= maxEventAge }

// A keptStream is what is kept of one stream. What was written into its blocks is never changed.
type keptStream struct {
	keptPlace
	name    string
	first   int64    // number of the first event
	count   int      // of events
	blocks  [][]byte // of events, none of which spans two
	dropped int      // how much of the first block is forgotten
}

func newKeptStream(key StreamKey) *keptStream {
	s := &keptStream{name: key.Stream}
	s.of, s.what, s.size = sessionKey{key.Session, key.Principal}, s, keptOverhead
	return s
}

// append keeps event number n.
func (s *keptStream) append(n int64, e keptEvent) {
	if s.first+int64(s.count) != n { // it is the first, or one in between was not kept
		for s.count > 0 {
			s.dropFirst()
		}
		s.first = n
	}
	last := len(s.blocks) - 1
	if last < 0 || len(s.blocks[last])+keptEventHead+len(e.data) > keptRoom {
		s.blocks = append(s.blocks, nil)
		last++
	}
	s.size -= cap(s.blocks[last])
	s.blocks[last] = appendEvent(s.blocks[last], e)
	s.size += cap(s.blocks[last])
	s.count++
	for s.count > maxStreamEvents || s.size > maxStreamBytes {
		s.dropFirst()
	}
}

func (s *keptStream) dropFirst() {
	_, rest := cutEvent(s.blocks[0][s.dropped:])
	s.dropped = len(s.blocks[0]) - len(rest)
	if len(rest) == 0 {
		s.size -= cap(s.blocks[0])
		s.blocks[0] = nil
		s.blocks, s.dropped = s.blocks[1:], 0
	}
	s.first++
	s.count--
}

// expire drops the events that are too old.
func (s *keptStream) expire(now time.Duration) bool {
	for s.count > 0 {
		if e, _ := cutEvent(s.blocks[0][s.dropped:]); !e.isOld(now) {
			return true
		}
		s.dropFirst()
	}
	return false
}

// leave also lets go of the events: whoever writes the stream has it still.
func (s *keptStream) leave(of *keptSession) {
	delete(of.streams, s.name)
	s.blocks, s.count, s.dropped = nil, 0, 0
}

// find returns the events of a stream, and the number of the first.
func (s *keptSession) find(name string) (first int64, blocks [][]byte, ok bool) {
	stream := s.streams[name]
	switch {
	case stream == nil:
		return s.findPacked(name)
	case stream.count == 0:
		return stream.first, nil, true
	}
	blocks = slices.Clone(stream.blocks)
	blocks[0] = blocks[0][stream.dropped:]
	return stream.first, blocks, true
}

// A keptPack is what is kept of short streams that are over. Only the last one of a session is added to, so a session's
// packs are forgotten in the order in which they were begun. What was written into it is never changed.
type keptPack struct {
	keptPlace
	index []packedStream
	data  []byte        // for each stream its name and its events, from the first on
	begun time.Duration // when the last event of its first stream came
	last  time.Duration // when the last event of any came
}

// A packedStream says where a stream is in its pack.
type packedStream struct {
	tag               uint64 // of its name
	name, events, end int    // where these begin in the data
}

// A packedPlace is where a packed stream is found.
type packedPlace struct {
	pack  int // its number, from the first of the session on
	index int // in that pack
}

// packedStreamSize is what a packed stream takes beside its data: in the index of its pack, and roughly in its session's map.
const packedStreamSize = 4*8 + 2*3*8

var tagSeed = maphash.MakeSeed()

// tagOf returns what streams are looked for by. Two names have the same one in a case out of many millions of millions; then
// only the later stream is found.
func tagOf(name string) uint64 { return maphash.String(tagSeed, name) }

// packFor returns the pack for the events of a stream. A new one has room for what the one before came to hold.
func (s *keptSession) packFor(key StreamKey, events []byte, last time.Duration) *keptPack {
	var streams, size int
	if n := len(s.packs); n > 0 {
		before := s.packs[n-1]
		if len(before.data)+len(key.Stream)+len(events) <= maxPack && last-before.begun < packTime {
			return before
		}
		streams, size = len(before.index), len(before.data)
	}
	p := &keptPack{index: make([]packedStream, 0, streams), data: make([]byte, 0, size), begun: last}
	p.of, p.what = sessionKey{key.Session, key.Principal}, p
	s.packs = append(s.packs, p)
	return p
}

// add packs a stream.
func (p *keptPack) add(of *keptSession, name string, events []byte, last time.Duration) {
	in := packedStream{tag: tagOf(name), name: len(p.data)}
	p.data = append(p.data, name...)
	in.events = len(p.data)
	p.data = append(p.data, events...)
	in.end = len(p.data)
	if of.packed == nil {
		of.packed = make(map[uint64]packedPlace)
	}
	of.packed[in.tag] = packedPlace{of.forgotten + len(of.packs) - 1, len(p.index)}
	p.index = append(p.index, in)
	p.last = max(p.last, last)
	p.size = keptOverhead + cap(p.data) + cap(p.index)*packedStreamSize
}

// findPacked is find for a stream that was packed.
func (s *keptSession) findPacked(name string) (first int64, blocks [][]byte, ok bool) {
	place, ok := s.packed[tagOf(name)]
	if !ok {
		return 0, nil, false
	}
	p := s.packs[place.pack-s.forgotten]
	in := p.index[place.index]
	if string(p.data[in.name:in.events]) != name {
		return 0, nil, false
	}
	return 1, [][]byte{p.data[in.events:in.end]}, true
}

// expire reports whether there is an event that is not too old.
func (p *keptPack) expire(now time.Duration) bool { return now-p.last < maxEventAge }

func (p *keptPack) leave(of *keptSession) {
	for _, in := range p.index {
		if of.packed[in.tag].pack == of.forgotten {
			delete(of.packed, in.tag)
		}
	}
	of.packs[0] = nil
	of.packs = of.packs[1:]
	of.forgotten++
}
