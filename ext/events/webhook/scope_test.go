package webhook_test

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A noting feed remembers the subscription that it followed last.
type noting struct {
	*feed
	mu   sync.Mutex // guards last
	last events.Subscription
}

func (n *noting) Follow(ctx context.Context, s events.Subscription, cursor string) iter.Seq2[events.Item, error] {
	n.mu.Lock()
	n.last = s
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
