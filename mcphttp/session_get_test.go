package mcphttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// newChangingServer returns a server and a function that changes its list of tools.
func newChangingServer() (s *mcp.Server, change func()) {
	s = mcp.NewServer("test", "1", &mcp.ServerOptions{Logger: discardLogger})
	n := 0
	change = func() {
		n++
		mcp.AddTool(s, &mcp.Tool{Name: fmt.Sprintf("tool%d", n)},
			func(context.Context, struct{}) (string, error) { return "", nil })
	}
	change()
	return s, change
}

const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

func isChange(data []byte) bool {
	return strings.HasPrefix(string(data), strings.TrimSuffix(changed, "}"))
}

// Requirement: LHTTP-11, LHTTP-12, LHTTP-36
func TestStandaloneStream(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		server, change := newChangingServer()
		f := start(t, server, nil)
		s := f.initialize(version)
		events := f.stream(s.get(t.Context(), "Accept: text/event-stream"))
		events.skipFirstEvent(version)
		synctest.Wait()
		change()
		if e := events.next(); !isChange(e.Data) || !e.HasID {
			t.Errorf("got %s with id %t, want the change with an id", e.Data, e.HasID)
		}
		if got := f.do(http.MethodGet, "", s.headers...); got.status != 409 {
			t.Errorf("second GET: got %d %s, want 409", got.status, got.body)
		}
		f.do(http.MethodDelete, "", s.headers...)
		events.expectEnd()
	})
}

// Requirement: LHTTP-11
func TestGETRequiresAcceptOfEventStreams(t *testing.T) {
	f := start(t, newTestCore(), nil)
	for _, version := range streamableRevisions {
		s := f.initialize(version)
		if got := f.do(http.MethodGet, "", append(s.headers, "Accept: application/json")...); got.status != 406 {
			t.Errorf("%s: got %d, want 406", version, got.status)
		}
	}
}

// Changes while the stream is broken are replayed when the client resumes, even if the server has
// not noticed that the connection is broken.
//
// Requirement: LHTTP-10, LHTTP-20, LHTTP-21
func TestStandaloneStreamResumes(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		forEach(t, streamableRevisions, func(t *testing.T, version string) {
			server, change := newChangingServer()
			f := start(t, server, nil)
			s := f.initialize(version)
			ctx, disconnect := context.WithCancel(t.Context())
			defer disconnect()
			before := f.stream(s.get(ctx))
			synctest.Wait()
			change()
			first := before.next()
			seen := first
			if version == november2025 {
				seen = before.next()
			}
			if noticed {
				disconnect()
				synctest.Wait()
				change()
				synctest.Wait()
			}
			after := f.stream(s.get(t.Context(), "Last-Event-ID: "+seen.ID))
			if !noticed {
				before.expectEnd()
				change()
			}
			if e := after.next(); !isChange(e.Data) || e.ID == seen.ID {
				t.Errorf("got %s %s, want another change than %s", e.ID, e.Data, seen.ID)
			}
			if got := f.do(http.MethodGet, "", s.headers...); got.status != 409 {
				t.Errorf("GET that resumes nothing: got %d, want 409", got.status)
			}
			again := f.stream(s.get(t.Context(), "Last-Event-ID: "+first.ID))
			if version == november2025 {
				if e := again.next(); e.ID != seen.ID {
					t.Errorf("got %s %s, want the first change again: %s", e.ID, e.Data, seen.ID)
				}
			}
			if e := again.next(); !isChange(e.Data) {
				t.Errorf("got %s, want a change", e.Data)
			}
			after.expectEnd()
		})
	}
}

// An emptyStore has discarded every event.
type emptyStore struct{}

func (emptyStore) Append(context.Context, mcphttp.StreamKey, int64, []byte) error { return nil }
func (emptyStore) EndSession(context.Context, string, string) error               { return nil }

func (emptyStore) After(context.Context, mcphttp.StreamKey, int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) { yield(nil, mcphttp.ErrEventGap) }
}

// A stream without new events resumes, even if the store has discarded its events.
//
// Requirement: LHTTP-20
func TestResumingAfterTheLastEventNeedsNoStoredEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, change := newChangingServer()
		f := start(t, server, &mcphttp.Options{Sessions: mcphttp.SessionOptions{Events: emptyStore{}}})
		s := f.initialize(november2025)
		ctx, disconnect := context.WithCancel(t.Context())
		defer disconnect()
		first := f.stream(s.get(ctx)).next()
		disconnect()
		synctest.Wait()
		again := f.stream(s.get(t.Context(), "Last-Event-ID: "+first.ID))
		if again.resp.StatusCode != http.StatusOK {
			t.Fatalf("resuming after the last event: got %d, want 200", again.resp.StatusCode)
		}
		change()
		if e := again.next(); !isChange(e.Data) {
			t.Errorf("got %s, want a change", e.Data)
		}
		if got := f.do(http.MethodGet, "", append(s.headers, "Last-Event-ID: "+first.ID)...); got.status != 404 {
			t.Errorf("resuming before a discarded event: got %d, want 404", got.status)
		}
	})
}

// A client that does not read its standalone stream does not block the sender. The stream ends.
func TestStandaloneStream_UnreadMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := &subscriptionCore{testCore: newTestCore()}
		f := start(t, core, nil)
		s := f.initialize(november2025)
		conn, err := f.listener.dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		go s.get(t.Context()).Write(conn)
		if _, err := bufio.NewReaderSize(conn, 16).ReadString(':'); err != nil { // and nothing else
			t.Fatal(err)
		}
		go conn.Read(make([]byte, 1000)) // the rest of the headers, and the first event
		synctest.Wait()
		message := fmt.Appendf(nil, `{"uri":"%01000d"}`, 1)
		sent := 0
		for ; core.notify(t.Context(), "notifications/resources/updated", message) == nil; sent++ {
			if sent > 2000 {
				t.Fatal("2 MB are queued for a client that does not read")
			}
		}
		if sent < 900 {
			t.Errorf("%d KB were accepted, want about 1 MB", sent)
		}
		synctest.Wait()
		if got := f.stream(s.get(t.Context())); got.resp.StatusCode != 200 {
			t.Errorf("new stream: got %d, want 200", got.resp.StatusCode)
		}
	})
}

// A subscriptionCore gives the test the function that notifies the subscription of its session.
type subscriptionCore struct {
	*testCore
	notify func(context.Context, string, []byte) error
}

func (c *subscriptionCore) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if req.Method == "server/discover" {
		return mcp.RawResult(`{"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true}}}`), nil
	}
	return c.testCore.ServeMCP(ctx, req)
}

func (c *subscriptionCore) Listen(_ context.Context, req *mcp.Request) (stop func(), err error) {
	notify := req.Notify
	c.notify = func(ctx context.Context, method string, params []byte) error { return notify(ctx, method, params) }
	return func() {}, nil
}

func TestEventStore_ReceivesSessionPrincipalAndStream(t *testing.T) {
	store := &recordingStore{EventStore: mcphttp.NewMemoryEvents()}
	f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Events: store}})
	s := f.initialize(november2025, "Authorization: ann")
	events := f.stream(s.post(t.Context(), callBody(1, "notify")))
	for range 4 {
		events.next()
	}
	events.expectEnd()
	for _, key := range store.keys {
		if key.Session != s.id || key.Principal == "" || strings.Contains(key.Principal, "ann") || key.Stream == "" {
			t.Errorf("got key %+v, want session %s, a hashed principal and a stream", key, s.id)
		}
	}
	f.do(http.MethodDelete, "", s.headers...)
	if err := f.handler.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if len(store.keys) != 4 || len(store.ended) != 1 || store.ended[0] != s.id {
		t.Errorf("got %d events and ended sessions %q, want 4 and %s", len(store.keys), store.ended, s.id)
	}
}

// Messages of a call after the end of its session are not stored.
func TestEventStore_IsNotUsedAfterTheEndOfTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		store := &recordingStore{EventStore: mcphttp.NewMemoryEvents()}
		f := start(t, core, &mcphttp.Options{Sessions: mcphttp.SessionOptions{Events: store}})
		s := f.initialize(november2025)
		events := f.stream(s.post(t.Context(), callBody(1, "notifywait")))
		events.next()
		events.next()
		<-core.started
		f.do(http.MethodDelete, "", s.headers...)
		if cause := <-core.causes; !errors.Is(cause, mcp.ErrClosed) {
			t.Errorf("cause of the call's end: got %v, want ErrClosed", cause)
		}
		if e := events.next(); !strings.Contains(string(e.Data), `"error"`) || e.HasID {
			t.Errorf("got %s with id %t, want the error without an id", e.Data, e.HasID)
		}
		events.expectEnd()
		if len(store.keys) != 2 {
			t.Errorf("%d events were stored, want the 2 before the end", len(store.keys))
		}
	})
}

type recordingStore struct {
	mcphttp.EventStore
	mu    sync.Mutex // guards the fields below
	keys  []mcphttp.StreamKey
	ended []string
}

func (r *recordingStore) Append(ctx context.Context, key mcphttp.StreamKey, n int64, data []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys = append(r.keys, key)
	return r.EventStore.Append(ctx, key, n, data)
}

func (r *recordingStore) EndSession(ctx context.Context, session, principal string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ended = append(r.ended, session)
	return r.EventStore.EndSession(ctx, session, principal)
}

// The request for a subscription returns when the handler has acknowledged the subscription.
func TestSubscription_OfAHandlerWithoutListen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 10)
		f := start(t, mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			switch {
			case req.Method == "server/discover":
				return mcp.RawResult(`{"supportedVersions":["2026-07-28"],` +
					`"capabilities":{"resources":{"subscribe":true}}}`), nil
			case strings.Contains(string(req.Params), "x:refused"):
				return nil, mcp.Errorf(mcp.CodeInvalidParams, "no such resource")
			case strings.Contains(string(req.Params), "x:ended"):
				return mcp.RawResult(`{}`), nil
			}
			if err := req.Notify(ctx, "notifications/subscriptions/acknowledged", []byte(`{}`)); err != nil {
				return nil, err
			}
			<-ctx.Done()
			causes <- context.Cause(ctx)
			return nil, ctx.Err()
		}), nil)
		s := f.initialize(november2025)
		f.stream(s.get(t.Context())).next()
		subscribe := func(method, uri string) response {
			return s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/%s","params":{"uri":%q}}`,
				method, uri))
		}
		if got := subscribe("subscribe", "x:y"); got.code() != 0 {
			t.Errorf("subscribe: got %d %s, want no error", got.status, got.body)
		}
		if got := subscribe("subscribe", "x:refused"); got.code() != mcp.CodeInvalidParams ||
			!strings.Contains(got.body, "no such resource") {
			t.Errorf("refused subscription: got %d %s, want the error", got.status, got.body)
		}
		if got := subscribe("subscribe", "x:ended"); got.code() != mcp.CodeInternalError {
			t.Errorf("subscription that ends at once: got %d %s, want an internal error", got.status, got.body)
		}
		if len(causes) != 0 {
			t.Errorf("the first subscription ended when another was refused: %v", <-causes)
		}
		subscribe("unsubscribe", "x:y")
		if cause := <-causes; !errors.Is(cause, mcp.ErrClosed) {
			t.Errorf("cause of the call's end: got %v, want ErrClosed", cause)
		}
		subscribe("subscribe", "x:y")
		if err := f.handler.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if cause := <-causes; !errors.Is(cause, mcp.ErrShutdown) {
			t.Errorf("cause of the subscription's end: got %v, want ErrShutdown", cause)
		}
	})
}

// An endingStore ends the session of an event before it stores the event.
type endingStore struct {
	mcphttp.EventStore
	end    func()
	mu     sync.Mutex // guards the field below
	events map[mcphttp.StreamKey]int
}

func (s *endingStore) Append(_ context.Context, key mcphttp.StreamKey, _ int64, data []byte) error {
	if strings.Contains(string(data), "notifications/message") {
		s.end()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events[key]++
	return nil
}

func (s *endingStore) EndSession(_ context.Context, session, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.events, func(key mcphttp.StreamKey, _ int) bool { return key.Session == session })
	return nil
}

// An event that is stored while its session ends is deleted with it.
func TestEvents_OfASessionThatEndsMeanwhileAreDeleted(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, revision string) {
		store := &endingStore{events: map[mcphttp.StreamKey]int{}}
		f := start(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Events: store}})
		s := f.initialize(revision)
		store.end = func() {
			w := httptest.NewRecorder()
			f.handler.ServeHTTP(w, f.request(t.Context(), http.MethodDelete, "", s.headers...))
		}
		resp := f.open(s.post(t.Context(), callBody(1, "notify")))
		io.Copy(io.Discard, resp.Body)
		synctest.Wait()
		if len(store.events) != 0 {
			t.Errorf("after the session: got events of %d streams, want none", len(store.events))
		}
	})
}
