package webhook_test

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A noting feed remembers the subscription that it followed last.
type noting struct {
	*feed
	mu      sync.Mutex // guards the fields below
	last    events.Subscription
	follows int
}

func (n *noting) Follow(ctx context.Context, s events.Subscription, cursor string) iter.Seq2[events.Item, error] {
	n.mu.Lock()
	n.last = s
	n.follows++
	n.mu.Unlock()
	return n.feed.Follow(ctx, s, cursor)
}

func TestScopesAndDetailsSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		opts := webhook.SenderOptions{Store: &durable{Store: webhook.NewMemory()}}
		w := newWorld(t, opts)
		answer := func(method, scope, details string) error {
			t.Helper()
			params := `{"name":"order.paid","delivery":{"url":"` + address + `","secret":"` + w.secret.Reveal() + `"},"_meta":{
				"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{},
				"io.modelcontextprotocol/clientInfo":{"name":"test","version":"1"}}}`
			req, err := mcp.NewRequest(&jsonrpc.Message{Method: method, Params: json.RawMessage(params)})
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.sender.Answer(t.Context(), req, func(r *webhook.Request) {
				r.Principal, r.Scope, r.Details = alice, scope, json.RawMessage(details)
			})
			return err
		}
		if err := answer("events/subscribe", "mail", `{"n":1}`); err != nil {
			t.Fatal(err)
		}
		if err := answer("events/subscribe", "mail", `{"n":2}`); err != nil {
			t.Fatal(err)
		}
		has := func(scope string) bool {
			s := subscription(w.secret).Subscription
			s.Scope = scope
			return w.sender.Has(s, address)
		}
		if !has("mail") || has("") || has("other") || w.sender.Count() != 1 {
			t.Errorf("got %t, %t, %t and %d subscriptions, want the refreshed subscription of the scope mail only",
				has("mail"), has(""), has("other"), w.sender.Count())
		}
		wantCode(t, answer("events/subscribe", "big", `"`+strings.Repeat("x", 32<<10)+`"`), events.CodeResourceExhausted)
		if err := w.sender.Close(); err != nil {
			t.Fatal(err)
		}
		f := &noting{feed: w.feed}
		w.sender = w.network.sender(f, opts)
		synctest.Wait()
		f.mu.Lock()
		if f.last.Scope != "mail" || string(f.last.Details) != `{"n":2}` {
			t.Errorf("the feed follows the scope %q with details %s, want mail with {\"n\":2}", f.last.Scope, f.last.Details)
		}
		f.mu.Unlock()
		if err := answer("events/unsubscribe", "mail", ""); err != nil || has("mail") {
			t.Errorf("got error %v, want the subscription to end", err)
		}
	})
}

// A refresh of a caller with other details takes effect at once: the feed follows the new details from the last cursor.
// A refresh without a change does not interrupt the feed.
func TestRefreshWithOtherDetailsFollowsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, webhook.SenderOptions{})
		f := &noting{feed: w.feed}
		w.sender = w.network.sender(f, webhook.SenderOptions{})
		refresh := func(details string, scopes ...string) {
			t.Helper()
			r, p := subscription(w.secret), *alice
			p.Scopes = scopes
			r.Principal, r.Details = &p, json.RawMessage(details)
			w.subscribe(r)
			synctest.Wait()
		}
		refresh(`{"n":1}`, "read")
		w.feed.emit(2)
		w.respond(http.StatusBadGateway) // the refresh finds an event that waits for its next attempt
		w.feed.emit(1)
		synctest.Wait()
		for i, step := range []struct {
			details, scope string
			follows        int
		}{{`{"n":1}`, "read", 1}, {`{"n":2}`, "read", 2}, {`{"n":2}`, "write", 3}, {`{"n":2}`, "write", 3}} {
			refresh(step.details, step.scope)
			w.respond(0)
			pass(10 * time.Second)
			w.feed.emit(1)
			synctest.Wait()
			f.mu.Lock()
			if string(f.last.Details) != step.details || !slices.Equal(f.last.Principal.Scopes, []string{step.scope}) ||
				f.follows != step.follows {
				t.Errorf("step %d: the feed was followed %d times, last with %s and %q, want %+v", i, f.follows,
					f.last.Details, f.last.Principal.Scopes, step)
			}
			f.mu.Unlock()
		}
		w.inbox.want(t, ids(1, 7)...)
	})
}
