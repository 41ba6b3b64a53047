package state_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/state"
	"github.com/patchbay-mcp/patchbay/replica"
)

// A testBus fails while fails is set, and reports a loss to its last subscriber.
type testBus struct {
	replica.Memory
	fails atomic.Bool
	lose  func(payload []byte)
}

func (b *testBus) Subscribe(ctx context.Context, topic string, receive func([]byte)) (stop func(), err error) {
	if b.fails.Load() {
		return nil, errors.New("the bus does not answer")
	}
	b.lose = receive
	return b.Memory.Subscribe(ctx, topic, receive)
}

func (b *testBus) Publish(ctx context.Context, topic string, payload []byte) (int, error) {
	if b.fails.Load() {
		return 0, errors.New("the bus does not answer")
	}
	return b.Memory.Publish(ctx, topic, payload)
}

// A change announced by one process is reported to the others, also if messages were lost, and not after
// the watch ended.
func TestAnnouncedChangesReachOtherProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, entries := &testBus{}, &state.Memory{}
		a, b := state.Share(entries, bus), state.Share(entries, bus)
		var changes atomic.Int32
		stop := state.Watch(b, "key", func() { changes.Add(1) })
		expect := func(what string, want int32) {
			t.Helper()
			if synctest.Wait(); changes.Swap(0) != want {
				t.Errorf("%s: want %d calls", what, want)
			}
		}
		expect("the begin of the watch", 1)
		state.Announce(t.Context(), a, "key")
		expect("a change", 1)
		state.Announce(t.Context(), a, "pins")
		expect("a change of another kind", 0)
		bus.lose(nil)
		expect("a loss", 1)
		bus.fails.Store(true)
		state.Announce(t.Context(), a, "key")
		expect("a change that the bus does not carry", 0)
		bus.fails.Store(false)
		stop()
		state.Announce(t.Context(), a, "key")
		expect("a change after the end", 0)
	})
}

// A watch begins as soon as the bus works, and then reports the changes so far.
func TestWatchWaitsForTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &testBus{}
		bus.fails.Store(true)
		var changes atomic.Int32
		s := state.Share(&state.Memory{}, bus)
		stop := state.Watch(s, "key", func() { changes.Add(1) })
		ended := state.Watch(s, "key", func() { changes.Add(1) })
		<-time.After(time.Minute)
		if ended(); changes.Load() != 0 {
			t.Error("a change was reported without a bus")
		}
		bus.fails.Store(false)
		<-time.After(time.Minute)
		if synctest.Wait(); changes.Load() != 1 {
			t.Errorf("got %d calls, want 1 after the bus works", changes.Load())
		}
		stop()
	})
}

// Announcements during a call result in one more call, and the end waits for it.
func TestAnnouncementsAreJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := state.Share(&state.Memory{}, &testBus{})
		var calls atomic.Int32
		release := make(chan struct{})
		stop := state.Watch(s, "key", func() { <-release; calls.Add(1) })
		for range 100 {
			synctest.Wait()
			state.Announce(t.Context(), s, "key")
		}
		close(release)
		if synctest.Wait(); calls.Load() != 2 {
			t.Errorf("got %d calls, want 2", calls.Load())
		}
		stop()
	})
}

func TestStoreOfASingleProcessAnnouncesNothing(t *testing.T) {
	s := &state.Memory{}
	stop := state.Watch(s, "key", func() { t.Error("a change was reported") })
	state.Announce(t.Context(), s, "key")
	stop()
}
