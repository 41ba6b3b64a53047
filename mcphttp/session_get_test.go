package mcphttp_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// newChangingServer returns a server whose list of tools changes each time the function is called.
func newChangingServer() (s *mcp.Server, change func()) {
	s = mcp.NewServer("test", "1", &mcp.ServerOptions{Logger: discardLogger})
	n := 0
	change = func() {
		n++
		mcp.AddTool(s, &mcp.Tool{Name: fmt.Sprintf("tool%d", n)}, func(context.Context, struct{}) (string,
			error) {
			return "", nil
		})
	}
	change()
	return s, change
}

const changed = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

func isChange(data []byte) bool {
	return strings.HasPrefix(string(data), strings.TrimSuffix(changed, "}"))
}

func TestLHTTP11_StandaloneStream(t *testing.T) {
	for _, version := range streamableRevisions {
		t.Run(version, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, change := newChangingServer()
				f := start(t, server, nil)
				s := f.initialize(version)
				events := f.stream(s.get(t.Context(), "Accept: text/event-stream"))
				if version == november2025 {
					if e := events.next(); len(e.Data) != 0 || !e.HasID {
						t.Errorf("LHTTP03: got %q first, want an empty event with an id", e.Data)
					}
				}
				synctest.Wait()
				change()
				if e := events.next(); !isChange(e.Data) || !e.HasID {
					t.Errorf("got %s, want the change", e.Data)
				}
				if got := f.do(http.MethodGet, "", s.headers...); got.status != 409 {
					t.Errorf("a second GET got %d %s, want 409", got.status, got.body)
				}
				f.do(http.MethodDelete, "", s.headers...)
				events.expectEnd()
			})
		})
	}
}

func TestLHTTP12_GetNeedsTheRightAccept(t *testing.T) {
	f := start(t, newTestCore(), nil)
	s := f.initialize(november2025)
	if got := f.do(http.MethodGet, "", append(s.headers, "Accept: application/json")...); got.status != 406 {
		t.Errorf("got %d, want 406", got.status)
	}
}

// Changes while the stream of a client is broken are replayed when it resumes, even if the server
// has not noticed the loss of the connection.
func TestLHTTP20_StandaloneStreamResumes(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		t.Run(fmt.Sprint("loss noticed: ", noticed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, change := newChangingServer()
				f := start(t, server, nil)
				s := f.initialize(november2025)
				ctx, cut := context.WithCancel(t.Context())
				defer cut()
				before := f.stream(s.get(ctx))
				primer := before.next()
				synctest.Wait()
				change()
				seen := before.next()
				if noticed {
					cut()
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
					t.Errorf("a GET that resumes nothing got %d, want 409", got.status)
				}
				again := f.stream(s.get(t.Context(), "Last-Event-ID: "+primer.ID))
				for range 2 {
					if e := again.next(); !isChange(e.Data) {
						t.Errorf("got %s, want a change", e.Data)
					}
				}
				after.expectEnd()
			})
		})
	}
}

// lostEvents is a store that has discarded everything.
type emptyStore struct{}

func (emptyStore) Append(context.Context, mcphttp.StreamKey, int64, []byte) error { return nil }
func (emptyStore) EndSession(context.Context, string, string) error               { return nil }

func (emptyStore) After(context.Context, mcphttp.StreamKey, int64) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) { yield(nil, mcphttp.ErrEventGap) }
}

// A quiet stream resumes after its last event, even if other streams have pushed its events out of
// the store.
func TestLHTTP20_ResumeAfterTheLastEventNeedsNoStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, change := newChangingServer()
		f := start(t, server, &mcphttp.Options{Sessions: mcphttp.SessionOptions{Events: emptyStore{}}})
		s := f.initialize(november2025)
		ctx, cut := context.WithCancel(t.Context())
		defer cut()
		primer := f.stream(s.get(ctx)).next()
		cut()
		synctest.Wait()
		again := f.stream(s.get(t.Context(), "Last-Event-ID: "+primer.ID))
		if again.resp.StatusCode != http.StatusOK {
			t.Fatalf("resumed after the last event: got %d, want 200", again.resp.StatusCode)
		}
		change()
		if e := again.next(); !isChange(e.Data) {
			t.Errorf("got %s, want a change", e.Data)
		}
		if got := f.do(http.MethodGet, "", append(s.headers, "Last-Event-ID: "+primer.ID)...); got.status != 404 {
			t.Errorf("resumed before an event that is lost: got %d, want 404", got.status)
		}
	})
}

// A client that does not read its stream loses the stream and gets a 404 when it resumes. Nothing
// waits for it.
func TestR736_UnreadStandaloneStreamGivesAGap(t *testing.T) {
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
		if _, err := bufio.NewReaderSize(conn, 16).ReadString(':'); err != nil { // and no more than that
			t.Fatal(err)
		}
		go conn.Read(make([]byte, 1000)) // the rest of the headers, and the first event
		synctest.Wait()
		message := fmt.Appendf(nil, `{"uri":"%01000d"}`, 1)
		sent := 0
		for ; core.notify(t.Context(), "notifications/resources/updated", message) == nil; sent++ {
			if sent > 2000 {
				t.Fatal("2 MB wait for a client that does not read")
			}
		}
		if sent < 900 {
			t.Errorf("%d KB were taken, want about 1 MB", sent)
		}
		synctest.Wait()
		if got := f.stream(s.get(t.Context())); got.resp.StatusCode != 200 {
			t.Errorf("a new stream got %d", got.resp.StatusCode)
		}
	})
}

// A floodingCore passes the subscription of its one session to the test.
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

func TestEventStore_IsAskedWithItsOwner(t *testing.T) {
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
			t.Errorf("got the key %+v", key)
		}
	}
	f.do(http.MethodDelete, "", s.headers...)
	if len(store.keys) != 4 || len(store.ended) != 1 || store.ended[0] != s.id {
		t.Errorf("got %d events, sessions that ended: %q", len(store.keys), store.ended)
	}
}

// Messages of a call after the end of its session are not stored.
func TestEventStore_IsNotUsedAfterTheSession(t *testing.T) {
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
			t.Errorf("the cause is %v, want ErrClosed", cause)
		}
		if e := events.next(); !strings.Contains(string(e.Data), `"error"`) || e.HasID {
			t.Errorf("got %s with id %t, want the error without one", e.Data, e.HasID)
		}
		events.expectEnd()
		if len(store.keys) != 2 {
			t.Errorf("%d events were kept, want the 2 before the end", len(store.keys))
		}
	})
}

type recordingStore struct {
	mcphttp.EventStore
	keys  []mcphttp.StreamKey
	ended []string
}

func (r *recordingStore) Append(ctx context.Context, key mcphttp.StreamKey, n int64, data []byte) error {
	r.keys = append(r.keys, key)
	return r.EventStore.Append(ctx, key, n, data)
}

func (r *recordingStore) EndSession(ctx context.Context, session, principal string) error {
	r.ended = append(r.ended, session)
	return r.EventStore.EndSession(ctx, session, principal)
}

// A handler that can only wait for the end of a subscription is waited for until it has begun.
func TestSubscriptionOfAHandlerThatIsNoListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		causes := make(chan error, 10)
		f := start(t, mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
			switch {
			case req.Method == "server/discover":
				return mcp.RawResult(`{"supportedVersions":["2026-07-28"],"capabilities":{"resources":{"subscribe":true}}}`), nil
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
			return s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/%s","params":{"uri":%q}}`, method,
				uri))
		}
		if got := subscribe("subscribe", "x:y"); got.code() != 0 {
			t.Errorf("got %d %s", got.status, got.body)
		}
		if got := subscribe("subscribe", "x:refused"); got.code() != mcp.CodeInvalidParams ||
			!strings.Contains(got.body, "no such resource") {
			t.Errorf("a refused subscription: got %d %s", got.status, got.body)
		}
		if got := subscribe("subscribe", "x:ended"); got.code() != mcp.CodeInternalError {
			t.Errorf("a subscription that ends at once: got %d %s", got.status, got.body)
		}
		if len(causes) != 0 {
			t.Errorf("the subscription before ended with the refused ones: %v", <-causes)
		}
		subscribe("unsubscribe", "x:y")
		if cause := <-causes; !errors.Is(cause, mcp.ErrClosed) {
			t.Errorf("the cause is %v, want ErrClosed", cause)
		}
		subscribe("subscribe", "x:y")
		if err := f.handler.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		if cause := <-causes; !errors.Is(cause, mcp.ErrShutdown) {
			t.Errorf("the cause is %v, want ErrShutdown", cause)
		}
	})
}
