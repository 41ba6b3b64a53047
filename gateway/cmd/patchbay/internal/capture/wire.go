package capture

import (
	"context"
	"encoding/json"
	"iter"
)

// maxWire limits the texts of the frames of an exchange on the wire, in bytes: an event must fit
// into the memory of many readers.
const maxWire = 1 << 20

// A wireExchange is an exchange in the events of the admin API.
type wireExchange struct {
	Exchange
	Frames  []Frame `json:"frames"`
	Omitted int     `json:"omitted,omitzero"` // frames that are not listed
}

// maxUnread limits the changed exchanges that wait for a reader of the wire. Under a high load, the
// limit is a few seconds of traffic.
const maxUnread = 16_384

// Wire returns an iterator for the option Wire of a gateway. Until ctx ends, the iterator yields
// each exchange once, with its frames, when the exchange ends. Messages that arrive later do not
// repeat the exchange. If a slow reader missed changes, the iterator yields nil and their number.
func (r *Ring) Wire(ctx context.Context) iter.Seq2[json.RawMessage, uint64] {
	return func(yield func(json.RawMessage, uint64) bool) {
		w := r.watch(maxUnread)
		defer w.Close()
		yielded := make([]uint64, r.maxSlots) // the last id that was yielded for each slot
		for {
			ids, _, err := w.Next(ctx)
			if err != nil {
				return
			}
			missed := w.Lost()
			for _, id := range ids {
				x, frames, ok := r.Get(id)
				if !ok && yielded[r.slot(id)] != id {
					missed++
				}
				if !x.IsOver() || yielded[r.slot(id)] == id {
					continue
				}
				yielded[r.slot(id)] = id
				text, err := json.Marshal(onWire(&x, frames))
				if missed > 0 && !yield(nil, missed) || err == nil && !yield(text, 0) { // err is nil
					return
				}
				missed = 0
			}
			if missed > 0 && !yield(nil, missed) {
				return
			}
		}
	}
}

func onWire(x *Exchange, frames []Frame) *wireExchange {
	e, size := &wireExchange{Exchange: *x, Frames: []Frame{}}, 0
	for _, f := range frames {
		if size += len(f.Text); size > maxWire {
			break
		}
		e.Frames = append(e.Frames, f)
	}
	e.Omitted = max(x.Frames, len(frames)) - len(e.Frames)
	return e
}
