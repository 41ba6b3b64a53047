package mcphttp_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/sse"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// wantAllChanged reads the notifications that everything changed: the lists of tools and resources, and the
// subscribed resources test://0 and so on. Stored updates may precede them. It returns the last event.
func (s *stream) wantAllChanged(resources int) (last sse.Event) {
	s.t.Helper()
	last = s.next()
	for strings.Contains(string(last.Data), "resources/updated") {
		last = s.next()
	}
	for n := range 2 + resources {
		want := fmt.Sprintf(`"uri":"test://%d"`, n-2)
		if n < 2 {
			want = []string{"tools/list_changed", "resources/list_changed"}[n]
		}
		if n > 0 {
			last = s.next()
		}
		if !strings.Contains(string(last.Data), want) {
			s.t.Fatalf("got %s, want %s", last.Data, want)
		}
	}
	return last
}

// maxMissing is when a test fails that waits for an event.
const maxMissing = time.Hour

// A moving is a GET stream that a client resumes at other processes. Its session subscribes to four resources.
type moving struct {
	*replicas
	server     *mcp.Server
	stored     *sharedEvents
	session    *testSession
	disconnect context.CancelFunc
	last       sse.Event
}

// startMoving opens a stream at process 0 and reads the first change of a resource.
func startMoving(t *testing.T, version string) (*moving, *stream) {
	t.Helper()
	m := &moving{server: mcp.NewServer("test", "1", &mcp.ServerOptions{Logger: discardLogger})}
	mcp.AddTool(m.server, &mcp.Tool{Name: "tool"}, func(context.Context, struct{}) (string, error) { return "", nil })
	for n := range 4 {
		uri := fmt.Sprint("test://", n)
		mcp.AddResource(m.server, &mcp.Resource{URI: uri, Name: uri},
			func(context.Context, string) (string, error) { return "", nil })
	}
	m.replicas, m.stored = startResuming(t, m.server)
	m.at(0)
	m.session = m.initialize(version)
	for n := range 4 {
		m.session.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe",`+
			`"params":{"uri":"test://%d"}}`, n))
	}
	ctx, disconnect := context.WithTimeout(t.Context(), maxMissing)
	events := m.stream(m.session.get(ctx))
	m.disconnect = disconnect
	events.skipFirstEvent(version)
	m.update(0)
	m.want(events, 0)
	return m, events
}

// update changes resources.
func (m *moving) update(resources ...int) {
	synctest.Wait()
	for _, n := range resources {
		m.server.ResourceUpdated(fmt.Sprint("test://", n))
		synctest.Wait()
	}
}

// want reads the notifications of changed resources.
func (m *moving) want(events *stream, resources ...int) {
	m.t.Helper()
	for _, n := range resources {
		if m.last = events.next(); !strings.Contains(string(m.last.Data), fmt.Sprintf(`"uri":"test://%d"`, n)) {
			m.t.Fatalf("got %s, want the update of %d", m.last.Data, n)
		}
	}
}

// leave disconnects the client.
func (m *moving) leave() {
	m.disconnect()
	synctest.Wait()
}

// resume resumes the stream at a process after the last event that was read.
func (m *moving) resume(process int) *stream {
	m.t.Helper()
	m.at(process)
	ctx, disconnect := context.WithTimeout(m.t.Context(), maxMissing)
	m.disconnect = disconnect
	return m.stream(m.session.get(ctx, "Last-Event-ID: "+m.last.ID))
}

func (m *moving) numberOfLast() int64 {
	_, n, _ := mcphttp.ParseEventID(m.last.ID)
	return n
}

// A process that has not read the name of the last listener continues the stream of that listener, and
// not of the listener before.
func TestAdopt_FormerListenerIsUnknown(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		m, _ := startMoving(t, version)
		m.at(2)
		m.session.send(callBody(1, "tool")) // process 2 reads the record
		m.store.late.Store(3)
		m.leave()
		events := m.resume(1)
		m.update(1)
		m.want(events, 1)
		m.leave()
		m.update(2, 3)
		events = m.resume(2)
		m.want(events, 2, 3)
		m.update(0)
		m.want(events, 0)
		if got := m.numberOfLast(); got != 5 && version != november2025 || got != 6 && version == november2025 {
			t.Errorf("the last event is %s, want the next number", m.last.ID)
		}
	})
}

// The last event of a quiet stream is not stored any more. The client learns that everything may have
// changed.
func TestAdopt_QuietStream(t *testing.T) {
	forEach(t, streamableRevisions, func(t *testing.T, version string) {
		m, _ := startMoving(t, version)
		<-time.After(11 * time.Minute)
		m.leave()
		m.update(1)
		m.store.late.Store(1) // the update is not stored before the stream opens
		events := m.resume(1)
		events.skipFirstEvent(version)
		m.last = events.wantAllChanged(4)
		m.update(3)
		m.want(events, 3)
		m.leave()
		m.update(2)
		m.want(m.resume(0), 2)
	})
}

// Messages may be lost if the former listener is gone, does not read the record, dropped messages or did
// not store a message. The wait is short, and no number is used twice.
func TestAdopt_MessagesMayBeLost(t *testing.T) {
	set := func(flag func(m *moving) *atomic.Bool, value bool) func(m *moving) {
		return func(m *moving) { flag(m).Store(value) }
	}
	drops := func(m *moving) *atomic.Bool { return &m.store.drops }
	silent := func(m *moving) *atomic.Bool { return &m.store.silent }
	busFails := func(m *moving) *atomic.Bool { return &m.store.busFails }
	appendFails := func(m *moving) *atomic.Bool { return &m.stored.appendFails }
	for name, test := range map[string]struct {
		lose, repair func(m *moving)
		waits        bool
	}{
		"killed":     {set(drops, true), set(drops, false), true},
		"stale":      {set(silent, true), set(silent, false), true},
		"bus":        {set(busFails, true), set(busFails, false), false},
		"not stored": {set(appendFails, true), set(appendFails, false), false},
		"overflow": {func(m *moving) {
			for range 2000 {
				m.update(1)
			}
		}, func(*moving) {}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := startMoving(t, june2025)
				m.at(1)
				m.session.send(callBody(1, "tool"))
				m.leave()
				m.update(1)
				test.lose(m)
				before, begin := m.numberOfLast(), time.Now()
				events := m.resume(1)
				m.last = events.wantAllChanged(4)
				waited := time.Since(begin)
				if waited > 20*time.Second || waited > time.Second != test.waits {
					t.Errorf("the notifications came after %v", waited)
				}
				test.repair(m)
				m.update(2)
				m.want(events, 2)
				if got := m.numberOfLast(); got < before+1000 {
					t.Errorf("got number %d, want a number after those of the former listener", got)
				}
				if name == "stale" {
					return
				}
				m.leave()
				m.update(3)
				m.want(m.resume(2), 3)
			})
		})
	}
}

// A client that disconnects while the former listener has not stored its last event loses nothing.
func TestAdopt_ClientDisconnects(t *testing.T) {
	for _, next := range []int{0, 1, 2} {
		t.Run(fmt.Sprint(next), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, _ := startMoving(t, june2025)
				m.leave()
				m.update(1)
				m.store.late.Store(1)
				m.resume(1)
				m.leave()
				<-time.After(2 * time.Second) // process 0 has stored the first update
				m.update(2)
				events := m.resume(next)
				if next == 1 {
					m.want(events, 1)
				}
				m.last = events.wantAllChanged(4)
				if next == 1 {
					m.want(events, 2)
				}
				m.update(3)
				m.want(events, 3)
			})
		})
	}
}

// Messages are not lost if the client disconnects at the moment when another process opens its stream.
func TestAdopt_ClientDisconnectsBeforeTheListenerYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, before := startMoving(t, june2025)
		m.stored.proceed = make(chan struct{})
		m.stored.appendWaits.Store(true)
		m.update(1)
		m.update(2) // is queued
		disconnect := m.disconnect
		events := m.resume(1)
		synctest.Wait()
		disconnect()
		before.resp.Body.Close()
		synctest.Wait()
		begin := time.Now()
		m.stored.proceed <- struct{}{}
		m.want(events, 1, 2)
		if waited := time.Since(begin); waited > time.Second {
			t.Errorf("the updates came after %v", waited)
		}
		m.update(3)
		m.want(events, 3)
	})
}

// A listener yields also if the store lost its last writes and another process became the listener.
func TestAdopt_StoreLostItsLastWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, before := startMoving(t, june2025)
		id, _ := strings.CutPrefix(m.session.headers[slices.IndexFunc(m.session.headers, func(h string) bool {
			return strings.HasPrefix(h, "Mcp-Session-Id: ")
		})], "Mcp-Session-Id: ")
		key := fmt.Sprintf("%x", sha256.Sum256([]byte(id)))
		record, err := m.store.Memory.Load(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		m.store.silent.Store(true)
		_ = m.store.Memory.Delete(t.Context(), key)
		record.Version, record.Listener = 1, ""
		if err := m.store.Memory.Create(t.Context(), key, record, time.Hour); err != nil {
			t.Fatal(err)
		}
		m.store.silent.Store(false)
		events := m.resume(1)
		m.update(1)
		before.expectEnd()
		m.last = events.wantAllChanged(4)
		m.want(events, 1)
	})
}
