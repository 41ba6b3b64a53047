package webhook_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

type order struct {
	Number int `json:"number"`
}

type filter struct {
	Min int `json:"min,omitzero"`
}

// A shop is a server with an event type, whose webhooks reach a receiver.
type shop struct {
	*network
	server   *mcp.Server
	orders   *events.Type[order]
	receiver *webhook.Receiver
	sender   *webhook.Sender
	closed   atomic.Bool // to customers
}

func newShop(t testing.TB) *shop { return newShopWith(t, webhook.SenderOptions{}) }

func newShopWith(t testing.TB, opts webhook.SenderOptions) *shop {
	s := &shop{server: mcp.NewServer("shop", "1", nil), receiver: webhook.NewReceiver(nil)}
	s.network = newNetwork(t, s.receiver)
	srv := events.NewServer(s.server, nil)
	s.orders = events.Add(srv, &events.Event{Name: "order.paid"}, events.Source[filter, order]{
		Match: func(_ context.Context, f filter, o order) bool { return o.Number >= f.Min },
		Authorize: func(context.Context, filter) error {
			if s.closed.Load() {
				return events.Forbidden("not a customer")
			}
			return nil
		}})
	events.Add(srv, &events.Event{Name: "order.lost", Delivery: []events.Mode{events.ModePoll}},
		events.Source[filter, order]{})
	s.sender = s.network.newSender(opts)
	if err := s.sender.Serve(t.Context(), srv); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shop) emit(number int) {
	s.t.Helper()
	if err := s.orders.Emit(events.Occurrence[order]{ID: fmt.Sprint("evt_", number), Data: order{number}}); err != nil {
		s.t.Error(err)
	}
}

// runShop runs a test with a client of a shop over every transport.
func runShop(t *testing.T, p *mcp.Principal, body func(t *testing.T, s *shop, c *mcptest.Client)) {
	for _, on := range mcptest.Since(mcptest.Modern) {
		t.Run(on.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newShop(t)
				body(t, s, mcptest.Connect(t, s.server, on, &mcptest.Options{Principal: p}))
			})
		})
	}
}

type object = map[string]any

func TestSubscribeOverEveryTransport(t *testing.T) {
	runShop(t, alice, func(t *testing.T, s *shop, c *mcptest.Client) {
		const number = 100
		arrived := make(chan *webhook.Message, 10)
		secret := webhook.NewSecret()
		route, err := s.receiver.Add(secret, func(_ context.Context, m *webhook.Message) error {
			arrived <- m
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		defer route.Close()
		params := object{"name": "order.paid", "arguments": object{"min": number},
			"delivery": object{"mode": "webhook", "url": address, "secret": secret.Reveal()}, "ttlMs": 60_000}
		var got struct {
			ResultType, ID string
			RefreshBefore  *time.Time
			Cursor         *string
			Truncated      *bool
			DeliveryStatus *struct{ Active bool }
		}
		read := func(raw json.RawMessage) {
			t.Helper()
			if err := json.Unmarshal(raw, &got); err != nil {
				t.Fatal(err)
			}
		}
		read(c.Call("events/subscribe", params))
		if got.ResultType != "complete" || got.Cursor == nil || got.Truncated == nil || got.DeliveryStatus != nil ||
			got.RefreshBefore == nil || time.Until(*got.RefreshBefore) > time.Minute {
			t.Errorf("got %+v, want a grant of at most a minute", got)
		}
		s.emit(number - 1)
		s.emit(number)
		m := <-arrived
		if want := fmt.Sprint("evt_", number); m.ID != want || m.Event.Name != "order.paid" || m.Cursor == "" ||
			m.Subscription != got.ID || string(m.Event.Data) != fmt.Sprintf(`{"number":%d}`, number) {
			t.Errorf("got message %+v, want event %s", m, want)
		}
		read(c.Call("events/subscribe", params))
		if got.DeliveryStatus == nil || !got.DeliveryStatus.Active {
			t.Errorf("the refresh returned %+v, want an active subscription", got)
		}
		c.Call("events/unsubscribe", params)
		if _, err := c.Try("events/unsubscribe", params); err == nil || err.Code != events.CodeNotFound {
			t.Errorf("unsubscribing again: got %v, want code %d", err, events.CodeNotFound)
		}
		for name, tt := range map[string]struct {
			change object
			code   int
		}{
			"no delivery":    {object{"delivery": nil}, mcp.CodeInvalidParams},
			"another mode":   {object{"delivery": object{"mode": "push"}}, events.CodeUnsupported},
			"no webhooks":    {object{"name": "order.lost"}, events.CodeUnsupported},
			"unknown":        {object{"name": "order.none"}, events.CodeNotFound},
			"bad arguments":  {object{"arguments": object{"min": "x"}}, mcp.CodeInvalidParams},
			"a TTL of words": {object{"ttlMs": "long"}, mcp.CodeInvalidParams},
			"a private URL": {object{"delivery": object{"url": "https://[::1]/", "secret": secret.Reveal()}},
				mcp.CodeInvalidParams},
		} {
			changed := object{}
			for _, from := range []object{params, tt.change} {
				for key, value := range from {
					changed[key] = value
				}
			}
			if _, err := c.Try("events/subscribe", changed); err == nil || err.Code != tt.code {
				t.Errorf("%s: got %v, want code %d", name, err, tt.code)
			}
		}
	})
}

func TestAnonymousCallersCannotSubscribe(t *testing.T) {
	runShop(t, nil, func(t *testing.T, _ *shop, c *mcptest.Client) {
		params := object{"name": "order.paid", "delivery": object{"url": address, "secret": webhook.NewSecret().Reveal()}}
		for _, method := range []string{"events/subscribe", "events/unsubscribe"} {
			if _, err := c.Try(method, params); err == nil || err.Code != events.CodeForbidden {
				t.Errorf("%s: got %v, want code %d", method, err, events.CodeForbidden)
			}
		}
	})
}

var inMemory = mcptest.Combination{Transport: mcptest.InMemory, Revision: mcptest.Modern}

func (s *shop) dial() *mcp.Client {
	return mcptest.Dial(s.t, s.server, inMemory, nil)
}

func TestClientRefreshesItsSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, box := newShop(t), &inbox{}
		c := s.dial()
		ctx, cancel := context.WithCancel(mcp.WithPrincipal(t.Context(), alice))
		done := make(chan error, 1)
		var cursors []string
		refreshes := 0
		go func() {
			done <- webhook.Subscribe(ctx, c, "order.paid", filter{Min: 5}, box.handle, &webhook.SubscribeOptions{
				URL: address, Receiver: s.receiver, TTL: 10 * time.Minute,
				Position:  func(cursor string) { cursors = append(cursors, cursor) },
				Refreshed: func(*webhook.Grant) { refreshes++ }})
		}()
		synctest.Wait()
		for n := range 10 {
			s.emit(n)
			pass(20 * time.Minute)
		}
		box.want(t, ids(5, 9)...)
		if refreshes < 40 || refreshes > 45 {
			t.Errorf("got %d refreshes in 200 minutes, want one every 5 minutes", refreshes)
		}
		if len(cursors) < 6 {
			t.Errorf("got positions %q, want the first and that of each event", cursors)
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("got error %v at the end of the context, want success", err)
		}
		if n := s.sender.Count(); n != 0 {
			t.Errorf("got %d subscriptions after the end, want none", n)
		}
	})
}

// A subscription for a receiver in another program lasts until it is ended.
func TestSubscribeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, box, secret := newShop(t), &inbox{}, webhook.NewSecret()
		route, err := s.receiver.Add(secret, box.handle)
		if err != nil {
			t.Fatal(err)
		}
		defer route.Close()
		c, ctx := s.dial(), mcp.WithPrincipal(t.Context(), alice)
		opts := &webhook.SubscribeOptions{URL: address, TTL: 10 * time.Minute}
		subscribe := func() *webhook.Grant {
			t.Helper()
			g, err := webhook.SubscribeOnce(ctx, c, "order.paid", filter{Min: 5}, secret, opts)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		first := subscribe()
		s.emit(4)
		s.emit(5)
		pass(9 * time.Minute)
		box.want(t, "evt_5")
		if g := subscribe(); g.ID != first.ID || g.Status == nil || time.Until(g.Expires) < 9*time.Minute {
			t.Errorf("the refresh returned %+v, want the subscription %s for 10 minutes", g, first.ID)
		}
		if err := webhook.Unsubscribe(ctx, c, "order.paid", filter{Min: 5}, address); err != nil || s.sender.Count() != 0 {
			t.Errorf("got error %v and %d subscriptions, want none", err, s.sender.Count())
		}
		wantCode(t, webhook.Unsubscribe(ctx, c, "order.paid", filter{Min: 5}, address), events.CodeNotFound)
	})
}

func TestClientLearnsThatItsSubscriptionEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, box := newShop(t), &inbox{}
		c := s.dial()
		done := make(chan error, 1)
		subscribe := func() {
			done <- webhook.Subscribe(mcp.WithPrincipal(t.Context(), alice), c, "order.paid", nil, box.handle,
				&webhook.SubscribeOptions{URL: address, Receiver: s.receiver})
		}
		go subscribe()
		synctest.Wait()
		s.closed.Store(true)
		pass(2 * time.Minute)
		s.emit(1)
		pass(time.Minute)
		err := <-done
		if e, ok := errors.AsType[*mcp.Error](err); !ok || e.Code != events.CodeForbidden {
			t.Errorf("got error %v, want code %d", err, events.CodeForbidden)
		}
		box.want(t, webhook.TypeTerminated)
		subscribe()
		if e, ok := errors.AsType[*mcp.Error](<-done); !ok || e.Code != events.CodeForbidden {
			t.Errorf("got error %v, want code %d", e, events.CodeForbidden)
		}
		plain := mcptest.Dial(t, mcp.NewServer("plain", "1", nil), inMemory, nil)
		err = webhook.Subscribe(t.Context(), plain, "order.paid", nil, box.handle,
			&webhook.SubscribeOptions{URL: address, Receiver: s.receiver})
		if !errors.Is(err, events.ErrNotOffered) || !strings.Contains(err.Error(), "events/subscribe") {
			t.Errorf("got error %v, want ErrNotOffered", err)
		}
	})
}

// The deliveries of stored subscriptions begin while the server begins to serve.
func TestStoredSubscriptionsSurviveServe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const number = 200
		opts := webhook.SenderOptions{Store: &durable{Store: webhook.NewMemory()}, MaxPerPrincipal: number}
		s := newShopWith(t, opts)
		if _, err := s.receiver.Add(webhook.NewSecret(), new(inbox).handle); err != nil {
			t.Fatal(err)
		}
		opts.IsVerified = func(context.Context, *mcp.Principal, string) bool { return true }
		first := s.network.sender(newFeed(), opts)
		for n := range number {
			r := subscription(webhook.NewSecret())
			r.Arguments = json.RawMessage(fmt.Sprintf(`{"min":%d}`, n))
			if _, err := first.Subscribe(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		restarted := newShopWith(t, opts)
		restarted.respond(http.StatusServiceUnavailable)
		synctest.Wait()
		if n := restarted.sender.Count(); n != number {
			t.Errorf("got %d subscriptions after the restart, want %d", n, number)
		}
	})
}

// A permission that is revoked while an endpoint is down ends the subscription before the next attempt.
func TestPermissionIsCheckedBeforeEachRetry(t *testing.T) {
	for _, outage := range []time.Duration{time.Minute, 3 * time.Hour} { // in the second the sender suspends
		synctest.Test(t, func(t *testing.T) {
			s, box := newShop(t), &inbox{}
			secret := webhook.NewSecret()
			if _, err := s.receiver.Add(secret, box.handle); err != nil {
				t.Fatal(err)
			}
			r := subscription(secret)
			r.NoExpiry = true
			subscribe := func() error { _, err := s.sender.Subscribe(t.Context(), r); return err }
			if err := subscribe(); err != nil {
				t.Fatal(err)
			}
			s.respond(http.StatusServiceUnavailable)
			for n := range 30 {
				s.emit(n)
			}
			for range int(outage / time.Minute) {
				pass(time.Minute)
				if err := subscribe(); err != nil {
					t.Fatal(err)
				}
			}
			s.closed.Store(true)
			s.respond(0)
			pass(6 * time.Minute)
			box.want(t, webhook.TypeTerminated)
			if n := s.sender.Count(); n != 0 {
				t.Errorf("got %d subscriptions, want none", n)
			}
		})
	}
}
