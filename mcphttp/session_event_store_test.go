package mcphttp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcphttp"
	"github.com/patchbay-mcp/patchbay/storetest"
)

func streamKey(n int) mcphttp.StreamKey {
	return mcphttp.StreamKey{Session: "session", Principal: "principal", Stream: fmt.Sprint("stream", n)}
}

// countEvents returns the number of events after n, or the error.
func countEvents(store mcphttp.EventStore, key mcphttp.StreamKey, n int64) (count int, err error) {
	for _, err := range store.After(context.Background(), key, n) {
		if err != nil {
			return count, err
		}
		count++
	}
	return count, nil
}

func appendEvents(store mcphttp.EventStore, key mcphttp.StreamKey, count, size int) {
	data := bytes.Repeat([]byte{'x'}, size)
	for n := range count {
		if err := store.Append(context.Background(), key, int64(n+1), data); err != nil {
			panic(err)
		}
	}
}

// Requirement: SEC-21
func TestMemoryEventsHaveOrderGapsAndAnOwner(t *testing.T) {
	store := mcphttp.NewMemoryEvents()
	for n := int64(1); n <= 3; n++ {
		data := fmt.Appendf(nil, "event %d", n)
		store.Append(t.Context(), streamKey(1), n, data)
		copy(data, "XXXXX") // the store has a copy
	}
	want := int64(2)
	for data, err := range store.After(t.Context(), streamKey(1), 1) {
		if err != nil || string(data) != fmt.Sprint("event ", want) {
			t.Errorf("got %q, %v; want event %d", data, err, want)
		}
		want++
	}
	for n, test := range map[int64]struct {
		count int
		err   error
	}{0: {3, nil}, 3: {0, nil}, 4: {0, mcphttp.ErrEventGap}, -1: {0, mcphttp.ErrEventGap}} {
		if got, err := countEvents(store, streamKey(1), n); got != test.count || !errors.Is(err, test.err) {
			t.Errorf("after %d: got %d, %v; want %d, %v", n, got, err, test.count, test.err)
		}
	}
	for _, key := range []mcphttp.StreamKey{
		streamKey(2),
		{Session: "other", Principal: "principal", Stream: "stream1"},
		{Session: "session", Principal: "other", Stream: "stream1"},
	} {
		if _, err := countEvents(store, key, 0); !errors.Is(err, mcphttp.ErrEventGap) {
			t.Errorf("%v: got %v, want a gap", key, err)
		}
	}
	store.Append(t.Context(), streamKey(1), 9, []byte("after a gap"))
	if _, err := countEvents(store, streamKey(1), 3); !errors.Is(err, mcphttp.ErrEventGap) {
		t.Errorf("events with a gap: got %v, want ErrEventGap", err)
	}
	store.EndSession(t.Context(), "session", "principal")
	if _, err := countEvents(store, streamKey(1), 9); !errors.Is(err, mcphttp.ErrEventGap) {
		t.Errorf("session that has ended: got %v, want ErrEventGap", err)
	}
}

func sessionStreamKey(n int) mcphttp.StreamKey {
	return mcphttp.StreamKey{Session: fmt.Sprint("session", n), Principal: "principal", Stream: "stream"}
}

func TestMemoryEvents_AreLimitedPerSession(t *testing.T) {
	store := mcphttp.NewMemoryEvents()
	appendEvents(store, streamKey(1), 10, 1<<20-1024)
	if got, err := countEvents(store, streamKey(1), 2); got != 8 || err != nil {
		t.Errorf("the last 8 events of 10: got %d, %v; want 8", got, err)
	}
	if _, err := countEvents(store, streamKey(1), 1); !errors.Is(err, mcphttp.ErrEventGap) {
		t.Errorf("10 MiB: got %v, want a gap", err)
	}
	if err := store.Append(t.Context(), streamKey(2), 1, make([]byte, 9<<20)); err == nil {
		t.Error("an event of 9 MiB was stored")
	}
	if got, err := countEvents(store, streamKey(2), 0); got != 0 || !errors.Is(err, mcphttp.ErrEventGap) {
		t.Errorf("an event of 9 MiB: got %d, %v; want no event and a gap", got, err)
	}
	if got, err := countEvents(store, streamKey(1), 2); got != 8 || err != nil {
		t.Errorf("the other events after one of 9 MiB: got %d, %v; want 8", got, err)
	}
	for n := range int64(20_000) { // in blocks of two streams
		store.Append(t.Context(), streamKey(3), n+1, []byte("three"))
		store.Append(t.Context(), streamKey(4), n+1, []byte("four"))
	}
	if got, err := countEvents(store, streamKey(3), 5); got != 19_995 || err != nil {
		t.Errorf("20,000 events: got %d, %v after the fifth, want 19,995", got, err)
	}
}

func TestMemoryEvents_AreLimitedInAll(t *testing.T) {
	store := mcphttp.NewMemoryEvents()
	const sessions = 90 // of 3 MiB
	sessionStreamKey := func(n int) mcphttp.StreamKey {
		return mcphttp.StreamKey{Session: fmt.Sprint("session", n), Principal: fmt.Sprint("p", n%9), Stream: "stream"}
	}
	for n := range sessions {
		appendEvents(store, sessionStreamKey(n), 3, 1<<20)
	}
	left := 0
	for n := range sessions {
		for after := range int64(3) { // the oldest events of a session may be discarded
			if count, err := countEvents(store, sessionStreamKey(n), after); err == nil {
				left += count
				break
			}
		}
	}
	if left > 256 || left < 250 {
		t.Errorf("%d MiB are stored, want 250 to 256", left)
	}
	if _, err := countEvents(store, sessionStreamKey(0), 0); !errors.Is(err, mcphttp.ErrEventGap) {
		t.Errorf("the session that was appended to least recently: got %v, want a gap", err)
	}
}

func TestMemoryEvents_ExpireAfterTenMinutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mcphttp.NewMemoryEvents()
		appendEvents(store, streamKey(1), 1, 1)
		time.Sleep(10*time.Minute - 1)
		if got, err := countEvents(store, streamKey(1), 0); got != 1 || err != nil {
			t.Errorf("before ten minutes: got %d, %v; want 1 event", got, err)
		}
		store.Append(t.Context(), streamKey(1), 2, nil)
		time.Sleep(1)
		if _, err := countEvents(store, streamKey(1), 0); !errors.Is(err, mcphttp.ErrEventGap) {
			t.Errorf("after ten minutes: got %v, want a gap", err)
		}
		if got, err := countEvents(store, streamKey(1), 1); got != 1 || err != nil {
			t.Errorf("the later event: got %d, %v; want 1 event", got, err)
		}
	})
}

// Expired events are discarded even if they are not read, and the end of a session discards its
// events.
func TestMemoryEvents_AreReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := mcphttp.NewMemoryEvents()
		appendEvents(store, streamKey(0), 1, 5000)
		time.Sleep(5 * time.Minute)
		appendEvents(store, streamKey(1), 1, 1)
		time.Sleep(5 * time.Minute)
		store.Append(t.Context(), streamKey(0), 2, []byte("late"))
		if size, _ := store.Stored(); size > 12_000 {
			t.Errorf("%d bytes are stored, want the event of 5000 bytes discarded", size)
		}
		if got, err := countEvents(store, streamKey(0), 1); got != 1 || err != nil {
			t.Errorf("after the discarded event: got %d, %v; want 1 event", got, err)
		}
		time.Sleep(6 * time.Minute) // the second stream is too old, the first is not
		appendEvents(store, streamKey(2), 1, 1)
		if _, err := countEvents(store, streamKey(1), 0); !errors.Is(err, mcphttp.ErrEventGap) {
			t.Errorf("stream without recent events: got %v, want a gap", err)
		}
		if err := store.EndSession(t.Context(), "session", "principal"); err != nil {
			t.Fatal(err)
		}
		if size, sessions := store.Stored(); size != 0 || sessions != 0 {
			t.Errorf("after the session: %d bytes of %d sessions are stored, want none", size, sessions)
		}
	})
}

// A stream can be appended to after it was discarded. Its discarded events are a gap.
func TestMemoryEvents_StoreADiscardedStreamAgain(t *testing.T) {
	store := mcphttp.NewMemoryEvents()
	appendEvents(store, sessionStreamKey(-1), 2, 1)
	for n := range 70 {
		appendEvents(store, sessionStreamKey(n), 1000, 4000)
	}
	if _, err := countEvents(store, sessionStreamKey(-1), 0); !errors.Is(err, mcphttp.ErrEventGap) {
		t.Fatalf("got %v, want the stream discarded", err)
	}
	store.Append(t.Context(), sessionStreamKey(-1), 3, []byte("late"))
	if got, err := countEvents(store, sessionStreamKey(-1), 2); got != 1 || err != nil {
		t.Errorf("after the discarded events: got %d, %v; want 1 event", got, err)
	}
	if _, err := countEvents(store, sessionStreamKey(-1), 1); !errors.Is(err, mcphttp.ErrEventGap) {
		t.Errorf("discarded events: got %v, want a gap", err)
	}
}

func FuzzEventID(f *testing.F) {
	name := "cABCDEFGHIJKLMNOPQRSTUVWXYZ"
	for _, seed := range []string{name + "-1", name + "-01", name + "-+1", name + "-0", name + "--1", name, "", "-",
		"x" + name[1:] + "-1", name + "-9223372036854775807", name + "-9223372036854775808", name + "-1-1",
		name + "-1\x00"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, id string) {
		stream, n, ok := mcphttp.ParseEventID(id)
		if ok && mcphttp.EventID(stream, n) != id {
			t.Errorf("%q is parsed as %q", id, mcphttp.EventID(stream, n))
		}
		if !ok && (stream != "" || n != 0) {
			t.Errorf("invalid %q: got %q, %d, want zero values", id, stream, n)
		}
	})
}

// The events of one principal, or of anonymous callers, do not discard those of another.
func TestMemoryEvents_PrincipalsHaveShares(t *testing.T) {
	for _, hostile := range []string{"", "mallory"} {
		store := mcphttp.NewMemoryEvents()
		honest := mcphttp.StreamKey{Session: "honest", Principal: "ann", Stream: "stream"}
		appendEvents(store, honest, 10, 1000)
		for n := range 72 {
			key := mcphttp.StreamKey{Session: fmt.Sprint("s", n), Principal: hostile, Stream: "stream"}
			appendEvents(store, key, 8, 1<<20-100)
		}
		if got, err := countEvents(store, honest, 0); got != 10 || err != nil {
			t.Errorf("after the events of %q: got %d, %v; want 10 events", hostile, got, err)
		}
	}
	store := mcphttp.NewMemoryEvents()
	honest := mcphttp.StreamKey{Session: "honest", Principal: "ann", Stream: "stream"}
	appendEvents(store, honest, 10, 1000)
	for n := range 72 { // several principals together exceed the store
		key := mcphttp.StreamKey{Session: fmt.Sprint("s", n), Principal: fmt.Sprint("p", n%6), Stream: "stream"}
		appendEvents(store, key, 8, 1<<20-100)
	}
	if got, err := countEvents(store, honest, 0); got != 10 || err != nil {
		t.Errorf("after the events of six principals: got %d, %v; want 10 events", got, err)
	}
}

func TestMemoryEventsConform(t *testing.T) {
	storetest.RunEvents(t, func(*testing.T) (a, b mcphttp.EventStore) {
		s := mcphttp.NewMemoryEvents()
		return s, s
	})
}
