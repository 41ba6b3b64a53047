package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// RunEvents tests that a store conforms to [mcphttp.EventStore]. open returns two clients of a new
// store. A store must keep 4 MiB of events of a session.
func RunEvents(t *testing.T, open func(t *testing.T) (a, b mcphttp.EventStore)) {
	for name, check := range map[string]func(t *testing.T, a, b mcphttp.EventStore){
		"events are returned in order":           eventsInOrder,
		"a gap is an error":                      eventsGap,
		"sessions, callers and streams separate": eventsSeparate,
		"the end of a session deletes events":    eventsEnd,
		"old events make room":                   eventsLimit,
		"many events of several streams":         eventsMany,
		"concurrent sessions":                    eventsConcurrent,
		"canceled context":                       eventsCanceled,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := open(t)
			check(t, a, b)
		})
	}
}

func eventKey(stream string) mcphttp.StreamKey {
	return mcphttp.StreamKey{Session: "session", Principal: "principal", Stream: stream}
}

func appendEvents(t *testing.T, s mcphttp.EventStore, key mcphttp.StreamKey, events ...string) {
	t.Helper()
	for i, data := range events {
		must(t, s.Append(t.Context(), key, int64(i+1), []byte(data)))
	}
}

// eventsAfter returns the events after number n as text, and the error.
func eventsAfter(t *testing.T, s mcphttp.EventStore, key mcphttp.StreamKey, n int64) (events []string, err error) {
	for data, err := range s.After(t.Context(), key, n) {
		if err != nil {
			return events, err
		}
		events = append(events, string(data))
	}
	return events, nil
}

func wantEvents(t *testing.T, s mcphttp.EventStore, key mcphttp.StreamKey, n int64, want ...string) {
	t.Helper()
	got, err := eventsAfter(t, s, key, n)
	if err != nil || fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("after event %d of %v: got %.200q, %v; want %.200q", n, key, got, err, want)
	}
}

func wantGap(t *testing.T, s mcphttp.EventStore, key mcphttp.StreamKey, n int64) {
	t.Helper()
	if got, err := eventsAfter(t, s, key, n); !errors.Is(err, mcphttp.ErrEventGap) || len(got) > 0 {
		t.Errorf("after event %d of %.100v: got %.200q, %v; want ErrEventGap", n, key, got, err)
	}
}

func eventsInOrder(t *testing.T, a, b mcphttp.EventStore) {
	data := []byte("one")
	must(t, a.Append(t.Context(), eventKey("s"), 1, data))
	copy(data, "XXX") // the store must not retain data
	must(t, b.Append(t.Context(), eventKey("s"), 2, []byte("\x00\xff\r\n")))
	must(t, a.Append(t.Context(), eventKey("s"), 3, []byte("three")))
	for _, s := range []mcphttp.EventStore{a, b} {
		wantEvents(t, s, eventKey("s"), 0, "one", "\x00\xff\r\n", "three")
		wantEvents(t, s, eventKey("s"), 2, "three")
		wantEvents(t, s, eventKey("s"), 3)
		for _, err := range s.After(t.Context(), eventKey("s"), 0) {
			must(t, err)
			break // the reader may stop early
		}
	}
}

func eventsGap(t *testing.T, a, b mcphttp.EventStore) {
	appendEvents(t, a, eventKey("s"), "one", "two", "three")
	wantGap(t, b, eventKey("s"), 4)
	wantGap(t, b, eventKey("s"), -1)
	wantGap(t, b, eventKey("unknown"), 0)
	must(t, a.Append(t.Context(), eventKey("s"), 9, []byte("nine")))
	wantGap(t, b, eventKey("s"), 3)
	wantEvents(t, b, eventKey("s"), 8, "nine")
}

func eventsSeparate(t *testing.T, a, b mcphttp.EventStore) {
	keys := []mcphttp.StreamKey{eventKey("s"), eventKey(""), eventKey("S"), {}, {Session: "session"}, {Stream: "s"},
		{Session: "sess", Principal: "ionprincipal", Stream: "s"},
		{Session: "other", Principal: "principal", Stream: "s"}, {Session: "session", Principal: "other", Stream: "s"},
		{Session: "}{", Principal: "\xff:\x00", Stream: "{a}:*"}}
	for i, key := range keys {
		appendEvents(t, a, key, fmt.Sprint("event of ", i))
	}
	for i, key := range keys {
		wantEvents(t, b, key, 0, fmt.Sprint("event of ", i))
	}
}

func eventsEnd(t *testing.T, a, b mcphttp.EventStore) {
	other := mcphttp.StreamKey{Session: "session", Principal: "other", Stream: "s"}
	appendEvents(t, a, eventKey("s"), "one")
	appendEvents(t, b, eventKey("t"), "one")
	appendEvents(t, a, other, "kept")
	for range 2 {
		must(t, b.EndSession(t.Context(), "session", "principal"))
		wantGap(t, a, eventKey("s"), 0)
		wantGap(t, b, eventKey("t"), 0)
	}
	wantEvents(t, b, other, 0, "kept")
}

// eventsLimit appends 16 MiB to a session. The last 4 MiB must remain, and the first must not.
func eventsLimit(t *testing.T, a, b mcphttp.EventStore) {
	const events, size, remain = 32, 512 << 10, 8
	for n := range events {
		must(t, a.Append(t.Context(), eventKey("s"), int64(n+1), bytes.Repeat([]byte{byte(n)}, size)))
	}
	wantGap(t, b, eventKey("s"), 1)
	got, err := eventsAfter(t, b, eventKey("s"), events-remain)
	if err != nil || len(got) != remain {
		t.Fatalf("got %d events, %v; want the last %d", len(got), err, remain)
	}
	for i, data := range got {
		if data != string(bytes.Repeat([]byte{byte(events - remain + i)}, size)) {
			t.Errorf("event %d has other data", events-remain+i+1)
		}
	}
	if err := a.Append(t.Context(), eventKey("t"), 1, make([]byte, 64<<20)); err == nil {
		t.Error("an event of 64 MiB was stored")
	}
}

func eventsMany(t *testing.T, a, b mcphttp.EventStore) {
	const streams, events = 3, 500
	for n := range events {
		for i := range streams {
			data := fmt.Appendf(nil, "event %d of %d %s", n+1, i, bytes.Repeat([]byte{'x'}, n*2))
			must(t, a.Append(t.Context(), eventKey(fmt.Sprint(i)), int64(n+1), data))
		}
	}
	for i := range streams {
		got, err := eventsAfter(t, b, eventKey(fmt.Sprint(i)), 7)
		if err != nil || len(got) != events-7 {
			t.Fatalf("stream %d: got %d events, %v; want %d", i, len(got), err, events-7)
		}
		for k, data := range got {
			if want := fmt.Sprintf("event %d of %d ", k+8, i); data[:len(want)] != want {
				t.Fatalf("stream %d: event %d is %.40q, want %q", i, k, data, want)
			}
		}
	}
}

func eventsConcurrent(t *testing.T, a, b mcphttp.EventStore) {
	key := func(worker int) mcphttp.StreamKey {
		return mcphttp.StreamKey{Session: fmt.Sprint(worker / 4), Principal: "p", Stream: fmt.Sprint(worker)}
	}
	concurrently(a, b, func(worker int, s mcphttp.EventStore) {
		for n := range 10 {
			if err := s.Append(t.Context(), key(worker), int64(n+1), fmt.Append(nil, worker, n)); err != nil {
				t.Error(err)
			}
		}
	})
	concurrently(b, a, func(worker int, s mcphttp.EventStore) {
		got, err := eventsAfter(t, s, key(worker), 8)
		if err != nil || len(got) != 2 || got[1] != fmt.Sprint(worker, 9) {
			t.Errorf("worker %d: got %q, %v", worker, got, err)
		}
	})
}

// eventsCanceled checks that a canceled call is made in whole or not at all.
func eventsCanceled(t *testing.T, a, b mcphttp.EventStore) {
	appendEvents(t, a, eventKey("s"), "one")
	if err := a.Append(ended(t), eventKey("s"), 2, []byte("two")); err != nil {
		wantCanceled(t, "Append", err)
		wantEvents(t, b, eventKey("s"), 0, "one")
	} else {
		wantEvents(t, b, eventKey("s"), 0, "one", "two")
	}
	for data, err := range a.After(ended(t), eventKey("s"), 0) {
		if err != nil {
			wantCanceled(t, "After", err)
			break
		}
		if string(data) != "one" && string(data) != "two" {
			t.Errorf("After with a canceled context returned %q", data)
		}
	}
}
