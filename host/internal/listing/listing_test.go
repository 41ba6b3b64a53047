package listing_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/status"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// A source is a server with one connection.
type source struct {
	conn     *connection.Conn
	reviewer listing.Reviewer
	observed atomic.Pointer[hosterr.Error]
}

func (s *source) Acquire(ctx context.Context, _ bool) (*connection.Conn, listing.Reviewer, error) {
	s.conn.Use()
	if err := s.conn.Wait(ctx); err != nil {
		s.conn.Release()
		return nil, nil, err
	}
	return s.conn, s.reviewer, nil
}

func (s *source) Failure(_ context.Context, _ *connection.Conn, err error) *hosterr.Error {
	return &hosterr.Error{Code: hosterr.CodeUnavailable, Err: err}
}

func (s *source) Observe(_ *connection.Conn, failed *hosterr.Error) { s.observed.Store(failed) }

// open returns the lists of a server, to which they are connected.
func open(
	t *testing.T, h mcp.Handler, reviewer listing.Reviewer, change func(o *listing.Options),
) (*listing.Lists, *source) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	s := &source{reviewer: reviewer}
	o := &listing.Options{Source: s, Memory: listing.NewMemory("s", slog.New(slog.DiscardHandler), func() {}),
		Server: "s", Context: ctx, Go: running.Go, StartTimeout: func() time.Duration { return time.Minute },
		BeforeRead: func(context.Context) {},
		Drift:      func(catalogue.Kind, *catalogue.List, *catalogue.List) {}, Logger: slog.New(slog.DiscardHandler)}
	if change != nil {
		change(o)
	}
	l := listing.New(o)
	s.conn = connection.New(ctx, &connection.Options{StartTimeout: time.Minute, Go: running.Go,
		Stderr: &connection.Stderr{}, Logger: o.Logger,
		Prepare: func(ctx context.Context) (context.Context, *connection.Setup, error) {
			return ctx, &connection.Setup{Server: &config.Server{}, Client: &mcp.ClientOptions{}}, nil
		},
		Dial: func(context.Context, *config.Server) (mcp.Transport, error) { return mcp.InMemory(h), nil },
		Notify: func(e connection.Event) {
			if e.Kind == connection.Connected {
				s.conn.SetState(status.Ready)
				if e.Err == nil {
					l.Connected(s.conn, reviewer)
				}
				s.conn.Finish(e.Err)
			}
		}})
	running.Go(s.conn.Run)
	t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	if err := s.conn.Wait(ctx); err != nil || s.conn.Err() != nil {
		t.Fatal(err, s.conn.Err())
	}
	return l, s
}

func server(tools ...string) *mcp.Server {
	s := mcp.NewServer("s", "1", nil)
	for _, name := range tools {
		add(s, name)
	}
	return s
}

func add(s *mcp.Server, name string) (remove func()) {
	return mcp.AddTool(s, &mcp.Tool{Name: name}, func(context.Context, struct{}) (string, error) { return "", nil }).Remove
}

// names returns the names of the tools that a request gets.
func names(t *testing.T, l *listing.Lists) string {
	t.Helper()
	list, err := l.List(t.Context(), catalogue.Tools, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for name := range list.Digests() {
		all = append(all, name)
	}
	return strings.Join(all, " ")
}

type listener chan struct{}

func (l listener) ListsChanged() { l <- struct{}{} }

// Listeners learn of changes that the server announces. The list is then read again.
func TestListIsReadAgainAfterAChange(t *testing.T) {
	s := server("a")
	l, _ := open(t, s, nil, nil)
	changes := make(listener, 100)
	l.AddListener(changes)
	if got := names(t, l); got != "a" {
		t.Errorf("got tools %s, want a", got)
	}
	add(s, "b")
	for names(t, l) != "a b" {
		<-changes
	}
	l.RemoveListener(changes)
	if lists, resources := l.HasListeners(); lists || resources {
		t.Error("got a listener after it was removed")
	}
}

// A hider hides the tools with a name. It restores nothing.
type hider struct{ name string }

func (h hider) ReviewList(_ context.Context, _ catalogue.Kind, l *catalogue.List) *catalogue.List {
	return l.Hide(map[string]struct{}{h.name: {}})
}

func (h hider) ReviewAbout(context.Context, *listing.About) listing.Approved {
	return listing.Approved{Instructions: "reviewed by " + h.name, ServerInfo: json.RawMessage("{}")}
}

func (h hider) Restore(
	_ context.Context, keep func(catalogue.Kind, *catalogue.List) *catalogue.List,
) (listing.Restored, bool) {
	r := listing.Restored{Revision: "2026-07-28", Capabilities: json.RawMessage("{}")}
	for k := range r.Lists {
		r.Lists[k] = keep(catalogue.Kind(k), catalogue.Parse(catalogue.Kind(k)))
	}
	return r, true
}

// A reviewer decides which definitions and texts of a server callers see.
func TestReviewerHidesDefinitions(t *testing.T) {
	l, s := open(t, server("a", "b"), hider{"b"}, nil)
	names(t, l)
	list, reviewer := l.Reviewed(catalogue.Tools)
	if !list.Hides("b") || list.Hides("a") || reviewer != (hider{"b"}) {
		t.Errorf("the list is not reviewed: %v", reviewer)
	}
	if got := l.About(); got.Instructions != "reviewed by b" || got.Revision == "" {
		t.Errorf("got %+v", got)
	}
	if l.Origin(catalogue.Tools) != s.conn {
		t.Error("the list is not from the connection")
	}
	l.ReviewAgain(t.Context())
	if list, _ := l.Reviewed(catalogue.Tools); !list.Hides("b") {
		t.Error("a second review shows what the first has hidden")
	}
}

// Lists of an earlier connection are fresh until the server is connected to, or has other pins.
func TestRestoredListsAreFreshUntilTheServerIsConnected(t *testing.T) {
	l := listing.New(&listing.Options{Review: hider{"a"},
		Memory: listing.NewMemory("s", slog.New(slog.DiscardHandler), func() {})})
	l.Restore(t.Context())
	if l.Fresh()[catalogue.Tools] == nil || l.IsCurrent(catalogue.Tools) || l.About().Revision == "" {
		t.Error("the lists are not restored, or count as lists of a connection")
	}
	l.SetReviewer(hider{"b"})
	if l.Fresh()[catalogue.Tools] != nil || l.About().Instructions != "" {
		t.Error("lists that another reviewer has restored are fresh")
	}
}

// A server that loses its tools is reported, and when it lists some again.
func TestLostToolsAreObserved(t *testing.T) {
	s := server()
	remove := add(s, "a")
	l, src := open(t, s, nil, nil)
	names(t, l)
	remove()
	for !l.LackTools() {
		l.AllChanged()
		names(t, l)
	}
	if e := src.observed.Load(); e == nil || !strings.Contains(e.Error(), "lists no tools, and had 1 before") {
		t.Errorf("got %v", e)
	}
	add(s, "b")
	for l.LackTools() {
		l.AllChanged()
		names(t, l)
	}
	if e := src.observed.Load(); e != nil {
		t.Errorf("got %v after the server listed tools again", e)
	}
}

// A list that changes all the time is not read all the time.
func TestListThatChangesIsReadWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		l, _ := open(t, server("a"), nil, func(o *listing.Options) { o.BeforeRead = func(context.Context) { reads++ } })
		for range 1000 {
			l.AllChanged()
			names(t, l)
		}
		if reads > 60 {
			t.Errorf("read %d times at once, want at most 60", reads)
		}
		time.Sleep(10 * time.Second)
		before := reads
		for range 100 {
			l.AllChanged()
			names(t, l)
		}
		if got := reads - before; got < 5 || got > 12 {
			t.Errorf("read %d times after 10 s", got)
		}
	})
}

// The first list of a connection is read after the server has agreed to announce changes, not before and again.
func TestListOfANewConnectionIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		l, _ := open(t, server("a"), nil, func(o *listing.Options) { o.BeforeRead = func(context.Context) { reads++ } })
		for range 3 {
			names(t, l)
			synctest.Wait()
		}
		if reads != 1 {
			t.Errorf("read %d times, want once", reads)
		}
	})
}

type subscriber struct{ principal, name string }

func (s subscriber) Principal() string { return s.principal }
func (s subscriber) Updated(string)    {}
func (s subscriber) Missed(string)     {}

// The subscriptions of one principal of a shared server are limited. They move to other lists of the server.
func TestSubscriptionsToResources(t *testing.T) {
	s := mcp.NewServer("s", "1", nil)
	mcp.AddResource(s, &mcp.Resource{URI: "x:0", Name: "x"}, func(context.Context, string) (string, error) { return "", nil })
	l, _ := open(t, s, nil, func(o *listing.Options) { o.Shared = true })
	var all []listing.Resource
	for n := range 300 {
		uri := fmt.Sprint("x:", n)
		all = append(all, listing.Resource{Target: uri, URI: "public:" + uri})
	}
	added, agreed := l.Subscribe(t.Context(), subscriber{"p", "1"}, all)
	if len(added) != 200 || len(agreed) != 200 || agreed[0] != "public:x:0" {
		t.Fatalf("got %d subscriptions, %d URIs", len(added), len(agreed))
	}
	if _, agreed := l.Subscribe(t.Context(), subscriber{"q", "2"}, all); len(agreed) != 200 {
		t.Errorf("got %d URIs for another principal", len(agreed))
	}
	taken := l.TakeSubscriptions(subscriber{"p", "1"})
	if len(taken) != 200 {
		t.Errorf("took %d subscriptions", len(taken))
	}
	l.AddSubscriptions(taken)
	l.Unsubscribe(added)
	if _, resources := l.HasListeners(); !resources {
		t.Error("the subscriptions of the other principal have ended")
	}
	l.Close()
	if added, _ := l.Subscribe(t.Context(), subscriber{"p", "1"}, all); added != nil {
		t.Error("lists that were closed accept subscriptions")
	}
}
