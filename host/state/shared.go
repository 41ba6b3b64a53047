package state

import (
	"context"
	"time"

	"github.com/patchbay-mcp/patchbay/replica"
)

const (
	sharedTopic = "host/state/" // before the kind of the entries that changed
	// subscribeRetry is the pause after a failure to subscribe. Until then, changes are found by reading.
	subscribeRetry = 5 * time.Second
)

// A Shared is a [Store] of several processes, which tells them of important changes at once: approvals,
// approved definitions, and keys. Processes also read the store from time to time, so that a lost message
// only delays a change. A host whose store is a Shared expects that its callers also use other processes.
type Shared struct {
	Store
	bus replica.Bus
}

// Share returns a store whose changes are announced on a bus. All processes must use the same bus.
func Share(s Store, bus replica.Bus) *Shared { return &Shared{s, bus} }

// Announce tells all processes that watch a kind that entries of the kind changed. It has no effect if
// s is not a [*Shared], or if the bus fails.
func Announce(ctx context.Context, s Store, kind string) {
	if shared, ok := s.(*Shared); ok {
		_, _ = shared.bus.Publish(ctx, sharedTopic+kind, []byte(kind)) // else a process reads it later
	}
}

// Watch calls changed after each [Announce] of a kind, also by this process, and when messages may have
// been lost, until stop is called. Several announcements may result in a single call. stop waits for
// the last call. There are no calls if s is not a [*Shared].
func Watch(s Store, kind string, changed func()) (stop func()) {
	shared, ok := s.(*Shared)
	if !ok {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { // ends with ctx
		defer close(done)
		shared.watch(ctx, kind, changed)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (s *Shared) watch(ctx context.Context, kind string, changed func()) {
	notices := make(chan struct{}, 1)
	notify := func([]byte) {
		select {
		case notices <- struct{}{}:
		default: // changed will be called already
		}
	}
	unsubscribe, err := s.bus.Subscribe(ctx, sharedTopic+kind, notify)
	for err != nil {
		select {
		case <-time.After(subscribeRetry):
		case <-ctx.Done():
			return
		}
		unsubscribe, err = s.bus.Subscribe(ctx, sharedTopic+kind, notify)
	}
	defer unsubscribe()
	notify(nil) // of changes before the subscription
	for {
		select {
		case <-notices:
			changed()
		case <-ctx.Done():
			return
		}
	}
}
