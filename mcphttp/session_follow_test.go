package mcphttp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// Events in memory that several handlers share, and that fail.
type sharedEvents struct {
	mcphttp.EventStore
	appendFails, readFails atomic.Bool
	appendWaits            atomic.Bool   // the next Append receives a value of proceed
	proceed                chan struct{} // not nil when appendWaits is set
}

func (s *sharedEvents) Append(ctx context.Context, key mcphttp.StreamKey, n int64, data []byte) error {
	if s.appendFails.Load() {
		return errStoreFails
	}
	if s.appendWaits.CompareAndSwap(true, false) {
		<-s.proceed
	}
	return s.EventStore.Append(ctx, key, n, data)
}

func (s *sharedEvents) After(ctx context.Context, key mcphttp.StreamKey, n int64) iter.Seq2[[]byte, error] {
	if s.readFails.Load() {
		return func(yield func([]byte, error) bool) { yield(nil, errStoreFails) }
	}
	return s.EventStore.After(ctx, key, n)
}

// startResuming serves core at three processes that share sessions and events.
func startResuming(t *testing.T, core mcp.Handler) (*replicas, *sharedEvents) {
	t.Helper()
	events := &sharedEvents{EventStore: mcphttp.NewMemoryEvents()}
	return startReplicas(t, core, &mcphttp.Options{Sessions: mcphttp.SessionOptions{Events: events}}), events
}

// breakCount calls the tool "count" and disconnects after its first notification. It returns the header with which
// the client resumes after the notification.
func (r *replicas) breakCount(s *testSession, version string) (lastEvent string) {
	r.t.Helper()
	ctx, disconnect := context.WithCancel(r.t.Context())
	defer disconnect()
	events := r.stream(s.post(ctx, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count",`+
		`"_meta":{"progressToken":1}}}`))
	events.skipFirstEvent(version)
	return "Last-Event-ID: " + events.next().ID
}

// breakCall calls the tool "notifywait" at the first process and disconnects. It returns the header with which the
// client resumes after the notification. The next requests go to the second process.
func (r *replicas) breakCall(core *testCore, s *testSession, version, body string) (lastEvent string) {
	r.t.Helper()
	r.at(0)
	ctx, disconnect := context.WithCancel(r.t.Context())
	events := r.stream(s.post(ctx, body))
	events.skipFirstEvent(version)
	e := events.next()
	<-core.started
	disconnect()
	synctest.Wait()
	r.at(1)
	return "Last-Event-ID: " + e.ID
}

// A client resumes a running call at another process, as often as its connection breaks.
func TestFollow_RunningCall(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		f, _ := startResuming(t, core)
		s := f.initialize(version)
		lastEvent := f.breakCall(core, s, version, callBody(4, "notifywait"))
		for process := range f.handlers {
			f.at(process)
			ctx, disconnect := context.WithCancel(t.Context())
			f.stream(s.get(ctx, lastEvent))
			<-time.After(20 * time.Second)
			disconnect()
			synctest.Wait()
		}
		f.at(2)
		events := f.stream(s.get(t.Context(), lastEvent))
		synctest.Wait()
		begin := time.Now()
		core.proceed <- struct{}{}
		result := events.next()
		if !strings.Contains(string(result.Data), `"id":4`) || !strings.Contains(string(result.Data), "done") {
			t.Errorf("got %s, want the result", result.Data)
		}
		if waited := time.Since(begin); waited > 0 {
			t.Errorf("the result came after %v, want at once", waited)
		}
		events.expectEnd()
		for process := range f.handlers { // the call is over
			f.at(process)
			again := f.stream(s.get(t.Context(), lastEvent))
			if e := again.next(); e.ID != result.ID || string(e.Data) != string(result.Data) {
				t.Errorf("process %d: got %s %s, want the result again", process, e.ID, e.Data)
			}
			again.expectEnd()
			f.stream(s.get(t.Context(), "Last-Event-ID: "+result.ID)).expectEnd()
		}
	})
}

// Events that follow each other quickly all arrive, in order and once.
func TestFollow_ManyEvents(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		const count = 500
		begun, proceed := make(chan struct{}), make(chan struct{})
		server := mcp.NewServer("test", "1", nil)
		mcp.AddTool(server, &mcp.Tool{Name: "count"}, func(ctx context.Context, _ struct{}) (string, error) {
			for n := range count {
				mcp.Progress(ctx, float64(n+1), count, "")
				if n == 0 {
					close(begun)
					<-proceed
				}
			}
			return "counted", nil
		})
		f, _ := startResuming(t, server)
		f.at(0)
		s := f.initialize(version)
		lastEvent := f.breakCount(s, version)
		<-begun
		f.at(1)
		events := f.stream(s.get(t.Context(), lastEvent))
		synctest.Wait()
		close(proceed)
		last, got := 1, events.next()
		for ; strings.Contains(string(got.Data), "notifications/progress"); got = events.next() {
			var m struct{ Params struct{ Progress int } }
			if err := json.Unmarshal(got.Data, &m); err != nil || m.Params.Progress <= last {
				t.Fatalf("got %s after %d: %v", got.Data, last, err)
			}
			last = m.Params.Progress
		}
		if !strings.Contains(string(got.Data), "counted") || last != count {
			t.Errorf("got %s after progress %d, want the result after %d", got.Data, last, count)
		}
		events.expectEnd()
	})
}

// If the process that ran the call is gone, the client gets an error for its request, at any process.
func TestFollow_ProcessIsGone(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		f, _ := startResuming(t, core)
		s := f.initialize(version)
		body := strings.Replace(callBody(4, "notifywait"), `"id":4`, `"id":"a \"b\" ü"`, 1)
		lastEvent := f.breakCall(core, s, version, body)
		f.store.drops.Store(true)
		for range 2 {
			begin := time.Now()
			events := f.stream(s.get(t.Context(), lastEvent))
			var got struct {
				ID    string
				Error struct {
					Code    int
					Message string
					Data    json.RawMessage
				}
			}
			e := events.next()
			if err := json.Unmarshal(e.Data, &got); err != nil || got.ID != `a "b" ü` || got.Error.Code != -32603 ||
				!strings.Contains(got.Error.Message, "may have run") ||
				string(got.Error.Data) != `{"mayHaveRun":true}` {
				t.Errorf("got %s, want an error for the request that may have run", e.Data)
			}
			if waited := time.Since(begin); waited < 15*time.Second || waited > 20*time.Second {
				t.Errorf("the error came after %v, want 15 to 20 seconds", waited)
			}
			events.expectEnd()
			f.at(2)
		}
		core.proceed <- struct{}{}
		synctest.Wait()
		events := f.stream(s.get(t.Context(), lastEvent)) // a process that was only slow
		if e := events.next(); !strings.Contains(string(e.Data), "done") {
			t.Errorf("got %s, want the result", e.Data)
		}
		events.expectEnd()
		f.store.drops.Store(false)
	})
}

// Each request of a batch gets an error. Ids that are too long for the name of a stream get none, but
// the stream ends.
func TestFollow_ProcessOfABatchIsGone(t *testing.T) {
	for name, id := range map[string]string{"short": `"b"`, "long": `"` + strings.Repeat("b", 254) + `"`} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				core := newTestCore()
				f, _ := startResuming(t, core)
				s := f.initialize(march2025)
				second := strings.Replace(callBody(8, "echo"), `"id":8`, `"id":`+id, 1)
				third := strings.Replace(second, `b"`, `c"`, 1)
				body := "[" + callBody(7, "notifywait") + "," + second + "," + third + "]"
				lastEvent := f.breakCall(core, s, march2025, body)
				f.store.drops.Store(true)
				events := f.stream(s.get(t.Context(), lastEvent))
				if name == "short" {
					var got []struct{ ID, Error json.RawMessage }
					e := events.next()
					if err := json.Unmarshal(e.Data, &got); err != nil || len(got) != 3 || string(got[0].ID) != "7" ||
						string(got[1].ID) != id || got[0].Error == nil || got[2].Error == nil {
						t.Errorf("got %s, want three errors", e.Data)
					}
				}
				events.expectEnd()
				f.store.drops.Store(false)
				core.proceed <- struct{}{}
			})
		})
	}
}

// While the store or the bus fails, streams end with the time after which to resume.
func TestFollow_StoreFails(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		f, stored := startResuming(t, core)
		s := f.initialize(version)
		lastEvent := f.breakCall(core, s, version, callBody(4, "notifywait"))
		for _, fails := range []*atomic.Bool{&f.store.busFails, &stored.readFails} {
			events := f.stream(s.get(t.Context(), lastEvent))
			synctest.Wait()
			fails.Store(true)
			if fails == &stored.readFails {
				core.proceed <- struct{}{}
			}
			events.expectEnd()
			if retry, ok := events.Retry(); !ok || retry != 2*time.Second {
				t.Errorf("got retry %v, want 2s", retry)
			}
			if fails == &stored.readFails {
				got := f.do(http.MethodGet, "", append(s.headers, lastEvent)...)
				if got.status != 503 || got.header.Get("Retry-After") == "" {
					t.Errorf("got %d %s, want 503 with Retry-After", got.status, got.body)
				}
			}
			fails.Store(false)
		}
		events := f.stream(s.get(t.Context(), lastEvent))
		if e := events.next(); !strings.Contains(string(e.Data), "done") {
			t.Errorf("got %s, want the result", e.Data)
		}
		events.expectEnd()
	})
}

// Messages between processes that get lost delay the response, but not for long.
func TestFollow_LostMessages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f, _ := startResuming(t, core)
		s := f.initialize(june2025)
		lastEvent := f.breakCall(core, s, june2025, callBody(4, "notifywait"))
		f.store.drops.Store(true)
		events := f.stream(s.get(t.Context(), lastEvent))
		<-time.After(9 * time.Second)
		f.store.drops.Store(false)
		<-time.After(20 * time.Second)
		f.store.drops.Store(true)
		core.proceed <- struct{}{}
		synctest.Wait()
		f.store.drops.Store(false)
		begin := time.Now()
		if e := events.next(); !strings.Contains(string(e.Data), "done") {
			t.Errorf("got %s, want the result", e.Data)
		}
		if waited := time.Since(begin); waited > 5*time.Second {
			t.Errorf("the result came after %v", waited)
		}
	})
}

// A response that the store refuses becomes an error at other processes.
func TestFollow_ResponseNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core := newTestCore()
		f, stored := startResuming(t, core)
		s := f.initialize(june2025)
		lastEvent := f.breakCall(core, s, june2025, callBody(4, "notifywait"))
		events := f.stream(s.get(t.Context(), lastEvent))
		synctest.Wait()
		stored.appendFails.Store(true)
		core.proceed <- struct{}{}
		for process := range f.handlers {
			if e := events.next(); !strings.Contains(string(e.Data), `"id":4,"error"`) ||
				!strings.Contains(string(e.Data), "may have run") {
				t.Errorf("got %s, want an error", e.Data)
			}
			events.expectEnd()
			f.at(process)
			events = f.stream(s.get(t.Context(), lastEvent))
		}
		stored.appendFails.Store(false)
	})
}

// The end of the session, at any process, and the shutdown of the process end a stream at once.
func TestFollow_SessionEnds(t *testing.T) {
	for _, version := range streamableRevisions {
		for _, shutdown := range []bool{false, true} {
			t.Run(fmt.Sprint(version, shutdown), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					core := newTestCore()
					f, _ := startResuming(t, core)
					s := f.initialize(version)
					lastEvent := f.breakCall(core, s, version, callBody(4, "notifywait"))
					events := f.stream(s.get(t.Context(), lastEvent))
					synctest.Wait()
					begin := time.Now()
					if shutdown {
						if err := f.handlers[1].Shutdown(t.Context()); err != nil {
							t.Error(err)
						}
						core.proceed <- struct{}{}
					} else {
						f.at(2)
						f.do(http.MethodDelete, "", s.headers...)
					}
					if e, err := events.Next(); err == nil { // the response at the end of the session
						if shutdown || !strings.Contains(string(e.Data), "request cancelled") {
							t.Errorf("got %s, want the end of the stream", e.Data)
						}
						events.expectEnd()
					}
					if waited := time.Since(begin); waited > 0 {
						t.Errorf("the stream ended after %v, want at once", waited)
					}
					f.at(2)
					got := f.do(http.MethodGet, "", append(s.headers, lastEvent)...)
					if shutdown && !strings.Contains(got.body, "done") || !shutdown && got.status != 404 {
						t.Errorf("resumed: got %d %s", got.status, got.body)
					}
				})
			})
		}
	}
}

// The streams of other sessions and principals are unknown, and no process is asked about them.
func TestFollow_OnlyOwnStreams(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		f, _ := startResuming(t, core)
		ann := f.initialize(version, "Authorization: ann")
		lastEvent := f.breakCall(core, ann, version, callBody(4, "notifywait"))
		others := []*testSession{f.initialize(version, "Authorization: ann"),
			f.initialize(version, "Authorization: bob")}
		name, number, _ := strings.Cut(strings.TrimPrefix(lastEvent, "Last-Event-ID: "), "-")
		synctest.Wait()
		published := f.store.published.Load()
		var refused []string
		for _, id := range []string{name + "-" + number, name[:27] + "-" + number, name[:35] + "-" + number,
			name[:27] + "AAAAAAAA" + name[35:] + "-" + number, name + "A-" + number, name + "-99", name[:30] + "-1",
			name + strings.Repeat("A", 1000) + "-1", "s" + name[1:] + "AAAAAAAA-1"} {
			sessions := others
			if id != name+"-"+number {
				sessions = append(slices.Clone(others), ann)
			}
			for _, s := range sessions {
				if strings.HasPrefix(id, "s") {
					continue // opens a new stream
				}
				got := f.do(http.MethodGet, "", append(s.headers, "Last-Event-ID: "+id)...)
				if got.status != 404 || !strings.Contains(got.body, mcphttp.ErrEventUnknown) {
					t.Errorf("%s: got %d %s, want 404", id, got.status, got.body)
				}
				refused = append(refused, got.body)
			}
		}
		if len(slices.Compact(refused)) != 1 {
			t.Errorf("the refusals differ: %q", refused)
		}
		if got := f.store.published.Load() - published; got != 0 {
			t.Errorf("%d messages were sent to other processes, want none", got)
		}
		core.proceed <- struct{}{}
	})
}

// A process follows at most 64 streams of a principal, and each of them once.
func TestFollow_Limits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit = 64
		core := newTestCore()
		f, _ := startResuming(t, core)
		s := f.initialize(june2025, "Authorization: ann")
		other := f.initialize(june2025, "Authorization: bob")
		var streams []*stream
		var first, last string
		for n := range limit + 1 {
			last = f.breakCall(core, s, june2025, callBody(n, "notifywait"))
			if n == 0 {
				first = last
			}
			if n < limit {
				streams = append(streams, f.stream(s.get(t.Context(), last)))
			}
		}
		synctest.Wait()
		if got := f.do(http.MethodGet, "", append(s.headers, last)...); got.status != 429 {
			t.Errorf("stream %d: got %d %s, want 429", limit+1, got.status, got.body)
		}
		standalone := "Last-Event-ID: s" + strings.Repeat("A", 26) + "-1"
		if got := f.do(http.MethodGet, "", append(s.headers, standalone)...); got.status != 429 {
			t.Errorf("a GET stream above the limit: got %d %s, want 429", got.status, got.body)
		}
		ofBob := f.breakCall(core, other, june2025, callBody(1, "notifywait"))
		f.open(other.get(t.Context(), ofBob))
		streams[1].resp.Body.Close()
		synctest.Wait()
		again := f.stream(s.get(t.Context(), first))
		streams[0].expectEnd()
		for range limit + 2 {
			core.proceed <- struct{}{}
		}
		if e := again.next(); !strings.Contains(string(e.Data), "done") {
			t.Errorf("got %s, want the result", e.Data)
		}
	})
}

// A client that resumes its GET stream at another process receives each message that came meanwhile once and in
// order. If the former process shut down, everything counts as changed, because no process was the listener.
func TestFollow_StandaloneStream(t *testing.T) {
	for _, version := range streamableRevisions {
		for _, shutdown := range []bool{false, true} {
			t.Run(fmt.Sprint(version, shutdown), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					server, change := newChangingServer()
					add := func(uri string) {
						mcp.AddResource(server, &mcp.Resource{URI: uri, Name: uri},
							func(context.Context, string) (string, error) { return "", nil })
					}
					for n := range 4 {
						add(fmt.Sprint("test://", n))
					}
					f, _ := startResuming(t, server)
					f.at(0)
					s := f.initialize(version)
					for n := range 4 {
						s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe",`+
							`"params":{"uri":"test://%d"}}`, n))
					}
					ctx, disconnect := context.WithCancel(t.Context())
					events := f.stream(s.get(ctx))
					events.skipFirstEvent(version)
					synctest.Wait()
					change()
					last := events.next()
					name, _, _ := mcphttp.ParseEventID(last.ID)
					for process := range f.handlers {
						disconnect()
						synctest.Wait()
						for n := range 3 {
							server.ResourceUpdated(fmt.Sprint("test://", n))
						}
						synctest.Wait()
						if shutdown && process < 2 {
							if err := f.handlers[process].Shutdown(t.Context()); err != nil {
								t.Fatal(err)
							}
						}
						moves := !shutdown || process < 2
						if moves {
							f.at((process + 1) % 3)
						}
						ctx, disconnect = context.WithCancel(t.Context())
						begin := time.Now()
						_, number, _ := mcphttp.ParseEventID(last.ID)
						events = f.stream(s.get(ctx, "Last-Event-ID: "+last.ID))
						for n := range 3 {
							if last = events.next(); !strings.Contains(string(last.Data), fmt.Sprint("test://", n)) {
								t.Fatalf("after process %d: got %s, want the update of %d", process, last.Data, n)
							}
						}
						if shutdown && moves {
							last = events.wantAllChanged(4)
							_, number, _ = mcphttp.ParseEventID(last.ID)
							number -= 3
						}
						synctest.Wait()
						server.ResourceUpdated("test://3")
						if last = events.next(); !strings.Contains(string(last.Data), "test://3") {
							t.Errorf("after process %d: got %s, want only the last update", process, last.Data)
						}
						if got, n, _ := mcphttp.ParseEventID(last.ID); got != name || n != number+4 {
							t.Errorf("the last event is %s, want number %d of %s", last.ID, number+4, name)
						}
						if waited := time.Since(begin); waited > time.Second {
							t.Errorf("the events came after %v", waited)
						}
					}
					disconnect()
					synctest.Wait()
				})
			})
		}
	}
}

// The stream of another session, or a stream whose events are lost, is not continued: a new stream opens.
func TestFollow_UnknownStandaloneStream(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		server, change := newChangingServer()
		f, stored := startResuming(t, server)
		f.at(0)
		s := f.initialize(version, "Authorization: ann")
		events := f.stream(s.get(t.Context()))
		events.skipFirstEvent(version)
		synctest.Wait()
		change()
		known := events.next().ID
		f.at(1)
		for _, principal := range []string{"ann", "bob"} {
			other := f.initialize(version, "Authorization: "+principal)
			for _, id := range []string{known, "s" + strings.Repeat("A", 26) + "-1"} {
				ctx, disconnect := context.WithCancel(t.Context())
				others := f.stream(other.get(ctx, "Last-Event-ID: "+id))
				others.skipFirstEvent(version)
				synctest.Wait()
				change()
				name, _, _ := mcphttp.ParseEventID(id)
				if e := others.next(); !isChange(e.Data) || strings.HasPrefix(e.ID, name) {
					t.Errorf("%s, %s: got %s %s, want a change on a new stream", principal, id, e.ID, e.Data)
				}
				disconnect()
				synctest.Wait()
			}
		}
		stored.readFails.Store(true)
		if got := f.do(http.MethodGet, "", append(s.headers, "Last-Event-ID: "+known)...); got.status != 503 {
			t.Errorf("the store fails: got %d %s, want 503", got.status, got.body)
		}
		stored.readFails.Store(false)
	})
}
