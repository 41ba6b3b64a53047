package host

import (
	"context"
	"iter"
	"time"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/pin"
)

// A State is the condition of a server or of an instance.
type State string

// States of a server.
const (
	StateOff       State = "off"       // not started
	StateStarting  State = "starting"  // connecting
	StateReady     State = "ready"     // connected
	StateDegraded  State = "degraded"  // connected, but the last request failed without a valid response
	StateBackoff   State = "backoff"   // ended or not reached; the next start is delayed
	StateCrashLoop State = "crashloop" // ended soon after each of several starts; see [Upstream.Restart]
	StateStopped   State = "stopped"   // ended because it was not used, or by [Upstream.Stop]
	StateDraining  State = "draining"  // replaced; ends with its last request
	StateAuth      State = "auth_required"
	// StateQuarantined means that the server sent definitions that are not approved. Its instances
	// continue.
	StateQuarantined State = "quarantined"
	StateConfig      State = "config_error" // the entry of the configuration cannot be used
)

// An Event reports a change of an instance of a server.
type Event struct {
	Time time.Time
	// Server is the name of the server in the configuration.
	Server string
	// Instance is the id of the instance; see [InstanceStatus].
	Instance string
	// State is the new state of the server. It is empty if the event reports a reload or a pending
	// request.
	State State
	// Pending is the id of a request that waits for approval; then there is no Instance and State.
	Pending string
	// Decided reports that Pending no longer waits. Answer is the answer, or empty for a request
	// that was cancelled or expired.
	Decided bool
	Answer  approval.Answer
	// Err is the reason of a failure; nil means no failure. With StateReady it reports a session
	// that the server lost, or a restart that failed.
	Err error
	// Pins are the definitions that are quarantined from now on, with StateQuarantined.
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
