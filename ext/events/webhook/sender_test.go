package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A world is a sender, an endpoint with a receiver, and a feed.
type world struct {
	*network
	feed     *feed
	receiver *webhook.Receiver
	inbox    inbox
	secret   webhook.Secret
	sender   *webhook.Sender
}

func newWorld(t *testing.T, opts webhook.SenderOptions) *world {
	w := &world{feed: newFeed(), receiver: webhook.NewReceiver(nil), secret: webhook.NewSecret()}
	w.network = newNetwork(t, w.receiver)
	if _, err := w.receiver.Add(w.secret, w.inbox.handle); err != nil {
		t.Fatal(err)
	}
	w.sender = w.network.sender(w.feed, opts)
	return w
}

func (w *world) subscribe(r webhook.Request) *webhook.Grant {
	w.t.Helper()
	grant, err := w.sender.Subscribe(w.t.Context(), r)
	if err != nil {
		w.t.Fatal(err)
	}
	return grant
}

func wantCode(t *testing.T, err error, code int) *mcp.Error {
	t.Helper()
	e, ok := errors.AsType[*mcp.Error](err)
	if !ok || e.Code != code {
		t.Fatalf("got error %v, want code %d", err, code)
	}
	return e
}

func TestEventsArriveInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		w.feed.emit(3) // before the subscription
		grant := w.subscribe(subscription(w.secret))
		if grant.Cursor != "3" || grant.Truncated || grant.Status != nil ||
			!grant.Expires.Equal(time.Now().Add(30*time.Minute)) {
			t.Errorf("got grant %+v, want the cursor 3 and half an hour", grant)
		}
		w.feed.emit(5)
		synctest.Wait()
		w.inbox.want(t, ids(4, 8)...)
		for _, r := range w.requests() {
			if r.header.Get("X-MCP-Subscription-Id") != grant.ID || r.header.Get("Content-Type") != "application/json" {
				t.Errorf("got header %v, want the id %s and the type JSON", r.header, grant.ID)
			}
		}
	})
}

func TestReceiverThatIsDownGetsEveryEventOnceInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		w.subscribe(subscription(w.secret))
		w.feed.emit(2)
		synctest.Wait()
		w.inbox.want(t, "evt_1", "evt_2")
		w.respond(http.StatusBadGateway)
		w.requests()
		for range 10 {
			w.feed.emit(1)
			pass(time.Minute)
		}
		if got := w.requests(); len(got) < 4 || len(got) > 6 {
			t.Errorf("the endpoint got %d requests in 10 minutes, want 4 to 6", len(got))
		} else if got[0].header.Get("Webhook-Timestamp") == got[1].header.Get("Webhook-Timestamp") {
			t.Error("the second attempt has the signature of the first, want a new one")
		}
		w.respond(0)
		pass(5 * time.Minute)
		w.inbox.want(t, ids(3, 12)...)
	})
}

func TestEventThatIsGivenUpIsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		w.subscribe(subscription(w.secret))
		w.respond(http.StatusInternalServerError)
		w.feed.emit(1)
		pass(16 * time.Minute)
		w.respond(0)
		if got := len(w.requests()); got != 6 {
			t.Errorf("the event was sent %d times, want 6", got)
		}
		w.feed.emit(1)
		synctest.Wait()
		w.inbox.want(t, webhook.TypeGap, "evt_2")
	})
}

func TestEventsThatTheEndpointRefusesAreNotRepeated(t *testing.T) {
	for _, status := range []int{http.StatusGone, http.StatusRequestEntityTooLarge} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, webhook.SenderOptions{})
			w.subscribe(subscription(w.secret))
			w.respond(status)
			w.feed.emit(1)
			pass(time.Hour / 3)
			w.respond(0)
			if got := len(w.requests()); got != 1 {
				t.Errorf("status %d: the event was sent %d times, want once", status, got)
			}
			w.feed.emit(1)
			synctest.Wait()
			w.inbox.want(t, "evt_2")
		})
	}
}

func TestGapOfTheFeed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		w.feed.emit(5)
		w.feed.change(func() { w.feed.oldest = 3 })
		r := subscription(w.secret)
		r.Cursor = cursorOf(1)
		w.subscribe(r)
		synctest.Wait()
		w.inbox.want(t, webhook.TypeGap, "evt_4", "evt_5")
		if got := w.requests()[0]; got.body != `{"type":"gap","cursor":"3"}` ||
			!strings.HasPrefix(got.header.Get("Webhook-Id"), "msg_gap_") {
			t.Errorf("got %s with id %s, want a gap", got.body, got.header.Get("Webhook-Id"))
		}
	})
}

func TestRevokedSubscriptionEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		w.subscribe(subscription(w.secret))
		w.feed.fail(errors.New("the upstream fails for a moment"))
		synctest.Wait()
		w.feed.emit(1)
		pass(2 * time.Second)
		w.inbox.want(t, "evt_1")
		w.feed.fail(&mcp.Error{Code: events.CodeForbidden, Message: "revoked", Data: json.RawMessage(`{"reason":"left"}`)})
		synctest.Wait()
		w.inbox.want(t, webhook.TypeTerminated)
		if e := w.inbox.cause; e.Code != events.CodeForbidden || string(e.Data) != `{"reason":"left"}` {
			t.Errorf("the subscription ended with %v, want the error of the feed", e)
		}
		if n := w.sender.Count(); n != 0 {
			t.Errorf("got %d subscriptions, want none", n)
		}
	})
}

func TestEndpointMustProveThatItWantsDeliveries(t *testing.T) {
	reply := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		reason  string
	}{
		"no answer":        {reply(200, ""), webhook.CategoryChallenge},
		"a wrong answer":   {reply(200, `{"challenge":"guess"}`), webhook.CategoryChallenge},
		"an echo":          {func(w http.ResponseWriter, r *http.Request) { _ = r.Write(w) }, webhook.CategoryChallenge},
		"an error":         {reply(500, `secret`), webhook.CategoryChallenge},
		"not found":        {reply(404, ``), webhook.CategoryChallenge},
		"a redirect":       {reply(302, ``), webhook.CategoryChallenge},
		"a receiver alone": {webhook.NewReceiver(nil).ServeHTTP, webhook.CategoryChallenge}, // does not know the secret
		"silence":          {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, webhook.CategoryTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, f := newNetwork(t, tt.handler), newFeed()
				s := n.sender(f, webhook.SenderOptions{})
				_, err := s.Subscribe(t.Context(), subscription(webhook.NewSecret()))
				e := wantCode(t, err, events.CodeCallbackEndpoint)
				if want := fmt.Sprintf(`{"reason":%q}`, tt.reason); string(e.Data) != want {
					t.Errorf("got data %s, want %s", e.Data, want)
				}
				f.emit(1)
				synctest.Wait()
				if got := n.requests(); len(got) != 0 {
					t.Errorf("the endpoint got %d events, want none", len(got))
				}
			})
		})
	}
}

// challenges counts the challenges at an endpoint that answers them.
func countChallenges(w *world) func() int {
	w.Requests()
	return func() int { return len(w.Requests()) }
}

func TestProofIsForAPrincipalAndItsURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		count := countChallenges(w)
		r := subscription(w.secret)
		w.subscribe(r)
		w.subscribe(r)
		if n := count(); n != 1 {
			t.Errorf("a subscription and its refresh caused %d requests, want a challenge", n)
		}
		other := r
		secret := webhook.NewSecret()
		other.Arguments, other.Secret = json.RawMessage(`{"min":5}`), secret.Reveal()
		w.subscribe(other)
		if n := count(); n != 0 {
			t.Errorf("other arguments caused %d requests, want none", n)
		}
		other.Principal = bob
		if _, err := w.receiver.Add(secret, w.inbox.handle); err != nil {
			t.Fatal(err)
		}
		w.subscribe(other)
		if n := count(); n != 1 {
			t.Errorf("another principal caused %d requests, want a challenge", n)
		}
		if n := w.sender.Count(); n != 3 {
			t.Errorf("got %d subscriptions, want 3", n)
		}
	})
}

func TestKnownURLNeedsNoProof(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := func(_ context.Context, _ *mcp.Principal, url string) bool { return url == address }
		w := newWorld(t, webhook.SenderOptions{IsVerified: known})
		count := countChallenges(w)
		w.subscribe(subscription(w.secret))
		if n := count(); n != 0 {
			t.Errorf("a known URL got %d requests, want none", n)
		}
	})
}

func TestSubscriptionIdentity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		known := func(context.Context, *mcp.Principal, string) bool { return true }
		w := newWorld(t, webhook.SenderOptions{IsVerified: known})
		r := subscription(w.secret)
		r.Arguments = json.RawMessage(`{"a":1.0,"b":[true]}`)
		first := w.subscribe(r)
		r.Arguments = json.RawMessage(` { "b" : [ true ], "a" : 1 } `)
		if again := w.subscribe(r); again.ID != first.ID || again.Status == nil {
			t.Errorf("equal arguments: got %+v, want the subscription %s", again, first.ID)
		}
		for name, change := range map[string]func(*webhook.Request){
			"arguments": func(r *webhook.Request) { r.Arguments = json.RawMessage(`{"a":2}`) },
			"URL":       func(r *webhook.Request) { r.URL += "/2" },
			"principal": func(r *webhook.Request) { r.Principal = bob },
		} {
			other := r
			change(&other)
			if grant := w.subscribe(other); grant.ID == first.ID || grant.Status != nil {
				t.Errorf("another %s: got %+v, want another subscription than %s", name, grant, first.ID)
			}
		}
		foreign := r.Subscription
		foreign.Principal = &mcp.Principal{Subject: "mallory"}
		wantCode(t, w.sender.Unsubscribe(t.Context(), foreign, address), events.CodeNotFound)
		foreign.Principal = nil
		wantCode(t, w.sender.Unsubscribe(t.Context(), foreign, address), events.CodeForbidden)
		if err := w.sender.Unsubscribe(t.Context(), r.Subscription, address); err != nil {
			t.Fatal(err)
		}
		wantCode(t, w.sender.Unsubscribe(t.Context(), r.Subscription, address), events.CodeNotFound)
		if n := w.sender.Count(); n != 3 {
			t.Errorf("got %d subscriptions, want 3", n)
		}
	})
}

func TestInvalidRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		arguments := func(text string) func(*webhook.Request) {
			return func(r *webhook.Request) { r.Arguments = json.RawMessage(text) }
		}
		url := func(text string) func(*webhook.Request) { return func(r *webhook.Request) { r.URL = text } }
		for name, tt := range map[string]struct {
			change func(*webhook.Request)
			code   int
		}{
			"no principal":     {func(r *webhook.Request) { r.Principal = nil }, events.CodeForbidden},
			"no secret":        {func(r *webhook.Request) { r.Secret = "" }, mcp.CodeInvalidParams},
			"short secret":     {func(r *webhook.Request) { r.Secret = "whsec_AAAA" }, mcp.CodeInvalidParams},
			"http":             {url("http://hooks.example/mcp"), mcp.CodeInvalidParams},
			"no URL":           {url(""), mcp.CodeInvalidParams},
			"a list":           {arguments(`[]`), mcp.CodeInvalidParams},
			"duplicate names":  {arguments(`{"a":1,"a":2}`), mcp.CodeInvalidParams},
			"unknown event":    {func(r *webhook.Request) { r.Name = "order.lost" }, events.CodeNotFound},
			"large arguments":  {arguments(`{"a":"` + strings.Repeat("x", 70<<10) + `"}`), mcp.CodeInvalidParams},
			"another endpoint": {url("https://hooks.example/other"), events.CodeCallbackEndpoint},
		} {
			r := subscription(w.secret)
			tt.change(&r)
			_, err := w.sender.Subscribe(t.Context(), r)
			if e, ok := errors.AsType[*mcp.Error](err); !ok || e.Code != tt.code {
				t.Errorf("%s: got error %v, want code %d", name, err, tt.code)
			} else if strings.Contains(e.Message, "whsec_AAAA") {
				t.Errorf("%s: the error %q repeats the secret", name, e.Message)
			}
		}
	})
}

func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{MaxPerPrincipal: 3, MaxSubscriptions: 4})
		add := func(p *mcp.Principal, n int) error {
			r := subscription(w.secret)
			r.Principal, r.Arguments = p, json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))
			_, err := w.sender.Subscribe(t.Context(), r)
			return err
		}
		for n := range 3 {
			if err := add(alice, n); err != nil {
				t.Fatal(err)
			}
		}
		e := wantCode(t, add(alice, 3), events.CodeResourceExhausted)
		if string(e.Data) != `{"limit":"subscriptions","max":3}` {
			t.Errorf("got data %s, want the limit of 3 subscriptions", e.Data)
		}
		if err := add(alice, 2); err != nil {
			t.Errorf("a refresh at the limit: got error %v, want success", err)
		}
		pass(time.Hour)
		if n := w.sender.Count(); n != 0 {
			t.Errorf("got %d subscriptions after their end, want none", n)
		}
		if err := add(alice, 0); err != nil {
			t.Errorf("after the end of the others: got error %v, want success", err)
		}
	})
}

func TestChallengesOfAHostAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t, http.NotFoundHandler())
		s := n.sender(newFeed(), webhook.SenderOptions{})
		try := func(p *mcp.Principal) int {
			r := subscription(webhook.NewSecret())
			r.Principal = p
			_, err := s.Subscribe(t.Context(), r)
			e, _ := errors.AsType[*mcp.Error](err)
			return e.Code
		}
		for range 15 {
			try(alice)
		}
		if got := len(n.Requests()); got != 10 {
			t.Errorf("a principal caused %d requests in a minute, want 10", got)
		}
		if code := try(alice); code != events.CodeResourceExhausted {
			t.Errorf("got code %d, want that of an exhausted limit", code)
		}
		for i := range 100 {
			try(&mcp.Principal{Subject: fmt.Sprint(i)})
		}
		if got := len(n.Requests()); got != 50 {
			t.Errorf("100 more principals caused %d requests, want 50", got)
		}
		pass(time.Minute)
		if code := try(alice); code != events.CodeCallbackEndpoint {
			t.Errorf("after a minute: got code %d, want another challenge", code)
		}
	})
}

func TestLifetimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{TTL: 10 * time.Minute, MaxTTL: 20 * time.Minute})
		for name, tt := range map[string]struct {
			change func(*webhook.Request)
			want   time.Duration
		}{
			"none suggested": {func(*webhook.Request) {}, 10 * time.Minute},
			"suggested":      {func(r *webhook.Request) { r.TTL = 15 * time.Minute }, 15 * time.Minute},
			"too long":       {func(r *webhook.Request) { r.TTL = 15 * time.Hour }, 20 * time.Minute},
			"too short":      {func(r *webhook.Request) { r.TTL = time.Second }, time.Minute},
			"without end":    {func(r *webhook.Request) { r.NoExpiry = true }, 20 * time.Minute},
		} {
			r := subscription(w.secret)
			tt.change(&r)
			if got := time.Until(w.subscribe(r).Expires); got != tt.want {
				t.Errorf("%s: got a lifetime of %v, want %v", name, got, tt.want)
			}
		}
		r := subscription(w.secret)
		r.TTL = 2 * time.Minute
		for range 5 {
			w.subscribe(r)
			pass(90 * time.Second)
		}
		w.feed.emit(1)
		synctest.Wait()
		w.inbox.want(t, "evt_1")
		pass(31 * time.Second)
		w.feed.emit(1)
		synctest.Wait()
		w.inbox.want(t)
		if n := w.sender.Count(); n != 0 {
			t.Errorf("got %d subscriptions after the end, want none", n)
		}
	})
}

func TestLongLifetimesNeedADurableStore(t *testing.T) {
	for _, opts := range []webhook.SenderOptions{{NoExpiry: true}, {MaxTTL: 2 * time.Hour}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v: got a sender, want a panic", opts)
				}
			}()
			_ = webhook.NewSender(&opts).Close()
		}()
	}
}

func TestRotation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		w.subscribe(subscription(w.secret))
		next := webhook.NewSecret()
		w.subscribe(subscription(next)) // the receiver knows only the old secret
		w.feed.emit(1)
		synctest.Wait()
		w.inbox.want(t, "evt_1")
		signatures := func() string { return w.requests()[0].header.Get("Webhook-Signature") }
		if got := signatures(); strings.Count(got, "v1,") != 2 {
			t.Errorf("got signatures %q, want two", got)
		}
		pass(6 * time.Minute)
		w.feed.emit(1)
		synctest.Wait()
		w.inbox.want(t)
		if got := signatures(); strings.Count(got, "v1,") != 1 {
			t.Errorf("later: got signatures %q, want a single signature", got)
		}
	})
}

// A secret that does not sign any more must not remain in the store, and a secret signs once.
func TestExpiredSecretsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := webhook.NewMemory()
		w := newWorld(t, webhook.SenderOptions{Store: store})
		stored := func(s webhook.Secret) bool {
			for r, err := range store.All(t.Context()) {
				if err != nil {
					t.Fatal(err)
				}
				return strings.Contains(string(r.Data), s.Reveal())
			}
			return false
		}
		second, third := webhook.NewSecret(), webhook.NewSecret()
		w.subscribe(subscription(w.secret))
		w.subscribe(subscription(second))
		w.subscribe(subscription(w.secret))
		w.feed.emit(1)
		synctest.Wait()
		if got := w.requests()[0].header.Get("Webhook-Signature"); strings.Count(got, "v1,") != 2 {
			t.Errorf("got signatures %q, want two", got)
		}
		pass(6 * time.Minute)
		w.subscribe(subscription(third))
		if !stored(third) || !stored(w.secret) || stored(second) {
			t.Errorf("got new secret %t, old %t, expired %t in the store, want the first two", stored(third),
				stored(w.secret), stored(second))
		}
	})
}

// A refresh by a caller with other scopes applies to later checks of the permission.
func TestRefreshReplacesScopes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		rec := &recorder{feed: newFeed()}
		s := w.network.sender(rec, webhook.SenderOptions{})
		for _, scope := range []string{"a", "b"} {
			r := subscription(w.secret)
			r.Principal = &mcp.Principal{Issuer: alice.Issuer, Subject: alice.Subject, Scopes: []string{scope}}
			if _, err := s.Subscribe(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		before := len(rec.begun)
		w.respond(http.StatusServiceUnavailable)
		rec.emit(1)
		pass(10 * time.Second) // the permission is checked before the second attempt
		if len(rec.begun) == before {
			t.Fatal("the permission was not checked again")
		}
		if got := rec.begun[len(rec.begun)-1].Principal.Scopes; len(got) != 1 || got[0] != "b" {
			t.Errorf("the feed got the scopes %q, want b", got)
		}
	})
}

func TestSuspendedDeliveriesResumeWithARefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		r := subscription(w.secret)
		r.TTL = time.Hour
		refresh := func() *webhook.Grant { return w.subscribe(r) }
		refresh()
		w.respond(http.StatusServiceUnavailable)
		w.feed.emit(40)
		var status *webhook.Status
		for range 3 {
			pass(50 * time.Minute)
			if status = refresh().Status; !status.Active {
				break
			}
		}
		if status.Active || status.LastError != webhook.CategoryHTTP5xx || status.FailedSince.IsZero() {
			t.Fatalf("got status %+v after hours of failures, want a suspended subscription", status)
		}
		w.respond(0)
		pass(20 * time.Minute)
		if status = refresh().Status; !status.Active || status.LastError != "" || status.LastDelivery.IsZero() {
			t.Errorf("got status %+v after a success, want an active subscription", status)
		}
	})
}
