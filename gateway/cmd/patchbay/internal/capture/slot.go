package capture

import (
	"cmp"
	"hash/maphash"
	"math"
	"time"
)

// chunkSlots is the number of slots for which memory is allocated at once.
const chunkSlots = 512

// A slot holds an exchange and its frames. A call writes slots that no cache holds any more, so a slot has 128
// bytes: two lines of a cache.
type slot struct {
	*about
	Cause                uint64
	Status, Trace        string
	Queued               time.Time
	Sent, FirstByte, End time.Duration
	Bytes                int64
	Rounds, Frames       int32
	held                 *held // nil without frames
}

// about contains the members of an exchange that most exchanges share with earlier exchanges. It is immutable.
type about struct {
	Hop                                            Hop
	Revision, Server, Caller, Method, Target, Name string
}

// held contains the frames of an exchange that the ring holds.
type held struct {
	frames []Frame
	size   int // of the frames
	first  [firstFrames]Frame
}

// newSlot returns the slot of an exchange without frames.
func (r *Ring) newSlot(x *Exchange) slot {
	shared := r.about(&about{x.Hop, x.Revision, x.Server, x.Caller, x.Method, x.Target, x.Name})
	return slot{about: shared, Cause: x.Cause, Status: x.Status, Trace: x.Trace, Queued: x.Queued, Sent: x.Sent,
		FirstByte: x.FirstByte, End: x.End, Bytes: x.Bytes, Rounds: 1,
		Frames: int32(x.Frames)} //nolint:gosec // at most 1
}

// about returns the shared copy of a. The caller holds the mutex.
func (r *Ring) about(a *about) *about {
	known := &r.known[(maphash.String(seed, a.Target)+uint64(len(a.Hop)))%uint64(len(r.known))]
	if *known == nil || **known != *a {
		unknown := *a
		*known = &unknown
	}
	return *known
}

// exchange returns the exchange with the id of the slot.
func (s *slot) exchange(id uint64) Exchange {
	return Exchange{ID: id, Cause: s.Cause, Hop: s.Hop, Revision: s.Revision, Server: s.Server, Caller: s.Caller,
		Method: s.Method, Target: s.Target, Name: s.Name, Status: s.Status, Trace: s.Trace, Queued: s.Queued,
		Sent: s.Sent, FirstByte: s.FirstByte, End: s.End, Bytes: s.Bytes, Rounds: int(s.Rounds), Frames: int(s.Frames)}
}

// frames returns the frames that are held.
func (s *slot) frames() []Frame {
	if s.held == nil {
		return nil
	}
	return s.held.frames
}

func (s *slot) end(status string, now time.Time) {
	if s.End == 0 {
		s.Status, s.End = status, s.since(now)
		s.FirstByte = cmp.Or(s.FirstByte, s.End)
	}
}

// since returns the time of an event of the exchange, which is never zero.
func (s *slot) since(now time.Time) time.Duration { return max(now.Sub(s.Queued), 1) }

// count counts a frame whose text is not kept.
func (s *slot) count(size int) {
	s.Bytes += int64(size)
	if s.Frames < math.MaxInt32 { // a process may print for years
		s.Frames++
	}
}
