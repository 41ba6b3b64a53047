package mcphttp_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// The last GET stream of a session replaces the stream at another process.
func TestListener_LastStreamWins(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		server, change := newChangingServer()
		f := startReplicas(t, server, nil)
		f.at(0)
		s, other := f.initialize(version), f.initialize(version)
		others := f.stream(other.get(t.Context()))
		others.skipFirstEvent(version)
		var before *stream
		for n := range 2 * len(f.handlers) {
			f.at(n % len(f.handlers))
			events := f.stream(s.get(t.Context()))
			events.skipFirstEvent(version)
			synctest.Wait()
			if got := server.Stats().Subscriptions; got != 2 {
				t.Fatalf("got %d subscriptions of two sessions, want 2", got)
			}
			if before != nil {
				before.expectEnd()
			}
			if got := f.do(http.MethodGet, "", s.headers...); got.status != 409 {
				t.Errorf("second GET at the same process: got %d %s, want 409", got.status, got.body)
			}
			change()
			for _, each := range []*stream{events, others} {
				if e := each.next(); !isChange(e.Data) {
					t.Errorf("got %s, want the change", e.Data)
				}
			}
			before = events
		}
		f.do(http.MethodDelete, "", s.headers...)
		before.expectEnd()
	})
}

// A stream whose client disconnected is replaced too, and a client may resume it anywhere.
func TestListener_ReplacesBrokenStream(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		server, change := newChangingServer()
		f := startReplicas(t, server, nil)
		f.at(0)
		s := f.initialize(version)
		lastEvent := "Accept: text/event-stream"
		for n := range 2 * len(f.handlers) {
			f.at(n % len(f.handlers))
			ctx, disconnect := context.WithCancel(t.Context())
			events := f.stream(s.get(ctx, lastEvent))
			events.skipFirstEvent(version)
			synctest.Wait()
			if got := server.Stats().Subscriptions; got != 1 {
				t.Errorf("got %d subscriptions, want that of the last stream", got)
			}
			change()
			e := events.next()
			if !isChange(e.Data) {
				t.Errorf("got %s, want the change", e.Data)
			}
			lastEvent = "Last-Event-ID: " + e.ID
			disconnect()
			synctest.Wait()
		}
	})
}

// A subscription at another process applies to the listener, and only to its session.
func TestListener_SubscriptionAtAnotherProcess(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		server, change := newChangingServer()
		mcp.AddResource(server, &mcp.Resource{URI: "test://a", Name: "a"},
			func(context.Context, string) (string, error) { return "", nil })
		f := startReplicas(t, server, nil)
		f.at(0)
		s, other := f.initialize(version), f.initialize(version)
		events, others := f.stream(s.get(t.Context())), f.stream(other.get(t.Context()))
		events.skipFirstEvent(version)
		others.skipFirstEvent(version)
		call := func(process int, method string) {
			t.Helper()
			f.at(process)
			got := s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":%q,"params":{"uri":"test://a"}}`, method))
			if got.status != 200 || got.code() != 0 {
				t.Errorf("%s: got %d %s", method, got.status, got.body)
			}
			synctest.Wait()
		}
		call(1, "resources/subscribe")
		server.ResourceUpdated("test://a")
		if e := events.next(); !strings.Contains(string(e.Data), "test://a") {
			t.Errorf("got %s, want the update", e.Data)
		}
		call(2, "resources/unsubscribe")
		server.ResourceUpdated("test://a")
		change()
		for _, each := range []*stream{events, others} {
			if e := each.next(); !isChange(e.Data) {
				t.Errorf("got %s, want only the change of the list", e.Data)
			}
		}
	})
}

// The listener has subscribed before the client receives the response, although it learns of changed
// records late: the client misses no update.
func TestListener_SubscribesBeforeTheResponse(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		server, change := newChangingServer()
		mcp.AddResource(server, &mcp.Resource{URI: "test://a", Name: "a"},
			func(context.Context, string) (string, error) { return "", nil })
		f := startReplicas(t, server, nil)
		f.at(0)
		s := f.initialize(version)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		events := f.stream(s.get(ctx))
		events.skipFirstEvent(version)
		f.store.late.Store(1)
		f.at(2)
		for _, method := range []string{"subscribe", "unsubscribe"} {
			s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/%s","params":{"uri":"test://a"}}`, method))
			server.ResourceUpdated("test://a")
		}
		change()
		if e := events.next(); !strings.Contains(string(e.Data), "test://a") {
			t.Errorf("got %s, want the update", e.Data)
		}
		if e := events.next(); !isChange(e.Data) {
			t.Errorf("got %s, want only the change of the list", e.Data)
		}
	})
}

// A stream opens also while the store fails. Then the stream before stays open.
func TestListener_StoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, change := newChangingServer()
		f := startReplicas(t, server, nil)
		f.at(0)
		s := f.initialize(june2025)
		before := f.stream(s.get(t.Context()))
		f.at(1)
		s.send(callBody(1, "tool1"))
		f.store.fails.Store(true)
		events := f.stream(s.get(t.Context()))
		f.store.fails.Store(false)
		synctest.Wait()
		change()
		for _, each := range []*stream{before, events} {
			if e := each.next(); !isChange(e.Data) {
				t.Errorf("got %s, want the change", e.Data)
			}
		}
		f.at(2)
		last := f.stream(s.get(t.Context()))
		synctest.Wait()
		if got := server.Stats().Subscriptions; got != 1 {
			t.Fatalf("got %d subscriptions, want that of the last stream", got)
		}
		before.expectEnd()
		events.expectEnd()
		change()
		if e := last.next(); !isChange(e.Data) {
			t.Errorf("got %s, want the change", e.Data)
		}
	})
}

// A contextStore is an EventStore that fails when its context ended.
type contextStore struct{ mcphttp.EventStore }

func (s contextStore) Append(ctx context.Context, key mcphttp.StreamKey, n int64, data []byte) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return s.EventStore.Append(ctx, key, n, data)
}

// A client that leaves while its stream opens is no failure of the store of events.
func TestListener_ClientThatLeftIsNoFailureOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var text strings.Builder
		f := start(t, newTestCore(), &mcphttp.Options{Logger: slog.New(slog.NewTextHandler(&text, nil)),
			Sessions: mcphttp.SessionOptions{Events: contextStore{mcphttp.NewMemoryEvents()}}})
		s := f.initialize(november2025)
		ctx, leave := context.WithCancel(t.Context())
		leave()
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://"+f.host+"/mcp", nil)
		r.Header.Set("Accept", "text/event-stream")
		r.Header.Set("Mcp-Session-Id", s.id)
		w := httptest.NewRecorder()
		f.handler.ServeHTTP(w, r)
		if w.Code != http.StatusOK || text.Len() > 0 {
			t.Errorf("got %d %s, log %q, want 200 and no log", w.Code, w.Body, text.String())
		}
	})
}
