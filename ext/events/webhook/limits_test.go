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
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Ports and spellings of a host share its limit, and a principal may not call ever more hosts.
func TestChallengesAreLimited(t *testing.T) {
	for _, tt := range []struct {
		name string
		url  func(n int) string
		want int
	}{
		{"ports", func(n int) string { return fmt.Sprintf("https://a.example:%d/", n+1) }, 10},
		{"spellings", func(n int) string {
			return []string{"https://a.example/", "https://A.example/", "https://a.example./"}[n%3]
		}, 10},
		{"hosts", func(n int) string { return fmt.Sprintf("https://h%d.example/", n) }, 100},
		{"long hosts", func(n int) string { return fmt.Sprintf("https://h%d.%sx/", n, strings.Repeat("a.", 130)) }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newNetwork(t, nil).sender(newFeed(), webhook.SenderOptions{})
			challenged := 0
			for n := range 120 {
				r := subscription(webhook.NewSecret())
				r.URL = tt.url(n)
				_, err := s.Subscribe(t.Context(), r)
				if e, ok := errors.AsType[*mcp.Error](err); ok && e.Code == events.CodeCallbackEndpoint {
					challenged++
				}
			}
			if challenged != tt.want {
				t.Errorf("%s: got %d challenges in a minute, want %d", tt.name, challenged, tt.want)
			}
		})
	}
}

// A recorder is a feed that keeps the subscriptions that begin.
type recorder struct {
	*feed
	begun []events.Subscription
}

func (r *recorder) Begin(ctx context.Context, s events.Subscription, at events.Start) (string, bool, error) {
	r.begun = append(r.begun, s)
	return r.feed.Begin(ctx, s, at)
}

// The feed decides at first about what it decides about later: the principal as it is stored, and the
// arguments as they were sent.
func TestFeedSeesTheStoredPrincipalAndExactArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		rec := &recorder{feed: newFeed()}
		s := w.network.sender(rec, webhook.SenderOptions{})
		r := subscription(w.secret)
		r.Principal = &mcp.Principal{Issuer: alice.Issuer, Subject: alice.Subject, Scopes: []string{"a"},
			Claims: map[string]any{"sub": "alice"}}
		seen := map[string]bool{}
		for _, arguments := range []string{`{"n":9007199254740993}`, `{"n":9007199254740992}`,
			`{ "n" : 9007199254740993 }`} {
			r.Arguments = json.RawMessage(arguments)
			grant, err := s.Subscribe(t.Context(), r)
			if err != nil {
				t.Fatal(err)
			}
			seen[grant.ID] = true
			got := rec.begun[len(rec.begun)-1]
			if string(got.Arguments) != arguments || got.Principal.Claims != nil || got.Principal.Key() != alice.Key() ||
				len(got.Principal.Scopes) != 1 {
				t.Errorf("the feed got %s of %+v, want %s and no claims", got.Arguments, got.Principal, arguments)
			}
		}
		if len(seen) != 2 {
			t.Errorf("got %d subscriptions, want one for each number", len(seen))
		}
	})
}

// Servers choose the IDs of subscriptions, so two may choose the same.
func TestServersMayChooseTheSameID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := webhook.NewReceiver(nil)
		first, second := &inbox{}, &inbox{}
		secrets := []webhook.Secret{webhook.NewSecret(), webhook.NewSecret()}
		sendTo := func(subscription string, secret webhook.Secret, id string, want int) {
			t.Helper()
			wantStatus(t, id, post(t, r, secret, subscription, id, strings.Replace(paid, "evt_1", id, 1), nil), want)
		}
		send := func(secret webhook.Secret, id string) {
			t.Helper()
			sendTo("sub_1", secret, id, http.StatusOK)
		}
		for i, box := range []*inbox{first, second} {
			route, err := r.Add(secrets[i], box.handle)
			if err != nil {
				t.Fatal(err)
			}
			if send(secrets[i], "evt_1"); i == 1 {
				send(secrets[0], "evt_2")
				route.Close()
				route.Bind("sub_2") // too late
				send(secrets[0], "evt_3")
				sendTo("sub_2", secrets[1], "evt_4", http.StatusServiceUnavailable)
			}
		}
		first.want(t, ids(1, 3)...)
		second.want(t, "evt_1")
	})
}

// A failing store keeps a record that a restart would revive.
func TestUnsubscribeThatIsNotStored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &durable{Store: webhook.NewMemory()}
		w := newWorld(t, webhook.SenderOptions{Store: store})
		r := subscription(w.secret)
		stored := func() (n int) {
			for range store.All(t.Context()) {
				n++
			}
			return n
		}
		w.subscribe(r)
		store.stuck.Store(true)
		if err := w.sender.Unsubscribe(t.Context(), r.Subscription, r.URL); err == nil {
			t.Error("got success, want the error of the store")
		}
		w.feed.emit(1)
		pass(time.Second)
		w.inbox.want(t)
		store.stuck.Store(false)
		w.subscribe(r) // takes the place of the record
		pass(10 * time.Minute)
		if n := stored(); n != 1 || w.sender.Count() != 1 {
			t.Errorf("got %d records and %d subscriptions, want 1", n, w.sender.Count())
		}
		store.stuck.Store(true)
		if err := w.sender.Unsubscribe(t.Context(), r.Subscription, r.URL); err == nil {
			t.Error("got success, want the error of the store")
		}
		store.stuck.Store(false)
		pass(2 * time.Minute)
		if n := stored(); n != 0 || w.sender.Count() != 0 {
			t.Errorf("got %d records and %d subscriptions after 2 minutes, want none", n, w.sender.Count())
		}
		wantCode(t, w.sender.Unsubscribe(t.Context(), r.Subscription, r.URL), events.CodeNotFound)
	})
}

// A refresh that fails changes nothing: the client believes that the old secret is in force.
func TestRefreshThatIsNotStoredChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &durable{Store: webhook.NewMemory()}
		w := newWorld(t, webhook.SenderOptions{Store: store})
		w.subscribe(subscription(w.secret))
		store.failing.Store(true)
		if _, err := w.sender.Subscribe(t.Context(), subscription(webhook.NewSecret())); err == nil {
			t.Error("got success, want the error of the store")
		}
		pass(6 * time.Minute)
		w.feed.emit(1)
		synctest.Wait()
		w.inbox.want(t, "evt_1")
	})
}

// What a server emitted while an endpoint was down stays in memory for as long as attempts last.
func TestEmittedEventsWaitForAnEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, box := newShop(t), &inbox{}
		secret := webhook.NewSecret()
		if _, err := s.receiver.Add(secret, box.handle); err != nil {
			t.Fatal(err)
		}
		if _, err := s.sender.Subscribe(t.Context(), subscription(secret)); err != nil {
			t.Fatal(err)
		}
		s.respond(http.StatusServiceUnavailable)
		for n := range 10 {
			s.emit(n + 1)
			pass(time.Minute)
		}
		s.respond(0)
		pass(6 * time.Minute)
		box.want(t, ids(1, 10)...)
	})
}

// answering returns a client of a server whose responses to events/subscribe the function gives.
func (s *shop) answering(answer func(n int) (string, error)) *mcp.Client {
	n := 0
	return mcptest.Dial(s.t, mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method != "events/subscribe" {
			return s.server.ServeMCP(ctx, req)
		}
		n++
		until, err := answer(n)
		return mcp.RawResult(`{"resultType":"complete","id":"sub_1","refreshBefore":"` + until +
			`","cursor":null,"truncated":false}`), err
	}), inMemory, nil)
}

func TestClientDoesNotTrustALongGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, count := newShop(t), 0
		c := s.answering(func(n int) (string, error) { count = n; return "9999-01-01T00:00:00Z", nil })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour+time.Minute)
		defer cancel()
		_ = webhook.Subscribe(ctx, c, "order.paid", nil, new(inbox).handle,
			&webhook.SubscribeOptions{URL: address, Receiver: s.receiver})
		if count != 11 {
			t.Errorf("got %d requests in 10 hours, want one each hour", count)
		}
	})
}

func TestClientRefreshesUntilTheSubscriptionExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, start := newShop(t), time.Now()
		c := s.answering(func(n int) (string, error) {
			if n > 1 {
				return "", errors.New("the server is down")
			}
			return start.Add(time.Hour).UTC().Format(time.RFC3339), nil
		})
		err := webhook.Subscribe(t.Context(), c, "order.paid", nil, new(inbox).handle,
			&webhook.SubscribeOptions{URL: address, Receiver: s.receiver})
		if after := time.Since(start); err == nil || after < time.Hour || after > time.Hour+2*time.Minute {
			t.Errorf("got error %v after %v, want one when the subscription expired", err, after)
		}
	})
}
