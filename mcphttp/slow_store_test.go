package mcphttp_test

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A slowStore is an EventStore whose EndSession takes a time, and fails if its context ends before.
type slowStore struct {
	mcphttp.EventStore
	takes time.Duration

	mu                   sync.Mutex // guards the fields below
	running, most, ended int
}

func (s *slowStore) EndSession(ctx context.Context, _, _ string) error {
	s.add(1)
	defer s.add(-1)
	select {
	case <-time.After(s.takes):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *slowStore) add(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running += n
	s.most = max(s.most, s.running)
	if n < 0 {
		s.ended++
	}
}

// A store that is slow delays neither the end of sessions nor new ones.
func TestEvents_SlowStoreDelaysNoSession(t *testing.T) {
	forEach(t, sessionRevisions, func(t *testing.T, revision string) {
		store := &slowStore{EventStore: mcphttp.NewMemoryEvents(), takes: time.Hour}
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Events: store, Max: 2}})
		begin := time.Now()
		for range 100 { // each but the first one ends the one before, since there is room for one
			f.initialize(revision)
		}
		s := f.initialize(revision)
		if got := s.do(http.MethodDelete, "", s.headers...); got.status != 204 {
			t.Errorf("DELETE: got %d %s, want 204", got.status, got.body)
		}
		if took := time.Since(begin); took != 0 {
			t.Errorf("the sessions took %v, want no wait for the store", took)
		}
		time.Sleep(5 * time.Second) // so that no deletion in progress ends when Shutdown gives up
		if err := f.handler.Shutdown(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown: got %v, want DeadlineExceeded", err)
		}
		if took := time.Since(begin) - 5*time.Second; took != 10*time.Second {
			t.Errorf("Shutdown took %v, want 10s", took)
		}
		synctest.Wait()
		if store.most > 16 || store.running > 0 || store.ended != 32 {
			t.Errorf("EndSession was called %d times, at most %d at once, %d are running; want 32, 16 and 0",
				store.ended, store.most, store.running)
		}
	})
}

// Shutdown waits until the events of all sessions are deleted.
func TestEvents_ShutdownDeletesThoseOfAllSessions(t *testing.T) {
	forEach(t, sessionRevisions, func(t *testing.T, revision string) {
		store := &slowStore{EventStore: mcphttp.NewMemoryEvents(), takes: time.Second}
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Events: store}})
		for range 60 {
			f.initialize(revision)
		}
		begin := time.Now()
		if err := f.handler.Shutdown(t.Context()); err != nil || time.Since(begin) != 4*time.Second {
			t.Errorf("Shutdown returned %v after %v, want no error after 4s", err, time.Since(begin))
		}
		if store.ended != 60 {
			t.Errorf("the events of %d sessions were deleted, want 60", store.ended)
		}
	})
}

// A failingStore is an EventStore that stores nothing.
type failingStore struct{ mcphttp.EventStore }

func (failingStore) Append(context.Context, mcphttp.StreamKey, int64, []byte) error {
	return errors.New("disk is full")
}

func (failingStore) EndSession(context.Context, string, string) error {
	return errors.New("disk is full")
}

// A client cannot fill a disk with the log lines of a store that refuses its events.
func TestEvents_LogLinesOfFailuresAreLimited(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, revision string) {
		var text syncBuffer
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Events: failingStore{}},
			Logger: slog.New(slog.NewTextHandler(&text, nil))})
		s := f.initialize(revision)
		for id := range 100 {
			s.send(callBody(id, "notify")) // at least three events
			other := f.initialize(revision)
			other.do(http.MethodDelete, "", other.headers...)
		}
		time.Sleep(2 * time.Minute) // the number of the others is logged after one
		lines := strings.Split(strings.TrimSpace(text.String()), "\n")
		if len(lines) != 11 || !strings.Contains(lines[0], "disk is full") || !strings.Contains(lines[10], "more") {
			t.Errorf("got %d lines, want 10 and the number of the others:\n%s", len(lines), text.String())
		}
	})
}

// A slowAppends is an EventStore whose Append takes a minute after slow was set.
type slowAppends struct {
	mcphttp.EventStore
	slow atomic.Bool
}

func (s *slowAppends) Append(ctx context.Context, stream mcphttp.StreamKey, n int64, data []byte) error {
	if s.slow.Load() {
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return s.EventStore.Append(ctx, stream, n, data)
}

// Shutdown stores the messages for clients that are not connected, and does not wait for a slow store
// beyond its deadline.
func TestEvents_SlowStoreDoesNotDelayShutdown(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		server, change := newChangingServer()
		store := &slowAppends{EventStore: mcphttp.NewMemoryEvents()}
		f := startReplicas(t, server, &mcphttp.Options{Sessions: mcphttp.SessionOptions{Events: store}})
		f.at(0)
		for range 3 {
			ctx, disconnect := context.WithCancel(t.Context())
			events := f.stream(f.initialize(version).get(ctx))
			events.skipFirstEvent(version)
			synctest.Wait()
			disconnect()
			synctest.Wait()
		}
		change()
		<-time.After(time.Second) // changes are announced together
		store.slow.Store(true)
		begin := time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if err := f.handlers[0].Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) && err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took != 5*time.Second {
			t.Errorf("Shutdown took %v, want 5s", took)
		}
		store.slow.Store(false)
	})
}
