package mcphttp_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// startChanging serves an equal server at each of three processes. It returns functions that change
// the tools of each server, and streams of a session at the second process and of a modern client at
// the third process, both subscribed to lists and to test://a.
func startChanging(t *testing.T) (f *replicas, servers []*mcp.Server, change []func(), streams []*stream) {
	t.Helper()
	var cores []mcp.Handler
	for range 3 {
		server, add := newChangingServer()
		for _, uri := range []string{"test://a", "test://b"} {
			mcp.AddResource(server, &mcp.Resource{URI: uri, Name: uri},
				func(context.Context, string) (string, error) { return "", nil })
		}
		cores, servers, change = append(cores, server), append(servers, server), append(change, add)
	}
	f = startServers(t, cores, nil)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	f.at(0)
	s := f.initialize(november2025)
	f.at(1)
	session := f.stream(s.get(ctx))
	session.skipFirstEvent(november2025)
	f.at(2)
	s.send(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"test://a"}}`)
	modern := f.modernStream(ctx, "subscriptions/listen",
		`"notifications":{"toolsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["test://a"]}`)
	modern.next() // the acknowledgement
	synctest.Wait()
	return f, servers, change, []*stream{session, modern}
}

// want reads events that contain the texts, in this order.
func want(t *testing.T, streams []*stream, texts ...string) {
	t.Helper()
	for n, s := range streams {
		for _, text := range texts {
			if e := s.next(); !strings.Contains(string(e.Data), text) {
				t.Errorf("stream %d: got %s, want %s", n, e.Data, text)
			}
		}
	}
}

const (
	toolsChanged     = "notifications/tools/list_changed"
	resourcesChanged = "notifications/resources/list_changed"
	updated          = `"test://a"`
)

// Changes at any process reach the subscriptions at all processes, each once.
func TestChanges_AtAnotherProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, servers, change, streams := startChanging(t)
		for n, server := range servers {
			server.ResourceUpdated("test://b") // nobody subscribed to it
			server.ResourceUpdated("test://a")
			want(t, streams, updated)
			change[n]()
			want(t, streams, toolsChanged)
			synctest.Wait()
		}
	})
}

// A server ignores the changes that its own handlers relay, also when they arrive late.
func TestChanges_HandlersOfTheSameServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _ := newChangingServer()
		for _, uri := range []string{"test://a", "test://b"} {
			mcp.AddResource(server, &mcp.Resource{URI: uri, Name: uri},
				func(context.Context, string) (string, error) { return "", nil })
		}
		f := startReplicas(t, server, nil)
		var s *testSession
		for process := range f.handlers { // so that each subscribes to the bus
			f.at(process)
			s = f.initialize(november2025)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		events := f.stream(s.get(ctx))
		events.skipFirstEvent(november2025)
		for _, uri := range []string{"test://a", "test://b"} {
			s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":%q}}`, uri))
		}
		f.store.busFails.Store(true)
		server.ResourceUpdated("test://a")
		synctest.Wait()
		f.store.busFails.Store(false)
		<-time.After(5 * time.Second) // the handlers relay the change again
		server.ResourceUpdated("test://b")
		want(t, []*stream{events}, updated, `"test://b"`)
	})
}

// Changes that may have been lost are reported as changes of everything.
func TestChanges_Lost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, servers, _, streams := startChanging(t)
		f.store.drops.Store(true)
		servers[0].ResourceUpdated("test://a")
		synctest.Wait()
		f.store.drops.Store(false)
		f.store.report(1)
		f.store.report(2)
		want(t, streams, toolsChanged, resourcesChanged, updated)
	})
}

func TestChanges_WhileTheBusFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, servers, _, streams := startChanging(t)
		f.store.busFails.Store(true)
		servers[0].ResourceUpdated("test://a")
		synctest.Wait()
		f.store.busFails.Store(false)
		want(t, streams, toolsChanged, resourcesChanged, updated)
	})
}

// A process that announces very many changes sends a bounded number of messages.
func TestChanges_AreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, servers, _, streams := startChanging(t)
		f.store.busFails.Store(true)
		servers[0].ResourceUpdated("test://first")
		synctest.Wait()
		before := f.store.published.Load()
		for n := range 100_000 {
			servers[0].ResourceUpdated(fmt.Sprintf("test://%d", n))
		}
		f.store.busFails.Store(false)
		want(t, streams, toolsChanged, resourcesChanged, updated)
		synctest.Wait()
		if got := f.store.published.Load() - before; got != 1 {
			t.Errorf("got %d messages, want 1 that reports everything as changed", got)
		}
	})
}

// Changes that a program announces just before the end of its process are sent.
func TestChanges_BeforeShutdown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, servers, change, streams := startChanging(t)
		change[0]()
		if err := f.handlers[0].Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		want(t, streams, toolsChanged)
		before := f.store.published.Load()
		servers[0].ResourceUpdated("test://a")
		synctest.Wait()
		if got := f.store.published.Load(); got != before {
			t.Errorf("got %d messages after the end, want none", got-before)
		}
	})
}

// A subscription is refused while the process cannot learn of changes.
func TestChanges_SubscriptionNeedsTheBus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, _ := newChangingServer()
		f := startServers(t, []mcp.Handler{server}, &mcphttp.Options{})
		f.store.busFails.Store(true)
		const filter = `"notifications":{"toolsListChanged":true}`
		if got := f.modern("subscriptions/listen", filter); got.status != 503 || got.header.Get("Retry-After") == "" {
			t.Errorf("got %d %s, want 503 with Retry-After", got.status, got.body)
		}
		f.store.busFails.Store(false)
		f.modernStream(t.Context(), "subscriptions/listen", filter).next()
	})
}
