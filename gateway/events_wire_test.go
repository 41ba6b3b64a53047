package gateway_test

import (
	"context"
	"encoding/json"
	"iter"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway"
	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Events contain the recorded exchanges for a reader that asks for exchanges, with the number of
// lost changes.
func TestEventsContainTheRecordedExchanges(t *testing.T) {
	mcptest.NoLeaks(t)
	ended := make(chan struct{})
	a := newAdmin(t, twoServers, func(_ *host.Options, o *gateway.AdminOptions) {
		o.Wire = func(ctx context.Context) iter.Seq2[json.RawMessage, uint64] {
			return func(yield func(json.RawMessage, uint64) bool) {
				defer close(ended)
				if yield(json.RawMessage(`{"id":1}`), 0) && yield(json.RawMessage(`{"id":9}`), 7) {
					<-ctx.Done()
				}
			}
		}
	})
	s := a.events("?wire=1&types=exchange", "")
	first, second := s.next(), s.next()
	if first.kind != "exchange" || string(first.data.Detail) != `{"id":1}` || first.data.Missed != 0 || first.id != "" {
		t.Errorf("got %+v, want the first exchange without an id of an event", first)
	}
	if string(second.data.Detail) != `{"id":9}` || second.data.Missed != 7 {
		t.Errorf("got %+v, want the exchange after 7 lost changes", second)
	}
	_ = s.body.Close()
	<-ended
}

// A gateway without recorded traffic refuses the request and names the setting that records the
// traffic.
func TestEventsWithoutRecordedTraffic(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, nil)
	a.refused("GET", "/events?wire=1", "", 409, "capture_off")
	a.refused("GET", "/events?wire=2", "", 400, "invalid_parameter")
}
