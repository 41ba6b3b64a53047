package capture_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/capture"
)

// A slow reader loses changes, which are counted, and receives the frames of the latest exchange.
func TestWireCountsTheLostChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ring := capture.New(nil)
		ring.SetMask(func(text string) string { return strings.ReplaceAll(text, "s3cret", "[hidden]") })
		take := ring.Frames("srv")
		ctx, cancel := context.WithCancel(t.Context())
		type event struct {
			text   json.RawMessage
			missed uint64
		}
		events := make(chan event)
		go func() { // ends with ctx
			defer close(events)
			for text, missed := range ring.Wire(ctx) {
				select {
				case events <- event{text, missed}:
				case <-ctx.Done():
					return
				}
			}
		}()
		synctest.Wait() // the reader watches
		call(take, 1, "first-s3cret", 10)
		first := <-events
		for i := range int64(3000) { // calls do not wait for the reader, which is stopped
			call(take, i+2, "more", 10)
		}
		var last event
		for last.missed == 0 {
			last = <-events
		}
		cancel()
		for range events {
		}
		checkWire(t, first.text)
		if last.missed < 1000 {
			t.Errorf("got %d lost changes, want most changes of 3000 calls", last.missed)
		}
		if ring.Keeps() {
			t.Error("the ring keeps bodies without a reader")
		}
	})
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
