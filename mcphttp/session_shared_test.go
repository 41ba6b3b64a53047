package mcphttp_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/replica"
)

// A testStore counts and fails operations of a store in memory, and counts its messages.
type testStore struct {
	replica.Memory
	fails        atomic.Bool
	loads, keeps atomic.Int32
	updates      atomic.Int32
	busFails     atomic.Bool
	published    atomic.Int32
	drops        atomic.Bool // loses messages
	silent       atomic.Bool // reports no changes
	watchers     atomic.Int32
	late         atomic.Int32 // the process that learns of changes a second later, from 1; 0 for none
	loaded       func()       // called by each Load; may be nil

	mu        sync.Mutex // guards the field below
	receivers []subscribed
}

// subscribed is a call of Subscribe.
type subscribed struct {
	topic   string
	receive func(payload []byte)
}

func (s *testStore) Watch(changed func(key string)) (stop func()) {
	process := s.watchers.Add(1)
	return s.Memory.Watch(func(key string) {
		switch {
		case s.silent.Load():
		case s.late.Load() == process:
			time.AfterFunc(time.Second, func() { changed(key) })
		default:
			changed(key)
		}
	})
}

var errStoreFails = errors.New("the store does not answer")

func (s *testStore) failure() error {
	if s.fails.Load() {
		return errStoreFails
	}
	return nil
}

func (s *testStore) Create(ctx context.Context, key string, r replica.Session, idle time.Duration) error {
	return cmpErr(s.failure(), func() error { return s.Memory.Create(ctx, key, r, idle) })
}

func (s *testStore) Load(ctx context.Context, key string) (r replica.Session, err error) {
	s.loads.Add(1)
	if s.loaded != nil {
		s.loaded()
	}
	err = cmpErr(s.failure(), func() error { r, err = s.Memory.Load(ctx, key); return err })
	return r, err
}

func (s *testStore) Update(ctx context.Context, key string, r replica.Session, idle time.Duration) error {
	s.updates.Add(1)
	return cmpErr(s.failure(), func() error { return s.Memory.Update(ctx, key, r, idle) })
}

func (s *testStore) Keep(ctx context.Context, key string, idle time.Duration) error {
	s.keeps.Add(1)
	return cmpErr(s.failure(), func() error { return s.Memory.Keep(ctx, key, idle) })
}

func (s *testStore) Delete(ctx context.Context, key string) error {
	return cmpErr(s.failure(), func() error { return s.Memory.Delete(ctx, key) })
}

func cmpErr(err error, then func() error) error {
	if err != nil {
		return err
	}
	return then()
}

// Replicas are processes that serve the same server and share a store. Each request goes to the next
// process.
type replicas struct {
	*fixture
	store    *testStore
	handlers []*mcphttp.Handler
	served   atomic.Int32
	pinned   atomic.Int32 // the process that serves the next requests, from 1; 0 for all in turn
}

// startReplicas serves core at three processes until the test ends.
func startReplicas(t *testing.T, core mcp.Handler, opts *mcphttp.Options) *replicas {
	t.Helper()
	return startServers(t, []mcp.Handler{core, core, core}, opts)
}

// startServers serves each core at a process of its own.
func startServers(t *testing.T, cores []mcp.Handler, opts *mcphttp.Options) *replicas {
	t.Helper()
	r := &replicas{store: &testStore{}, fixture: &fixture{t: t, listener: newMemListener(), host: "localhost:8765"}}
	for _, core := range cores {
		o := mcphttp.Options{Logger: discardLogger}
		if opts != nil {
			o = *opts
		}
		if o.Logger == nil {
			o.Logger = discardLogger
		}
		o.Sessions.Store, o.Sessions.Bus = r.store, r.store
		r.handlers = append(r.handlers, mcphttp.NewHandler(core, &o))
	}
	r.serve(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		n := r.pinned.Load()
		if n == 0 {
			n = r.served.Add(1)
		}
		r.handlers[int(n-1)%len(r.handlers)].ServeHTTP(w, req)
	}), r.handlers...)
	return r
}

// at sends the next requests to a process, counted from 0.
func (r *replicas) at(process int) { r.pinned.Store(int32(process + 1)) }

// inTurn sends each request to the next process.
func (r *replicas) inTurn() { r.pinned.Store(0) }

func TestSharedSession_EachRequestAtTheNextProcess(t *testing.T) {
	forEach(t, sessionRevisions, func(t *testing.T, version string) {
		core := newTestCore()
		f := startReplicas(t, core, nil)
		s := f.initialize(version)
		for n := range 6 {
			got := s.send(callBody(n, "echo"))
			want := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"content":[{"type":"text","text":"hi"}]}}`, n)
			if got.body != want {
				t.Errorf("got %d %s, want %s", got.status, got.body, want)
			}
		}
		const setLevel = `{"jsonrpc":"2.0","id":10,"method":"logging/setLevel","params":{"level":"error"}}`
		if got := s.send(setLevel); got.status != 200 || got.code() != 0 {
			t.Errorf("set level: got %d %s", got.status, got.body)
		}
		for process := range f.handlers {
			s.send(callBody(11, "inspect"))
			got := string((<-core.request).Driver().Envelope.Meta)
			for _, want := range []string{`"` + version + `"`, `{"name":"test","version":"1"}`, `"sampling":{`,
				`"error"`} {
				if !strings.Contains(got, want) {
					t.Errorf("process %d: got %s, want %s", process, got, want)
				}
			}
		}
		if got := f.do(http.MethodDelete, "", s.headers...); got.status != 204 {
			t.Errorf("delete: got %d %s", got.status, got.body)
		}
		synctest.Wait()
		for range f.handlers {
			if got := s.send(callBody(12, "echo")); got.status != 404 {
				t.Errorf("after the end: got %d %s, want 404", got.status, got.body)
			}
		}
	})
}

func TestSharedSession_BelongsToItsPrincipal(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		f := startReplicas(t, newTestCore(), nil)
		f.at(0)
		s := f.initialize(version, "Authorization: alice")
		for process := range f.handlers {
			f.at(process)
			for _, other := range []string{"Authorization: bob", "Authorization: "} {
				ended := f.do(http.MethodDelete, "", override(s.headers, []string{other})...)
				for _, got := range []response{s.send(callBody(1, "echo"), other), ended} {
					if got.status != 404 {
						t.Errorf("process %d, %s: got %d %s, want 404", process, other, got.status, got.body)
					}
				}
			}
		}
		f.inTurn()
		for range f.handlers {
			if got := s.send(callBody(1, "echo")); got.status != 200 {
				t.Errorf("the owner: got %d %s, want 200", got.status, got.body)
			}
		}
	})
}

// The ids of sessions are secrets, which a store must not see.
func TestSharedSession_StoreSeesNoSecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), nil)
		var keys sync.Map
		defer f.store.Watch(func(key string) { keys.Store(key, true) })()
		s := f.initialize(june2025, "Authorization: alice")
		seen := 0
		for key := range keys.Range {
			seen++
			record, err := f.store.Memory.Load(t.Context(), key.(string))
			all := fmt.Sprint(key, record)
			if err != nil || strings.Contains(all, s.id) || strings.Contains(all, "alice") {
				t.Errorf("stored %s, %v; want neither the id nor the principal", all, err)
			}
		}
		if seen != 1 {
			t.Errorf("got %d records, want 1", seen)
		}
	})
}

func TestSharedSession_StoreFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), nil)
		f.at(0)
		s := f.initialize(november2025)
		f.store.fails.Store(true)
		if got := s.send(callBody(1, "echo")); got.status != 200 {
			t.Errorf("a known session: got %d %s, want 200", got.status, got.body)
		}
		level := `{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error"}}`
		refused := map[string]response{
			"a change": s.send(level), "the end": f.do(http.MethodDelete, "", s.headers...),
			"initialize": f.do(http.MethodPost, initializeBody(june2025)),
		}
		f.at(1)
		refused["an unknown session"] = s.send(callBody(3, "echo"))
		for what, got := range refused {
			if got.status != 503 || got.header.Get("Retry-After") == "" {
				t.Errorf("%s: got %d %s, want 503 with Retry-After", what, got.status, got.body)
			}
		}
		f.store.fails.Store(false)
		if got := s.send(callBody(4, "echo")); got.status != 200 {
			t.Errorf("the store works again: got %d %s, want 200", got.status, got.body)
		}
	})
}

// A repeated notification is stored after the store failed.
func TestSharedSession_InitializedIsStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), nil)
		f.at(0)
		got := f.do(http.MethodPost, initializeBody(june2025))
		id := "Mcp-Session-Id: " + got.header.Get("Mcp-Session-Id")
		const initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
		f.store.fails.Store(true)
		if got := f.do(http.MethodPost, initialized, id); got.status != 503 {
			t.Errorf("the store fails: got %d %s, want 503", got.status, got.body)
		}
		f.store.fails.Store(false)
		before := f.store.updates.Load()
		if got := f.do(http.MethodPost, initialized, id); got.status != 202 || f.store.updates.Load() != before+1 {
			t.Errorf("the store works: got %d %s and %d updates, want 202 and 1",
				got.status, got.body, f.store.updates.Load()-before)
		}
	})
}

func TestSharedSession_Idle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const idle = time.Hour
		f := startReplicas(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{IdleTimeout: idle}})
		f.at(0)
		s := f.initialize(june2025)
		f.at(1)
		for range 10 * 6 { // ten hours
			if got := s.send(callBody(1, "echo")); got.status != 200 {
				t.Fatalf("in use: got %d %s, want 200", got.status, got.body)
			}
			<-time.After(10 * time.Minute)
		}
		if got := f.store.keeps.Load(); got < 10 || got > 42 {
			t.Errorf("the record was kept %d times in 10 hours, want at most once in a quarter of an hour", got)
		}
		if sessions := f.handlers[0].Stats().Sessions; sessions != 0 {
			t.Errorf("the first process holds %d sessions, want none", sessions)
		}
		f.at(0)
		if got := s.send(callBody(2, "echo")); got.status != 200 {
			t.Errorf("at the first process: got %d %s, want 200", got.status, got.body)
		}
		<-time.After(2 * idle)
		for process := range f.handlers {
			f.at(process)
			if got := s.send(callBody(3, "echo")); got.status != 404 {
				t.Errorf("after the idle timeout at process %d: got %d %s, want 404", process, got.status, got.body)
			}
		}
	})
}

func TestSharedSession_OutlivesItsProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var hooks []string
		add := func(hook string) {
			mu.Lock()
			defer mu.Unlock()
			hooks = append(hooks, hook)
		}
		f := startReplicas(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{
			Begin: func(context.Context, string) { add("begin") },
			End: func(_ string, cause error) {
				isShutdown, isElsewhere := errors.Is(cause, mcp.ErrShutdown), errors.Is(cause, replica.ErrElsewhere)
				add(fmt.Sprintf("end: %t %t", isShutdown, isElsewhere))
			},
		}})
		f.at(0)
		s := f.initialize(june2025)
		if err := f.handlers[0].Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		f.at(1)
		if got := s.send(callBody(1, "echo")); got.status != 200 {
			t.Errorf("got %d %s, want 200", got.status, got.body)
		}
		f.do(http.MethodDelete, "", s.headers...)
		want := []string{"begin", "end: true true", "begin", "end: false false"}
		if !slices.Equal(hooks, want) {
			t.Errorf("got %q, want %q", hooks, want)
		}
	})
}

// Handlers with different scopes share no session, although they share the store.
func TestSharedSession_BelongsToItsScope(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, f := &replica.Memory{}, &fixture{t: t, listener: newMemListener(), host: "localhost:8765"}
		var handlers []*mcphttp.Handler
		for _, scope := range []string{"a", "b", "a"} {
			handlers = append(handlers, mcphttp.NewHandler(newTestCore(), &mcphttp.Options{Logger: discardLogger,
				Sessions: mcphttp.SessionOptions{Store: store, Bus: store, Scope: scope}}))
		}
		var at atomic.Int32
		f.serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			handlers[at.Load()].ServeHTTP(w, r)
		}), handlers...)
		s, sse := f.initialize(june2025), f.initializedSSE(t.Context())
		for n, want := range []int{200, 404, 200} {
			at.Store(int32(n))
			if got := s.send(callBody(n, "echo")); got.status != want {
				t.Errorf("handler %d: got %d %s, want %d", n, got.status, got.body, want)
			}
			if got := sse.send(callBody(n, "echo")); got.status != want && (got.status != 202 || want != 200) {
				t.Errorf("handler %d, HTTP+SSE: got %d %s, want %d", n, got.status, got.body, want)
			}
		}
	})
}

// A session that is evicted unused leaves no record, whatever its scope is.
func TestSharedSession_EvictedRecordIsDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const scope = "tenant"
		f := startReplicas(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 2, Scope: scope}})
		f.at(0)
		var keys []string
		for range 2 {
			got := f.do(http.MethodPost, initializeBody(june2025))
			keys = append(keys, fmt.Sprintf("%x", sha256.Sum256([]byte(scope+got.header.Get("Mcp-Session-Id")))))
			if _, err := f.store.Memory.Load(t.Context(), keys[len(keys)-1]); err != nil {
				t.Error(err)
			}
		}
		synctest.Wait()
		if _, err := f.store.Memory.Load(t.Context(), keys[0]); !errors.Is(err, replica.ErrNoSession) {
			t.Errorf("the record of the evicted session: got %v, want ErrNoSession", err)
		}
	})
}

// A process that shuts down does not tell a client that its session ended.
func TestSharedSession_ShutdownDuringARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), nil)
		f.at(0)
		s := f.initialize(june2025)
		synctest.Wait()
		f.at(1)
		held, before := make(chan struct{}), f.store.loads.Load()
		f.store.loaded = func() {
			if f.store.loads.Load() == before+2 { // the second one checks that nothing changed meanwhile
				<-held
			}
		}
		var all sync.WaitGroup
		all.Go(func() {
			if got := f.do(http.MethodGet, "", s.headers...); got.status != 503 {
				t.Errorf("got %d %s, want 503", got.status, got.body)
			}
		})
		synctest.Wait()
		all.Go(func() { _ = f.handlers[1].Shutdown(t.Context()) })
		synctest.Wait()
		close(held)
		all.Wait()
		f.at(2)
		if got := s.send(callBody(3, "echo")); got.status != 200 {
			t.Errorf("at another process: got %d %s, want 200", got.status, got.body)
		}
	})
}

// Shutdown returns when no record is being read, and the reads that it cancels are not logged as
// failures of the store.
func TestSharedSession_ShutdownDuringAChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		f := startReplicas(t, newTestCore(), &mcphttp.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		f.at(0)
		s := f.initialize(june2025)
		f.at(1)
		s.send(callBody(1, "echo")) // and so process 1 knows the session
		synctest.Wait()
		held := make(chan struct{})
		f.store.loaded = func() { <-held }
		f.at(0)
		s.send(`{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error"}}`)
		synctest.Wait()
		var over atomic.Bool
		var all sync.WaitGroup
		all.Go(func() { _ = f.handlers[1].Shutdown(t.Context()); over.Store(true) })
		synctest.Wait()
		if over.Load() {
			t.Error("Shutdown returned while a record was being read")
		}
		close(held)
		all.Wait()
		if log.Len() > 0 {
			t.Errorf("logged %s", log.String())
		}
	})
}

// A session counts for its principal at each process that serves it, and many requests for a session
// load it once.
func TestSharedSession_Limits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{MaxPerPrincipal: 1}})
		f.at(0)
		s := f.initialize(june2025, "Authorization: alice")
		f.at(1)
		other := f.initialize(june2025, "Authorization: alice")
		if got := s.send(callBody(1, "echo")); got.status != 429 {
			t.Errorf("a second session: got %d %s, want 429", got.status, got.body)
		}
		f.do(http.MethodDelete, "", other.headers...)
		synctest.Wait()
		before := f.store.loads.Load()
		var wg sync.WaitGroup
		for n := range 20 {
			wg.Go(func() {
				if got := s.send(callBody(n, "echo")); got.status != 200 {
					t.Errorf("got %d %s, want 200", got.status, got.body)
				}
			})
		}
		wg.Wait()
		if got := f.store.loads.Load() - before; got != 2 { // again after the session is known here
			t.Errorf("got %d loads, want 2", got)
		}
		for _, id := range []string{"short", strings.Repeat("A", 26), strings.Repeat("1", 26),
			strings.Repeat("A", 1000)} {
			s.send(callBody(1, "echo"), "Mcp-Session-Id: "+id)
		}
		if got := f.store.loads.Load() - before; got != 3 {
			t.Errorf("got %d loads, want one for an id of the form of ids", got-2)
		}
	})
}

// A failover may lose the last writes of a store: a process knows a newer record than the store.
func TestSharedSession_StoreLostItsLastWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), nil)
		f.at(0)
		s := f.initialize(june2025)
		id := strings.TrimPrefix(s.headers[slices.IndexFunc(s.headers, func(h string) bool {
			return strings.HasPrefix(h, "Mcp-Session-Id: ")
		})], "Mcp-Session-Id: ")
		key := fmt.Sprintf("%x", sha256.Sum256([]byte(id)))
		first, err := f.store.Memory.Load(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		setLevel := func(level string) {
			t.Helper()
			got := s.send(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"` + level + `"}}`)
			if got.status != 200 || got.code() != 0 {
				t.Errorf("set the level %s: got %d %s", level, got.status, got.body)
			}
		}
		setLevel("error")
		setLevel("warning")
		f.store.silent.Store(true)
		_ = f.store.Memory.Delete(t.Context(), key)
		if err := f.store.Memory.Create(t.Context(), key, first, time.Hour); err != nil {
			t.Fatal(err)
		}
		f.store.silent.Store(false)
		setLevel("debug")
		got, err := f.store.Memory.Load(t.Context(), key)
		if err != nil || !strings.Contains(string(got.Data), "debug") {
			t.Errorf("the store contains %s, %v", got.Data, err)
		}
	})
}

// A process that has no room for a session forgets the session. Other processes still serve it.
func TestSharedSession_EvictionIsLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startReplicas(t, newTestCore(), &mcphttp.Options{Sessions: mcphttp.SessionOptions{Max: 4}})
		f.at(0)
		s := f.initialize(june2025)
		for range 3 { // anonymous callers have half of the room
			f.initialize(june2025)
			synctest.Wait()
		}
		if got := f.handlers[0].Stats().Sessions; got != 2 {
			t.Errorf("the process holds %d sessions, want 2", got)
		}
		f.at(1)
		if got := s.send(callBody(1, "echo")); got.status != 200 {
			t.Errorf("at another process: got %d %s, want 200", got.status, got.body)
		}
	})
}

// Answers to pings may get lost between processes, so missing answers end a session at one process.
func TestSharedSession_MissingPingsAreLocal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pings := mcphttp.SessionOptions{PingInterval: time.Second}
		f := startReplicas(t, newTestCore(), &mcphttp.Options{Sessions: pings})
		f.at(0)
		s := f.initialize(june2025)
		stream := f.open(s.get(t.Context()))
		defer stream.Body.Close()
		<-time.After(10 * time.Second)
		if got := f.handlers[0].Stats().Sessions; got != 0 {
			t.Errorf("the process holds %d sessions, want none", got)
		}
		f.at(1)
		if got := s.send(callBody(1, "echo")); got.status != 200 {
			t.Errorf("at another process: got %d %s, want 200", got.status, got.body)
		}
	})
}
