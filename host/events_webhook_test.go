package host_test

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/host/event"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/oauthfetch"
	"github.com/patchbay-mcp/patchbay/internal/oauthtest"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// An endpoint receives the webhooks of a principal.
type endpoint struct {
	url      string
	secret   webhook.Secret
	receiver *webhook.Receiver

	mu       sync.Mutex // guards the fields below
	messages []*webhook.Message
}

func newEndpoint(t *testing.T, n *oauthtest.Network, name string) *endpoint {
	t.Helper()
	e := &endpoint{url: "https://hooks.example/" + name, secret: webhook.NewSecret()}
	e.receiver = webhook.NewReceiver(nil)
	if _, err := e.receiver.Add(e.secret, func(_ context.Context, m *webhook.Message) error {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.messages = append(e.messages, m)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	n.Page(e.url, e.receiver.ServeHTTP)
	return e
}

// data returns the events, and the types of other messages.
func (e *endpoint) data() (all []string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, m := range e.messages {
		if m.Event == nil {
			all = append(all, m.Type)
		} else {
			all = append(all, string(m.Event.Data))
		}
	}
	return all
}

// params returns the params of a subscription.
func (e *endpoint) params(name string, more ...any) map[string]any {
	return params(name, append(more, "delivery",
		map[string]any{"mode": "webhook", "url": e.url, "secret": e.secret.Reveal()})...)
}

func (e *endpoint) subscribe(t *testing.T, c *mcp.Client, name string, more ...any) error {
	t.Helper()
	_, err := c.Do(t.Context(), "events/subscribe", e.params(name, more...))
	return err
}

func offer(t *testing.T, h *host.Host, n *oauthtest.Network, o host.EventWebhooks) {
	t.Helper()
	o.Fetcher = (*oauth.Fetcher)(n.Fetcher(&oauthfetch.Options{}))
	if o.Store == nil {
		o.Store = webhook.NewMemory()
	}
	if err := h.OfferWebhooks(t.Context(), &o); err != nil {
		t.Fatal(err)
	}
}

func wantData(t *testing.T, e *endpoint, want ...string) {
	t.Helper()
	if got := e.data(); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", e.url, got, want)
	}
}

// Principals receive the events of a server that polls or pushes at their own URLs, and only a principal itself ends
// its subscription.
func TestEventsByWebhook(t *testing.T) {
	for _, mode := range []string{"poll", "push", "push without cursors"} {
		synctest.Test(t, func(t *testing.T) {
			s := newEventServer("git", strings.Fields(mode)[0])
			s.lacksCursor = strings.Contains(mode, "without")
			n := oauthtest.NewNetwork(t)
			h := eventHost(t, map[string]*eventServer{"git": s, "db": newEventServer("db", "push")}, host.Options{})
			offer(t, h, n, host.EventWebhooks{})
			bob, eve := client(t, h, &policy.Caller{Principal: principal("bob")}), client(t, h, &policy.Caller{
				Principal: principal("eve")})
			ofBob, ofEve := newEndpoint(t, n, "bob"), newEndpoint(t, n, "eve")
			list, err := bob.Do(t.Context(), "events/list", nil)
			if err != nil || !strings.Contains(string(list), `"delivery":["push","poll","webhook"]`) {
				t.Errorf("%s: got list %s, %v", mode, list, err)
			}
			if err := errors.Join(ofBob.subscribe(t, bob, "git__changed"), ofEve.subscribe(t, eve, "git__changed")); err != nil {
				t.Fatal(mode, err)
			}
			s.emit(`{"n":1}`)
			<-time.After(20 * time.Second)
			_, err = eve.Do(t.Context(), "events/unsubscribe", ofBob.params("git__changed"))
			wantFault(t, err, -32023)
			if _, err := eve.Do(t.Context(), "events/unsubscribe", ofEve.params("git__changed")); err != nil {
				t.Error(mode, err)
			}
			if err := ofBob.subscribe(t, bob, "git__changed"); err != nil { // a refresh
				t.Error(mode, err)
			}
			<-time.After(5 * time.Second)
			s.emit(`{"n":2}`)
			<-time.After(20 * time.Second)
			wantData(t, ofBob, `{"n":1}`, `{"n":2}`)
			wantData(t, ofEve, `{"n":1}`)
			if m := ofBob.messages[0]; m.Event.Name != "git__changed" || m.Cursor == "" && !s.lacksCursor {
				t.Errorf("%s: got %+v with cursor %q", mode, m.Event, m.Cursor)
			}
			wantFault(t, ofBob.subscribe(t, client(t, h, &policy.Caller{}), "git__changed"), -32024)
			wantFault(t, ofBob.subscribe(t, bob, "nothing"), -32023)
		})
	}
}

// Subscriptions continue after a restart with the events since, under the policy that is then in force.
func TestWebhooksAfterRestart(t *testing.T) {
	for _, mode := range []string{"poll", "push"} {
		synctest.Test(t, func(t *testing.T) {
			s, store, n := newEventServer("git", mode), webhook.NewMemory(), oauthtest.NewNetwork(t)
			ofBob, ofEve := newEndpoint(t, n, "bob"), newEndpoint(t, n, "eve")
			open := func(o host.Options) *host.Host {
				h := eventHost(t, map[string]*eventServer{"git": s, "db": newEventServer("db", "push")}, o)
				offer(t, h, n, host.EventWebhooks{Store: store})
				return h
			}
			h := open(host.Options{})
			for name, e := range map[string]*endpoint{"bob": ofBob, "eve": ofEve} {
				p := principal(name)
				p.Claims = map[string]any{"team": name}
				if err := e.subscribe(t, client(t, h, &policy.Caller{Principal: p}), "git__changed"); err != nil {
					t.Fatal(err)
				}
			}
			s.emit(`{"n":1,"secret":"swordfish"}`)
			<-time.After(20 * time.Second)
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			s.emit(`{"n":2,"secret":"swordfish"}`)
			// The policy decides by the stored claims.
			open(host.Options{Policy: policyFunc(func(a *policy.Action) policy.Decision {
				d := policy.Decision{Do: policy.OutcomeAllow}
				switch {
				case a.Kind == policy.ActionResult:
					d.Redact = []policy.Redaction{{Pointer: "/secret"}}
				case a.Kind == policy.ActionEvent && a.Caller.Principal.Claims["team"] != "bob":
					d = policy.Decision{Rule: "only-bob"}
				}
				return d
			})})
			<-time.After(20 * time.Second)
			s.emit(`{"n":3}`)
			<-time.After(20 * time.Second)
			wantData(t, ofBob, `{"n":1,"secret":"swordfish"}`, `{"n":2,"secret":"[redacted]"}`, `{"n":3}`)
			wantData(t, ofEve, `{"n":1,"secret":"swordfish"}`, "terminated")
			if e := ofEve.messages[1].Error; e == nil || e.Code != -32024 {
				t.Errorf("got %v", e)
			}
		})
	}
}

// The policy decides about an event by the claims of the last request of the caller, also while the subscription lasts.
func TestRefreshOfWebhookReplacesTheClaims(t *testing.T) {
	for _, mode := range []string{"poll", "push"} {
		synctest.Test(t, func(t *testing.T) {
			s, n := newEventServer("git", mode), oauthtest.NewNetwork(t)
			h := eventHost(t, map[string]*eventServer{"git": s}, host.Options{
				Policy: policyFunc(func(a *policy.Action) policy.Decision {
					d := policy.Decision{Do: policy.OutcomeAllow}
					if a.Kind == policy.ActionResult && a.Caller.Principal.Claims["team"] != "admin" {
						d.Redact = []policy.Redaction{{Pointer: "/secret"}}
					}
					return d
				})})
			offer(t, h, n, host.EventWebhooks{})
			e := newEndpoint(t, n, "bob")
			for i, team := range []string{"admin", "staff"} {
				p := principal("bob")
				p.Claims = map[string]any{"team": team}
				if err := e.subscribe(t, client(t, h, &policy.Caller{Principal: p}), "git__changed"); err != nil {
					t.Fatal(err)
				}
				s.emit(`{"n":` + string(rune('1'+i)) + `,"secret":"swordfish"}`)
				<-time.After(20 * time.Second)
			}
			wantData(t, e, `{"n":1,"secret":"swordfish"}`, `{"n":2,"secret":"[redacted]"}`)
		})
	}
}

// A subscription ends when its caller does, when the policy no longer allows it, and not when the server is down. The
// audit log contains its begin and end, and events that the policy refused.
func TestEndOfWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newEventServer("git", "push"), oauthtest.NewNetwork(t)
		var mu sync.Mutex
		var kinds []string
		var denies atomic.Value
		denies.Store("")
		h := eventHost(t, map[string]*eventServer{"git": s}, host.Options{
			Policy: policyFunc(func(a *policy.Action) policy.Decision {
				if a.Kind == policy.ActionResult && strings.Contains(string(a.Result), "private") ||
					a.Kind == policy.ActionEvent && a.Caller.Principal.Subject == denies.Load() {
					return policy.Decision{Rule: "no"}
				}
				return policy.Decision{Do: policy.OutcomeAllow}
			}),
			Recorder: recorderFunc(func(r *event.Record) {
				if r.Kind == policy.ActionEvent {
					mu.Lock()
					defer mu.Unlock()
					kinds = append(kinds, r.Caller.Principal.Subject+" "+r.Method+" "+string(r.Event))
				}
			})})
		var revoked atomic.Bool
		offer(t, h, n, host.EventWebhooks{Caller: func(_ context.Context, c *policy.Caller) (*policy.Caller, error) {
			switch {
			case c.Principal.Subject == "bob" && revoked.Load():
				return nil, &mcp.Error{Code: -32024, Message: "revoked"}
			case c.Principal.Subject == "dan" && revoked.Load():
				return nil, errors.New("the keys cannot be read")
			}
			return c, nil
		}})
		all := map[string]*endpoint{}
		for _, name := range []string{"bob", "eve", "dan"} {
			all[name] = newEndpoint(t, n, name)
			if err := all[name].subscribe(t, client(t, h, &policy.Caller{Principal: principal(name)}), "git__changed"); err != nil {
				t.Fatal(err)
			}
		}
		s.emit(`{"n":1}`)
		s.emit(`{"private":2}`)
		<-time.After(time.Second)
		revoked.Store(true)
		denies.Store("eve")
		<-time.After(30 * time.Second)
		revoked.Store(false)
		<-time.After(2 * time.Minute)
		s.emit(`{"n":3}`)
		<-time.After(2 * time.Minute)
		wantData(t, all["bob"], `{"n":1}`, "terminated")
		wantData(t, all["eve"], `{"n":1}`, "terminated")
		wantData(t, all["dan"], `{"n":1}`, `{"n":3}`)
		mu.Lock()
		defer mu.Unlock()
		slices.Sort(kinds)
		want := []string{"bob events/subscribe end", "bob events/subscribe intent", "bob events/subscribe refused",
			"dan events/subscribe end", "dan events/subscribe intent", "dan events/subscribe refused",
			"eve events/subscribe end", "eve events/subscribe intent", "eve events/subscribe refused",
			"eve events/subscribe refused"}
		if !slices.Equal(kinds, want) {
			t.Errorf("got records %q", kinds)
		}
	})
}

// While the policy cannot decide, webhooks, streams and polls deliver nothing and lose nothing: neither the subscription
// nor an event. A request is refused.
func TestEventsWaitForUndecidedPolicies(t *testing.T) {
	for _, mode := range []string{"poll", "push", "push without cursors"} {
		synctest.Test(t, func(t *testing.T) {
			s, n := newEventServer("git", strings.Fields(mode)[0]), oauthtest.NewNetwork(t)
			s.lacksCursor = strings.Contains(mode, "without")
			var mu sync.Mutex
			failures, asked := map[policy.ActionKind]int{}, map[policy.ActionKind]int{} // guarded by mu
			fail := func(all map[policy.ActionKind]int) {
				mu.Lock()
				defer mu.Unlock()
				failures, asked = all, map[policy.ActionKind]int{}
			}
			h := eventHost(t, map[string]*eventServer{"git": s}, host.Options{
				Policy: policyFunc(func(a *policy.Action) policy.Decision {
					mu.Lock()
					defer mu.Unlock()
					if asked[a.Kind]++; asked[a.Kind] <= failures[a.Kind] {
						return policy.Decision{Undecided: true}
					}
					return policy.Decision{Do: policy.OutcomeAllow}
				})})
			offer(t, h, n, host.EventWebhooks{})
			e, c := newEndpoint(t, n, "bob"), client(t, h, &policy.Caller{Principal: principal("bob")})
			fail(map[policy.ActionKind]int{policy.ActionEvent: 1})
			if err := e.subscribe(t, c, "git__changed"); err == nil {
				t.Error("the request was served, want it to be refused")
			}
			f := stream(t, c, params("git__changed"))
			if err := e.subscribe(t, c, "git__changed"); err != nil {
				t.Fatal(err)
			}
			first, err := poll(t, c, params("git__changed"))
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for i, all := range []map[policy.ActionKind]int{{policy.ActionEvent: 4}, {policy.ActionResult: 4},
				{policy.ActionEvent: 2, policy.ActionResult: 6}} {
				fail(all)
				s.emit(`{"n":` + string(rune('1'+i)) + `}`)
				<-time.After(80 * time.Second) // three times less than a lease of kept events
			}
			f.cancel()
			<-f.done
			want := []string{`{"n":1}`, `{"n":2}`, `{"n":3}`}
			wantData(t, e, want...)
			if got := f.data(); !slices.Equal(got, want) || len(f.received("error")) > 0 {
				t.Errorf("%s: the stream got %q and the errors %+v", mode, got, f.received("error"))
			}
			fail(map[policy.ActionKind]int{policy.ActionResult: 2})
			next := params("git__changed", "cursor", first.Cursor)
			if p, err := poll(t, c, next); err == nil {
				t.Errorf("%s: got %+v, want an error while the policy cannot decide", mode, p)
			}
			fail(nil)
			if p, err := poll(t, c, next); err != nil || !slices.Equal(p.data(), want) {
				t.Errorf("%s: got %+v, %v after the policy could decide again", mode, p, err)
			}
		})
	}
}

// A slowStore is a store whose records are read for as long as a caller is looked up.
type slowStore struct {
	webhook.Store
	seen chan bool
	err  error
}

func (s slowStore) All(ctx context.Context) iter.Seq2[webhook.Record, error] {
	return func(yield func(webhook.Record, error) bool) {
		for r, err := range s.Store.All(ctx) {
			if !yield(r, err) {
				return
			}
		}
		<-s.seen
		if s.err != nil {
			yield(webhook.Record{}, s.err)
		}
	}
}

// The first subscriptions that are restored find a host that offers webhooks. A host that cannot read the store does not
// offer them.
func TestRestoredWebhooksFindWebhooks(t *testing.T) {
	for _, failure := range []error{nil, errors.New("the store is damaged")} {
		synctest.Test(t, func(t *testing.T) {
			s, n, store := newEventServer("git", "push"), oauthtest.NewNetwork(t), webhook.NewMemory()
			h := eventHost(t, map[string]*eventServer{"git": s}, host.Options{})
			offer(t, h, n, host.EventWebhooks{Store: store})
			bob := client(t, h, &policy.Caller{Principal: principal("bob")})
			if err := newEndpoint(t, n, "bob").subscribe(t, bob, "git__changed"); err != nil {
				t.Fatal(err)
			}
			if err := h.Close(); err != nil {
				t.Fatal(err)
			}
			h = eventHost(t, map[string]*eventServer{"git": s}, host.Options{})
			offers := func(name string) bool {
				c := client(t, h, &policy.Caller{Principal: principal(name)})
				list, err := c.Do(t.Context(), "events/list", nil)
				return err == nil && strings.Contains(string(list), `"webhook"]`)
			}
			seen := make(chan bool)
			var once sync.Once
			err := h.OfferWebhooks(t.Context(), &host.EventWebhooks{
				Store: slowStore{store, seen, failure}, Fetcher: (*oauth.Fetcher)(n.Fetcher(&oauthfetch.Options{})),
				Caller: func(_ context.Context, c *policy.Caller) (*policy.Caller, error) {
					once.Do(func() {
						if !offers("bob") {
							t.Error("a stored caller was looked up before the host offers webhooks")
						}
						close(seen)
					})
					return c, nil
				}})
			if isOffered := offers("eve"); !errors.Is(err, failure) || isOffered != (failure == nil) {
				t.Errorf("got %v, offers webhooks: %t, want %v", err, isOffered, failure)
			}
		})
	}
}

// Each of several URLs of a principal receives the events since its own subscription began, also while the endpoints are
// proven at the same time.
func TestConcurrentWebhooksOfAPrincipal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newEventServer("git", "push"), oauthtest.NewNetwork(t)
		s.lacksCursor = true // the feeds that have begun are the only way to learn of the events since
		h := eventHost(t, map[string]*eventServer{"git": s}, host.Options{})
		offer(t, h, n, host.EventWebhooks{})
		proven, done := make(chan bool), make(chan error)
		all := []*endpoint{newEndpoint(t, n, "one"), newEndpoint(t, n, "two")}
		for _, e := range all {
			n.Page(e.url, func(w http.ResponseWriter, r *http.Request) {
				<-proven
				e.receiver.ServeHTTP(w, r)
			})
			c := client(t, h, &policy.Caller{Principal: principal("bob")})
			go func() {
				_, err := c.Do(t.Context(), "events/subscribe", e.params("git__changed"))
				done <- err
			}()
			synctest.Wait()
		}
		s.emit(`{"n":1}`)
		synctest.Wait()
		close(proven)
		if err := errors.Join(<-done, <-done); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, e := range all {
			wantData(t, e, `{"n":1}`)
		}
	})
}

// A principal has a limited number of webhooks.
func TestLimitOfWebhooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := oauthtest.NewNetwork(t)
		h := eventHost(t, map[string]*eventServer{"git": newEventServer("git", "push")}, host.Options{})
		offer(t, h, n, host.EventWebhooks{})
		c, e := client(t, h, &policy.Caller{Principal: principal("bob")}), newEndpoint(t, n, "bob")
		for i := range 64 {
			if err := e.subscribe(t, c, "git__changed", "arguments", json.RawMessage(`{"n":`+string(rune('0'+i%10))+
				`,"m":`+string(rune('0'+i/10))+`}`)); err != nil {
				t.Fatal(i, err)
			}
		}
		wantFault(t, e.subscribe(t, c, "git__changed"), -32025)
		eve := newEndpoint(t, n, "eve")
		if err := eve.subscribe(t, client(t, h, &policy.Caller{Principal: principal("eve")}), "git__changed"); err != nil {
			t.Error(err)
		}
	})
}
