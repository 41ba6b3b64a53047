package gateway_test

import (
	"context"
	"encoding/json"
	"fmt"
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
				if yield(json.RawMessage(`{"id":1}`), 0) && yield(json.RawMessage(`{"id":9}`), 7) && yield(nil, 5) {
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
	if lost := s.next(); lost.kind != "gap" || lost.data.Missed != 5 {
		t.Errorf("got %+v, want a gap of 5 changes, which the types do not exclude", lost)
	}
	_ = s.body.Close()
	<-ended
}

// A steady reader receives 10,000 exchanges in order.
func TestEventsLoseNoExchangesOfASteadyReader(t *testing.T) {
	mcptest.NoLeaks(t)
	const exchanges = 10_000
	a := newAdmin(t, twoServers, func(_ *host.Options, o *gateway.AdminOptions) {
		o.Wire = func(ctx context.Context) iter.Seq2[json.RawMessage, uint64] {
			return func(yield func(json.RawMessage, uint64) bool) {
				for i := range exchanges {
					if !yield(fmt.Appendf(nil, `{"id":%d}`, i), 0) {
						return
					}
				}
				<-ctx.Done()
			}
		}
	})
	s := a.events("?wire=1&after=0", "")
	for i := 0; i < exchanges; {
		switch e := s.next(); e.kind {
		case "exchange":
			if want := fmt.Sprintf(`{"id":%d}`, i); string(e.data.Detail) != want {
				t.Fatalf("got %s, want %s", e.data.Detail, want)
			}
			i++
		case "gap":
			t.Fatalf("lost %d changes", e.data.Missed)
		}
	}
	_ = s.body.Close()
}

// A gateway without recorded traffic refuses the request and names the setting that records the
// traffic.
func TestEventsWithoutRecordedTraffic(t *testing.T) {
	mcptest.NoLeaks(t)
	a := newAdmin(t, twoServers, nil)
	a.refused("GET", "/events?wire=1", "", 409, "capture_off")
	a.refused("GET", "/events?wire=2", "", 400, "invalid_parameter")
}
