package host

import (
	"context"
	"iter"
	"time"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/host/status"
)

// An Event reports a change of an instance of a server.
type Event struct {
	Time time.Time
	// Server is the name of the server in the configuration.
	Server string
	// Instance is the id of the instance; see [status.Instance].
	Instance string
	// State is the new state of the server. It is empty if the event reports a reload or a pending
	// request.
	State status.State
	// Pending is the id of a request that waits for approval; then there is no Instance and State.
	Pending string
	// Decided reports that Pending no longer waits. Answer is the answer, or empty for a request
	// that was cancelled or expired.
	Decided bool
	Answer  approval.Answer
	// Err is the reason of a failure; nil means no failure. With status.Ready it reports a session
	// that the server lost, or a restart that failed.
	Err error
	// Pins are the definitions that are quarantined from now on, with status.Quarantined.
	Pins []*pin.Pin
	// Reload contains the changes of a reload. It is nil for other events and for a reload that
	// failed.
	Reload *Diff
}

// IsReload reports whether the event reports a reload of the configuration, successful or not. An
// empty Server is not sufficient, because a configuration can contain a server whose name is empty.
func (e *Event) IsReload() bool { return e.State == "" && e.Pending == "" }

// maxEvents limits the events that wait for a reader.
const maxEvents = 256

// send passes an event to readers. It must never wait for a reader.
func (h *Host) send(e Event) {
	e.Time = time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for r := range h.readers {
		select {
		case r <- e:
		default:
		}
	}
}

// Events returns changes of the states of servers from now on, until ctx or the Host ends. A reader
// that is slow misses events.
func (h *Host) Events(ctx context.Context) iter.Seq[Event] {
	r := make(chan Event, maxEvents)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.readers[r] = struct{}{}
	remove := func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.readers, r)
	}
	stop := context.AfterFunc(ctx, remove) // also if the sequence is never used
	return func(yield func(Event) bool) {
		defer remove()
		defer stop()
		for {
			select {
			case e := <-r:
				if !yield(e) {
					return
				}
			case <-ctx.Done():
				return
			case <-h.ctx.Done():
				return
			}
		}
	}
}
