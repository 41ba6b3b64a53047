package host

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/approval"
	"github.com/patchbay-mcp/patchbay/host/pin"
)

// A State is the condition of a server or of one of its instances.
type State string

// States of a server.
const (
	StateOff       State = "off"       // not started
	StateStarting  State = "starting"  // connecting
	StateReady     State = "ready"     // connected
	StateDegraded  State = "degraded"  // connected, but the last request has no valid response
	StateBackoff   State = "backoff"   // ended or not reached; the next start is delayed
	StateCrashLoop State = "crashloop" // ended soon after each of several starts; see [Upstream.Restart]
	StateStopped   State = "stopped"   // ended because it was not used, or by [Upstream.Stop]
	StateDraining  State = "draining"  // replaced; ends with its last request
	StateAuth      State = "auth_required"
	// StateQuarantined: the server is as before, but has sent definitions that are not approved.
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
	// Decided reports that Pending does not wait any more, and Answer is its answer; it is empty for a
	// request that was canceled or has expired.
	Decided bool
	Answer  approval.Answer
	// Err is the reason of a failure, nil if there is none. With StateReady it reports a session that
	// the server has lost, or a restart that failed.
	Err error
	// Pins are the definitions that are quarantined from now on, with StateQuarantined.
	Pins []*pin.Pin
	// Reload reports what a reload has changed, nil for other events and for a reload that has failed.
	Reload *Diff
}

// IsReload reports whether the event reports a reload of the configuration, successful or not. An
// empty Server is not sufficient, because a configuration can contain a server whose name is empty.
func (e *Event) IsReload() bool { return e.State == "" && e.Pending == "" }

// maxEvents bounds the events that wait for one reader.
const maxEvents = 256

// An eventBroadcaster passes events to readers, and never waits for one.
type eventBroadcaster struct {
	mu      sync.Mutex // guards readers
	readers map[chan Event]struct{}
}

func (b *eventBroadcaster) send(e Event) {
	e.Time = time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	for r := range b.readers {
		select {
		case r <- e:
		default:
		}
	}
}

// subscribe returns the events from now on, until one of the contexts ends.
func (b *eventBroadcaster) subscribe(ctx, end context.Context) iter.Seq[Event] {
	r := make(chan Event, maxEvents)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.readers == nil {
		b.readers = map[chan Event]struct{}{}
	}
	b.readers[r] = struct{}{}
	remove := func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.readers, r)
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
			case <-end.Done():
				return
			}
		}
	}
}
