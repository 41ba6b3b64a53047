package webhook_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

// The host of a large client receives each event many times at once. All deliveries are in flight together,
// and those of the next event use the same connections.
func TestDeliveriesToAHostUseTheSameConnections(t *testing.T) {
	const subscriptions = 100
	const hang = time.Minute
	var connections, requests atomic.Int32
	together := []chan struct{}{make(chan struct{}), make(chan struct{})} // closed when an event has reached all
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		n := int(requests.Add(1))
		all := together[(n-1)/subscriptions]
		if n%subscriptions == 0 {
			close(all)
		}
		select {
		case <-all:
		case <-time.After(hang):
		}
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.StartTLS()
	defer server.Close()
	f := newFeed()
	n := newNetwork(t, nil)
	s := n.sender(f, webhook.SenderOptions{Timeout: hang,
		IsVerified: func(context.Context, *mcp.Principal, string) bool { return true },
		Fetcher: oauth.NewFetcher(&oauth.FetcherOptions{Timeout: hang, InsecureAnyAddress: true,
			TLSConfig: server.Client().Transport.(*http.Transport).TLSClientConfig}),
	})
	for i := range subscriptions {
		r := subscription(webhook.NewSecret())
		r.URL, r.Arguments = server.URL, json.RawMessage(fmt.Sprintf(`{"n":%d}`, i))
		if _, err := s.Subscribe(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for event, all := range together {
		f.emit(1)
		select {
		case <-all:
		case <-time.After(hang):
			t.Fatalf("event %d: %d requests arrived, want %d at the same time", event+1, requests.Load(), subscriptions)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if got := connections.Load(); got != subscriptions {
		t.Errorf("%d deliveries took %d connections, want %d", requests.Load(), got, subscriptions)
	}
}
