package capture_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

type wireEvent struct {
	text   json.RawMessage
	missed uint64
}

// readWire reads the wire of a ring until the caller calls end. end waits until the reader returns.
func readWire(t *testing.T, ring *capture.Ring) (events <-chan wireEvent, end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	all := make(chan wireEvent)
	go func() { // ends with ctx
		defer close(all)
		for text, missed := range ring.Wire(ctx) {
			select {
			case all <- wireEvent{text, missed}:
			case <-ctx.Done():
				return
			}
		}
	}()
	synctest.Wait() // the reader watches
	return all, func() {
		cancel()
		for range all {
		}
	}
}

// A slow reader loses changes, and receives their number. The first exchange contains its frames.
func TestWireCountsTheLostChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := capture.New(nil)
		ring.SetMask(func(text string) string { return strings.ReplaceAll(text, "s3cret", "[hidden]") })
		take := ring.Frames("srv")
		events, end := readWire(t, ring)
		call(take, 1, "first-s3cret", 10)
		first := <-events
		for i := range int64(2 * capture.MaxUnread) { // calls do not wait for the reader, which is stopped
			call(take, i+2, "more", 10)
		}
		var last wireEvent
		for last.missed == 0 {
			last = <-events
		}
		end()
		checkWire(t, first.text)
		if last.missed < capture.MaxUnread || last.text != nil {
			t.Errorf("got %d lost changes with %s, want most changes, and no exchange", last.missed, last.text)
		}
		if ring.Keeps() {
			t.Error("the ring keeps bodies without a reader")
		}
	})
}

// A steady reader receives each exchange once, even if responses arrive after the end of their
// requests.
func TestWireYieldsEachExchangeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const calls = 10_000
		ring := capture.New(nil)
		take := ring.Frames("srv")
		events, end := readWire(t, ring)
		go func() {
			for i := range int64(calls) {
				cancelled(take, i)
			}
		}()
		seen := map[uint64]int{}
		for len(seen) < calls {
			e := <-events
			var x struct{ ID uint64 }
			if err := json.Unmarshal(e.text, &x); err != nil || e.missed > 0 {
				t.Fatalf("got %d lost changes, %v", e.missed, err)
			}
			if seen[x.ID]++; seen[x.ID] > 1 {
				t.Fatalf("exchange %d appears twice", x.ID)
			}
		}
		response := jsonrpc.Message{ID: jsonrpc.IntID(calls), Result: json.RawMessage(`{}`)}
		call(take, calls, "last", 1)
		<-events
		take(mcp.Frame{Message: &response})
		synctest.Wait()
		select {
		case e := <-events:
			t.Errorf("got %s after all exchanges", e.text)
		default:
		}
		end()
	})
}

// cancelled records a request that is cancelled, and its late response.
func cancelled(take func(mcp.Frame), id int64) {
	take(mcp.Frame{Sent: true, Message: &jsonrpc.Message{ID: jsonrpc.IntID(id), Method: "tools/call",
		Params: json.RawMessage(`{"name":"slow"}`)}})
	take(mcp.Frame{Sent: true, Message: &jsonrpc.Message{Method: "notifications/cancelled",
		Params: fmt.Appendf(nil, `{"requestId":%d}`, id)}})
	take(mcp.Frame{Message: &jsonrpc.Message{ID: jsonrpc.IntID(id), Result: json.RawMessage(`{}`)}})
}

func checkWire(t *testing.T, text json.RawMessage) {
	t.Helper()
	var got struct {
		Hop, Server, Method, Status string
		Frames                      []struct{ Kind, Text string }
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if got.Hop != "upstream" || got.Server != "srv" || got.Method != "tools/call" || got.Status != "ok" ||
		len(got.Frames) != 2 || got.Frames[0].Kind != "message" || strings.Contains(string(text), "s3cret") {
		t.Errorf("got %s, want the masked exchange with its frames", text)
	}
}
