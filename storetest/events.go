package storetest

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// RunEvents tests that a store conforms to [mcphttp.EventStore]. open returns two clients of a new
// store.
func RunEvents(t *testing.T, open func(t *testing.T) (a, b mcphttp.EventStore)) {
	run(t, open, map[string]func(t *testing.T, a, b mcphttp.EventStore){
		"events are returned in order, or a gap": eventsGap,
		"sessions, callers and streams separate": eventsSeparate,
		"the end of a session deletes events":    eventsEnd,
		"concurrent streams of many events":      eventsMany,
		"a reader follows a stream":              eventsFollowed,
		"canceled context":                       eventsCanceled,
	})
}

func eventKey(stream string) mcphttp.StreamKey {
	return mcphttp.StreamKey{Session: "session", Principal: "principal", Stream: stream}
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

func eventsGap(t *testing.T, a, b mcphttp.EventStore) {
	data := []byte("one")
	must(t, a.Append(t.Context(), eventKey("s"), 1, data))
	copy(data, "new") // the store must not retain data
	must(t, b.Append(t.Context(), eventKey("s"), 2, []byte("\x00\xff\r\n")))
	must(t, a.Append(t.Context(), eventKey("s"), 3, []byte("three")))
	wantEvents(t, b, eventKey("s"), 0, "one", "\x00\xff\r\n", "three")
	wantEvents(t, a, eventKey("s"), 2, "three")
	wantEvents(t, a, eventKey("s"), 3)
	for _, err := range a.After(t.Context(), eventKey("s"), 0) {
		must(t, err)
		break // the reader may stop early
	}
	wantGap(t, b, eventKey("s"), 4)
	wantGap(t, b, eventKey("s"), -1)
	wantGap(t, b, eventKey("unknown"), 0)
	must(t, a.Append(t.Context(), eventKey("s"), 9, []byte("nine")))
	wantGap(t, b, eventKey("s"), 3)
	wantEvents(t, b, eventKey("s"), 8, "nine")
	must(t, a.Append(t.Context(), eventKey("s"), 4, []byte("late")))
	wantGap(t, b, eventKey("s"), 3)
}

func eventsSeparate(t *testing.T, a, b mcphttp.EventStore) {
	keys := []mcphttp.StreamKey{eventKey("s"), eventKey(""), eventKey("S"), {}, {Session: "session"}, {Stream: "s"},
		{Session: "sess", Principal: "ionprincipal", Stream: "s"},
		{Session: "other", Principal: "principal", Stream: "s"}, {Session: "session", Principal: "other", Stream: "s"},
		{Session: "}{", Principal: "\xff:\x00", Stream: "{a}:*"}}
	for i, key := range keys {
		must(t, a.Append(t.Context(), key, 1, fmt.Append(nil, "event of ", i)))
	}
	for i, key := range keys {
		wantEvents(t, b, key, 0, fmt.Sprint("event of ", i))
	}
}

func eventsEnd(t *testing.T, a, b mcphttp.EventStore) {
	other := mcphttp.StreamKey{Session: "session", Principal: "other", Stream: "s"}
	for i, key := range []mcphttp.StreamKey{eventKey("s"), eventKey("t"), other} {
		must(t, []mcphttp.EventStore{a, b, a}[i].Append(t.Context(), key, 1, []byte("one")))
	}
	for range 2 {
		must(t, b.EndSession(t.Context(), "session", "principal"))
		wantGap(t, a, eventKey("s"), 0)
		wantGap(t, b, eventKey("t"), 0)
	}
	wantEvents(t, b, other, 0, "one")
}

func eventsMany(t *testing.T, a, b mcphttp.EventStore) {
	const events, skip = 100, 7
	data := func(worker, n int) string {
		return fmt.Sprintf("event %d of %d %s", n, worker, strings.Repeat("x", 10*n))
	}
	key := func(worker int) mcphttp.StreamKey {
		return mcphttp.StreamKey{Session: fmt.Sprint(worker / 4), Principal: "p", Stream: fmt.Sprint(worker)}
	}
	concurrently(a, b, func(worker int, s mcphttp.EventStore) {
		for n := range events {
			if err := s.Append(t.Context(), key(worker), int64(n+1), []byte(data(worker, n))); err != nil {
				t.Error(err)
			}
		}
	})
	for worker := range concurrentUsers {
		var want []string
		for n := skip; n < events; n++ {
			want = append(want, data(worker, n))
		}
		wantEvents(t, b, key(worker), skip, want...)
	}
}

// eventsFollowed checks that a reader receives each event once and in order, while another client appends
// events to this stream and to another stream of the session.
func eventsFollowed(t *testing.T, a, b mcphttp.EventStore) {
	const events = 200
	done := make(chan struct{})
	defer func() { <-done }()
	must(t, a.Append(t.Context(), eventKey("s"), 1, []byte("event 1")))
	go func() {
		defer close(done)
		for n := int64(2); n <= events; n++ {
			for _, stream := range []string{"s", "t"} {
				if err := a.Append(t.Context(), eventKey(stream), n, fmt.Append(nil, "event ", n)); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	for n := int64(1); n < events; {
		isComplete := false
		select {
		case <-done:
			isComplete = true
		default:
		}
		got, err := eventsAfter(t, b, eventKey("s"), n)
		must(t, err)
		for _, event := range got {
			if n++; event != fmt.Sprint("event ", n) {
				t.Fatalf("got %q, want event %d", event, n)
			}
		}
		if isComplete && n < events {
			t.Fatalf("the stream ends after event %d", n)
		}
	}
	wantEvents(t, b, eventKey("s"), events)
}

// eventsCanceled checks that a canceled call stores either the whole event or no part of the event.
func eventsCanceled(t *testing.T, a, b mcphttp.EventStore) {
	want := []string{"one"}
	must(t, a.Append(t.Context(), eventKey("s"), 1, []byte("one")))
	if err := a.Append(ended(t), eventKey("s"), 2, []byte("two")); err == nil {
		want = append(want, "two")
	} else {
		wantCanceled(t, "Append", err)
	}
	for _, err := range a.After(ended(t), eventKey("s"), 0) {
		if err != nil {
			wantCanceled(t, "After", err)
		}
	}
	wantEvents(t, b, eventKey("s"), 0, want...)
}
