package webhook_test

import (
	"context"
	"errors"
	"iter"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
)

// A durable store in memory, for restarts.
type durable struct {
	webhook.Store
	broken  string      // the record with this ID cannot be read
	failing atomic.Bool // Put fails
	stuck   atomic.Bool // Delete fails
}

func (*durable) Durable() bool { return true }

func (d *durable) Put(ctx context.Context, r webhook.Record) error {
	if d.failing.Load() {
		return errors.New("the disk is full")
	}
	return d.Store.Put(ctx, r)
}

func (d *durable) Delete(ctx context.Context, id string) error {
	if d.stuck.Load() {
		return errors.New("the disk is full")
	}
	return d.Store.Delete(ctx, id)
}

func (d *durable) All(ctx context.Context) iter.Seq2[webhook.Record, error] {
	return func(yield func(webhook.Record, error) bool) {
		for r, err := range d.Store.All(ctx) {
			if r.ID == d.broken {
				r, err = webhook.Record{ID: r.ID}, errors.New("damaged")
			}
			if !yield(r, err) {
				return
			}
		}
	}
}

func TestSubscriptionsSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &durable{Store: webhook.NewMemory()}
		opts := webhook.SenderOptions{Store: store, NoExpiry: true, MaxTTL: 24 * time.Hour}
		w := newWorld(t, opts)
		r := subscription(w.secret)
		r.NoExpiry = true
		grant := w.subscribe(r)
		if !grant.Expires.IsZero() {
			t.Errorf("got an end at %v, want no end", grant.Expires)
		}
		w.feed.emit(3)
		synctest.Wait()
		w.inbox.want(t, ids(1, 3)...)
		restart := func() {
			if err := w.sender.Close(); err != nil {
				t.Fatal(err)
			}
			w.feed.emit(1)
			w.sender = w.network.sender(w.feed, opts)
		}
		w.Requests()
		restart()
		synctest.Wait()
		w.inbox.want(t, "evt_4")
		if got := w.Requests(); len(got) != 1 {
			t.Errorf("got %d requests after the restart, want the event and no challenge", len(got))
		}

		// The attempts of an event are counted across restarts.
		w.requests()
		w.respond(http.StatusBadGateway)
		w.feed.emit(1)
		pass(2 * time.Minute)
		before := len(w.requests())
		restart()
		pass(3 * time.Minute)
		restart()
		pass(20 * time.Minute)
		counts := map[string]int{}
		for _, got := range w.requests() {
			counts[got.header.Get("Webhook-Id")]++
		}
		if n := before + counts["evt_5"]; n != 6 {
			t.Errorf("the event was sent %d times with two restarts, want 6", n)
		}
		w.respond(0)
		restarted := w.subscribe(r)
		if restarted.ID != grant.ID || restarted.Status == nil {
			t.Errorf("got %+v after the restarts, want the subscription %s", restarted, grant.ID)
		}
	})
}

func TestDamagedRecordDoesNotStopOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &durable{Store: webhook.NewMemory()}
		opts := webhook.SenderOptions{Store: store}
		w := newWorld(t, opts)
		w.subscribe(subscription(w.secret))
		other := subscription(w.secret)
		other.Arguments = []byte(`{"n":2}`)
		store.broken = w.subscribe(other).ID
		put := func(id, data string) {
			if err := store.Put(t.Context(), webhook.Record{ID: id, Data: []byte(data)}); err != nil {
				t.Fatal(err)
			}
		}
		put("sub_1", `{"version":1`)
		put("sub_2", `{"version":2}`)
		put("sub_3", `{"version":1,"secrets":[{"secret":"whsec_"}]}`)
		put("sub_4", `{"version":1,"secrets":[{"secret":"`+w.secret.Reveal()+`"}]}`)
		if err := w.sender.Close(); err != nil {
			t.Fatal(err)
		}
		w.sender = w.network.sender(w.feed, opts)
		if n := w.sender.Count(); n != 1 {
			t.Errorf("got %d subscriptions, want the intact record", n)
		}
		w.feed.emit(1)
		synctest.Wait()
		w.inbox.want(t, "evt_1")
	})
}

func TestExpiredRecordsAreDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &durable{Store: webhook.NewMemory()}
		opts := webhook.SenderOptions{Store: store}
		w := newWorld(t, opts)
		w.subscribe(subscription(w.secret))
		if err := w.sender.Close(); err != nil {
			t.Fatal(err)
		}
		pass(time.Hour)
		w.sender = w.network.sender(w.feed, opts)
		for r := range store.All(t.Context()) {
			t.Errorf("the store contains %s, want no record", r.ID)
		}
		if n := w.sender.Count(); n != 0 {
			t.Errorf("got %d subscriptions, want none", n)
		}
	})
}

func TestSubscriptionThatCannotBeStoredDoesNotExist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &durable{Store: webhook.NewMemory()}
		store.failing.Store(true)
		w := newWorld(t, webhook.SenderOptions{Store: store})
		if _, err := w.sender.Subscribe(t.Context(), subscription(w.secret)); err == nil {
			t.Error("got a subscription, want an error")
		}
		w.feed.emit(1)
		synctest.Wait()
		w.inbox.want(t)
		if n := w.sender.Count(); n != 0 {
			t.Errorf("got %d subscriptions, want none", n)
		}
	})
}

// Nobody refreshes a subscription without end, so the sender removes it when its endpoint is gone.
func TestEndlessSubscriptionOfADeadEndpointEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{Store: &durable{Store: webhook.NewMemory()}, NoExpiry: true})
		r := subscription(w.secret)
		r.NoExpiry = true
		w.subscribe(r)
		w.respond(http.StatusInternalServerError)
		w.feed.emit(100)
		pass(6 * 24 * time.Hour)
		if n := w.sender.Count(); n != 1 {
			t.Errorf("got %d subscriptions after 6 days, want 1", n)
		}
		if got := len(w.requests()); got > 40 {
			t.Errorf("the endpoint got %d requests, want fewer than 40", got)
		}
		pass(2 * 24 * time.Hour)
		if n := w.sender.Count(); n != 0 {
			t.Errorf("got %d subscriptions after 8 days, want none", n)
		}
		got := w.requests()
		if len(got) == 0 || got[0].body[:20] != `{"type":"terminated"` {
			t.Errorf("got %d requests, want the end of the subscription", len(got))
		}
	})
}

// A leased store is a store whose lease is lost when the channel is closed.
type leased struct {
	webhook.Store
	lost chan struct{}
}

func (l leased) Lost() <-chan struct{} { return l.lost }

// Another process may deliver when the lease is lost, so the sender ends its deliveries and accepts no
// subscriptions.
func TestSenderStopsWithoutItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := leased{webhook.NewMemory(), make(chan struct{})}
		w := newWorld(t, webhook.SenderOptions{Store: store})
		w.subscribe(subscription(w.secret))
		w.feed.emit(1)
		synctest.Wait()
		w.inbox.want(t, "evt_1")
		close(store.lost)
		synctest.Wait()
		w.feed.emit(1)
		pass(time.Hour)
		w.inbox.want(t)
		r := subscription(w.secret)
		r.Principal = bob
		if _, err := w.sender.Subscribe(t.Context(), r); err == nil || !strings.Contains(err.Error(), "lease") {
			t.Errorf("Subscribe returned %v, want an error that names the lease", err)
		}
	})
}
