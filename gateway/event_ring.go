package gateway

import "slices"

// An eventRing contains the latest events, with consecutive numbers that begin with 1.
type eventRing struct {
	buffer []adminEvent // grows to maxEvents
	start  int          // index of the oldest event
	count  int
	first  uint64 // number of the oldest event
	size   int    // of all events
}

// add adds an event, and removes the oldest events as the limits require.
func (r *eventRing) add(e adminEvent) {
	size := e.size()
	for r.count > 0 && (r.count == maxEvents || r.size+size > maxEventBytes) {
		r.removeFirst()
	}
	if r.count < len(r.buffer) {
		r.buffer[(r.start+r.count)%len(r.buffer)] = e
	} else {
		if r.start > 0 { // append adds at the end
			r.buffer, r.start = slices.Concat(r.buffer[r.start:], r.buffer[:r.start]), 0
		}
		r.buffer = append(r.buffer, e)
	}
	r.count++
	r.size += size
}

func (r *eventRing) removeFirst() {
	r.size -= r.buffer[r.start].size()
	r.buffer[r.start] = adminEvent{}
	r.start = (r.start + 1) % len(r.buffer)
	r.count--
	r.first++
}

// from returns a copy of at most n events, beginning with a number that is not less than first.
func (r *eventRing) from(number uint64, n int) []adminEvent {
	skip := int(min(number-r.first, uint64(r.count)))
	events := make([]adminEvent, min(n, r.count-skip))
	for i := range events {
		events[i] = r.buffer[(r.start+skip+i)%len(r.buffer)]
	}
	return events
}

// last returns the number of the newest event, or 0 before the first event.
func (r *eventRing) last() uint64 { return r.first + uint64(r.count) - 1 }
