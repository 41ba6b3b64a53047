package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// A feed is a source of events with history: the cursor of an event is its number.
type feed struct {
	mu      sync.Mutex // guards the fields below
	events  []*events.Delivered
	oldest  int   // events before it are gone
	failure error // what Follow returns next
	changed chan struct{}
}

func newFeed() *feed { return &feed{changed: make(chan struct{})} }

func cursorOf(n int) string { return strconv.Itoa(n) }

func (f *feed) change(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

// emit adds events.
func (f *feed) emit(n int) {
	f.change(func() {
		for range n {
			i := len(f.events) + 1
			f.events = append(f.events, &events.Delivered{ID: fmt.Sprint("evt_", i), Name: "order.paid",
				Time: time.Now(), Data: json.RawMessage(fmt.Sprintf(`{"order":%d}`, i)), Cursor: cursorOf(i)})
		}
	})
}

func (f *feed) fail(err error) { f.change(func() { f.failure = err }) }

func (f *feed) Begin(_ context.Context, s events.Subscription, at events.Start) (string, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s.Name != "order.paid" {
		return "", false, mcp.Errorf(events.CodeNotFound, "unknown event")
	}
	if at.Cursor == "" {
		return cursorOf(len(f.events)), false, nil
	}
	return at.Cursor, false, nil
}

func (f *feed) Follow(ctx context.Context, _ events.Subscription, cursor string) iter.Seq2[events.Item, error] {
	return func(yield func(events.Item, error) bool) {
		position, err := strconv.Atoi(cursor)
		if err != nil {
			yield(events.Item{}, err)
			return
		}
		for ctx.Err() == nil {
			f.mu.Lock()
			changed, failure, oldest := f.changed, f.failure, f.oldest
			var next *events.Delivered
			if position >= oldest && position < len(f.events) {
				next = f.events[position]
			}
			f.failure = nil
			f.mu.Unlock()
			switch {
			case failure != nil:
				yield(events.Item{}, failure)
				return
			case position < oldest:
				position = oldest
				if !yield(events.Item{Gap: true, Cursor: cursorOf(position)}, nil) {
					return
				}
			case next != nil:
				position++
				if !yield(events.Item{Event: next, Cursor: next.Cursor}, nil) {
					return
				}
			default:
				select {
				case <-changed:
				case <-ctx.Done():
				}
			}
		}
	}
}

// A network contains an endpoint at address.
type network struct {
	*oauthtest.Network
	t    testing.TB
	mu   sync.Mutex // guards the fields below
	down int        // the status of every response; 0 if the receiver responds
	got  []request  // the messages that reached the endpoint, challenges excluded
}

const address = "https://hooks.example/mcp"

// A request is a message at the endpoint.
type request struct {
	at     time.Time
	header http.Header
	body   string
}

// newNetwork returns a network. handler may be nil.
func newNetwork(t testing.TB, handler http.Handler) *network {
	n := &network{Network: oauthtest.NewNetwork(t), t: t}
	n.Page(address, func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		n.mu.Lock()
		down := n.down
		if !strings.Contains(string(body), `"verification"`) {
			n.got = append(n.got, request{time.Now(), r.Header.Clone(), string(body)})
		}
		n.mu.Unlock()
		if down != 0 {
			w.WriteHeader(down)
			return
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		handler.ServeHTTP(w, r)
	})
	return n
}

// respond sets the status of every further response; 0 is that of the receiver.
func (n *network) respond(status int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down = status
}

// requests returns the messages since the last call.
func (n *network) requests() []request {
	n.mu.Lock()
	defer n.mu.Unlock()
	got := n.got
	n.got = nil
	return got
}

func (n *network) sender(f webhook.Feed, opts webhook.SenderOptions) *webhook.Sender {
	n.t.Helper()
	s := n.newSender(opts)
	if err := s.Start(n.t.Context(), f); err != nil {
		n.t.Fatal(err)
	}
	return s
}

// newSender returns a sender that is not started.
func (n *network) newSender(opts webhook.SenderOptions) *webhook.Sender {
	if opts.Fetcher == nil {
		opts.Fetcher = (*oauth.Fetcher)(n.Fetcher(&oauthfetch.Options{}))
	}
	opts.Logger = slog.New(slog.DiscardHandler)
	s := webhook.NewSender(&opts)
	n.t.Cleanup(func() { _ = s.Close() })
	return s
}

var (
	alice = &mcp.Principal{Issuer: "https://as.example", Subject: "alice"}
	bob   = &mcp.Principal{Issuer: "https://as.example", Subject: "bob"}
)

func subscription(secret webhook.Secret) webhook.Request {
	return webhook.Request{URL: address, Secret: secret.Reveal(),
		Subscription: events.Subscription{Principal: alice, Name: "order.paid"}}
}

// An inbox keeps the messages of a route.
type inbox struct {
	mu    sync.Mutex // guards the fields below
	err   error      // what the handler returns
	all   []string   // IDs of events, types of others
	cause *mcp.Error // of the end
}

func (i *inbox) handle(_ context.Context, m *webhook.Message) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil {
		return i.err
	}
	if m.Type == "" {
		i.all = append(i.all, m.ID)
	} else {
		i.all = append(i.all, m.Type)
	}
	if m.Error != nil {
		i.cause = m.Error
	}
	return nil
}

func (i *inbox) want(t testing.TB, want ...string) {
	t.Helper()
	i.mu.Lock()
	defer i.mu.Unlock()
	if !slices.Equal(i.all, want) {
		t.Errorf("the receiver got %q, want %q", i.all, want)
	}
	i.all = nil
}

// ids returns the IDs of the events from first to last.
func ids(first, last int) (all []string) {
	for n := first; n <= last; n++ {
		all = append(all, fmt.Sprint("evt_", n))
	}
	return all
}

// pass lets a time pass in a bubble of synctest, with all that happens until its end.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}
