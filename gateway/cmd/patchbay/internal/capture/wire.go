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

// Wire returns an iterator for the option Wire of a gateway. Until ctx ends, the iterator yields
// each exchange that ends, with its frames, and the number of changes that a slow reader lost
// before the exchange.
func (r *Ring) Wire(ctx context.Context) iter.Seq2[json.RawMessage, uint64] {
	return func(yield func(json.RawMessage, uint64) bool) {
		w := r.Watch()
		defer w.Close()
		for missed := uint64(0); ; {
			ids, reload, err := w.Next(ctx)
			if err != nil {
				return
			}
			if missed += w.Lost(); reload { // the newest exchange carries the number
				for _, x := range r.Find(nil, 0, 1) {
					ids = append(ids, x.ID)
				}
			}
			for _, id := range ids {
				x, frames, ok := r.Get(id)
				if !ok {
					missed++
				}
				if !x.IsOver() {
					continue
				}
				text, err := json.Marshal(onWire(&x, frames))
				if err == nil && !yield(text, missed) { // never fails
					return
				}
				missed = 0
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
