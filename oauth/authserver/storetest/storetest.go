// Package storetest is the test-suite of [authserver.Store]: who writes a store runs it.
package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/patchbay-mcp/patchbay/oauth/authserver"
)

// An Open gives a store whose records lie in the folder dir, which is there, or wherever dir can
// stand for: two calls with the same dir, the second after the first one's store was closed, are
// about the same records, and two with different ones are not. A store that does not last may
// ignore it.
type Open func(dir string) (authserver.Store, error)

// Run tests that a store keeps the contract of [authserver.Store].
func Run(t *testing.T, open Open) {
	for name, check := range map[string]func(*testing.T, authserver.Store){
		"what is put can be got":                       testPut,
		"kinds and keys are apart":                     testNames,
		"an expired record is not there":               testExpiry,
		"a record that is taken is gone":               testTake,
		"of many who take one gets it":                 testTakeOnce,
		"an update sees the old value":                 testUpdate,
		"an update that fails changes nothing":         testUpdateFails,
		"updates of one record exclude each other":     testUpdatesExclude,
		"values are copies":                            testCopies,
		"a count is that of the records":               testCount,
		"a context that has ended does nothing":        testContext,
		"names that cannot be kept are refused":        testBadNames,
		"many may use it at once":                      testConcurrent,
		"a value of a mebibyte and one of no bytes":    testSizes,
		"a store that was closed fails and stays calm": testClosed,
	} {
		t.Run(name, func(t *testing.T) { check(t, start(t, open, t.TempDir())) })
	}
}

// RunLasting is [Run] for a store that says that it lasts, and tests that it does.
func RunLasting(t *testing.T, open Open) {
	Run(t, open)
	t.Run("records are there after it was closed and opened", func(t *testing.T) {
		dir, ctx := t.TempDir(), t.Context()
		first, err := open(dir)
		if err != nil {
			t.Fatal(err)
		}
		must(t, first.Put(ctx, "grant", "forever", []byte("1"), time.Time{}))
		must(t, first.Put(ctx, "grant", "today", []byte("2"), time.Now().Add(time.Hour)))
		must(t, first.Put(ctx, "grant", "taken", []byte("3"), time.Time{}))
		if _, err := first.Take(ctx, "grant", "taken"); err != nil {
			t.Fatal(err)
		}
		must(t, first.Close())
		second := start(t, open, dir)
		want(t, second, "grant", "forever", "1")
		want(t, second, "grant", "today", "2")
		wantNone(t, second, "grant", "taken")
		if n, err := second.Count(ctx, "grant"); n != 2 || err != nil {
			t.Errorf("Count gave %d, %v; want 2", n, err)
		}
	})
}

func start(t *testing.T, open Open, dir string) authserver.Store {
	t.Helper()
	s, err := open(dir)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() }) // a second time in the test that closes it
	return s
}

func testPut(t *testing.T, s authserver.Store) {
	wantNone(t, s, "grant", "a")
	must(t, s.Put(t.Context(), "grant", "a", []byte("one"), time.Time{}))
	want(t, s, "grant", "a", "one")
	want(t, s, "grant", "a", "one")
	must(t, s.Put(t.Context(), "grant", "a", []byte("two"), time.Now().Add(time.Hour)))
	want(t, s, "grant", "a", "two")
}

func testNames(t *testing.T, s authserver.Store) {
	// Pairs whose parts, written one after the other, are the same.
	names := [][2]string{{"a", "b/c"}, {"a/b", "c"}, {"a", "bc"}, {"ab", "c"}, {"a", "B/c"}, {"a", "\x00"}, {"a",
		"\x00\x00"}, {"a", "ä"}, {"a", strings.Repeat("k", 2048)}}
	for i, n := range names {
		must(t, s.Put(t.Context(), n[0], n[1], []byte{byte(i)}, time.Now().Add(time.Hour)))
	}
	for i, n := range names {
		want(t, s, n[0], n[1], string([]byte{byte(i)}))
	}
}

func testExpiry(t *testing.T, s authserver.Store) {
	ctx, past := t.Context(), time.Now().Add(-time.Second)
	for name, put := range map[string]func(key string) error{
		"put":    func(key string) error { return s.Put(ctx, "grant", key, []byte("v"), past) },
		"update": func(key string) error { return s.Update(ctx, "grant", key, give("v", past)) },
	} {
		must(t, s.Put(ctx, "grant", name, []byte("old"), time.Time{}))
		must(t, put(name))
		wantNone(t, s, "grant", name)
		if value, err := s.Take(ctx, "grant", name); value != nil || err != nil {
			t.Errorf("%s: Take of an expired record gave %q, %v", name, value, err)
		}
		must(t, s.Update(ctx, "grant", name, func(old []byte) ([]byte, time.Time, error) {
			if old != nil {
				t.Errorf("%s: Update of an expired record saw %q", name, old)
			}
			return nil, time.Time{}, nil
		}))
	}
	must(t, s.Put(ctx, "grant", "far", []byte("v"), time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)))
	want(t, s, "grant", "far", "v")
	must(t, s.Put(ctx, "grant", "long ago", []byte("v"), time.Date(1, 2, 1, 0, 0, 0, 0, time.UTC)))
	wantNone(t, s, "grant", "long ago")
}

func testTake(t *testing.T, s authserver.Store) {
	must(t, s.Put(t.Context(), "code", "a", []byte("one"), time.Now().Add(time.Hour)))
	for _, wanted := range []string{"one", ""} {
		value, err := s.Take(t.Context(), "code", "a")
		if err != nil || string(value) != wanted {
			t.Errorf("Take gave %q, %v; want %q", value, err, wanted)
		}
	}
	wantNone(t, s, "code", "a")
}

func testTakeOnce(t *testing.T, s authserver.Store) {
	for round := range 5 {
		key := fmt.Sprint(round)
		must(t, s.Put(t.Context(), "code", key, []byte("one"), time.Time{}))
		var got atomic.Int32
		at(20, func(int) {
			value, err := s.Take(t.Context(), "code", key)
			if err != nil {
				t.Error(err)
			}
			if value != nil {
				got.Add(1)
			}
		})
		if n := got.Load(); n != 1 {
			t.Errorf("%d of 20 got the record, want 1", n)
		}
	}
}

func testUpdate(t *testing.T, s authserver.Store) {
	ctx := t.Context()
	for _, step := range []struct{ sees, gives string }{{"", "one"}, {"one", "two"}, {"two", ""}, {"", "three"}} {
		must(t, s.Update(ctx, "grant", "a", func(old []byte) ([]byte, time.Time, error) {
			if string(old) != step.sees || (old == nil) != (step.sees == "") {
				t.Errorf("change saw %q, want %q", old, step.sees)
			}
			if step.gives == "" {
				return nil, time.Time{}, nil
			}
			return []byte(step.gives), time.Now().Add(time.Hour), nil
		}))
		if step.gives == "" {
			wantNone(t, s, "grant", "a")
		} else {
			want(t, s, "grant", "a", step.gives)
		}
	}
}

func testUpdateFails(t *testing.T, s authserver.Store) {
	must(t, s.Put(t.Context(), "grant", "a", []byte("one"), time.Time{}))
	refused := errors.New("refused")
	for _, key := range []string{"a", "b"} {
		err := s.Update(t.Context(), "grant", key, func([]byte) ([]byte, time.Time, error) {
			return []byte("two"), time.Time{}, refused
		})
		if !errors.Is(err, refused) {
			t.Errorf("Update gave %v, want the error of change", err)
		}
	}
	want(t, s, "grant", "a", "one")
	wantNone(t, s, "grant", "b")
}

func testUpdatesExclude(t *testing.T, s authserver.Store) {
	const workers, each = 8, 10
	at(workers, func(int) {
		for range each {
			err := s.Update(t.Context(), "grant", "n", func(old []byte) ([]byte, time.Time, error) {
				return append(old, '+'), time.Time{}, nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
	want(t, s, "grant", "n", strings.Repeat("+", workers*each))
}

func testCopies(t *testing.T, s authserver.Store) {
	ctx, mine := t.Context(), []byte("one")
	must(t, s.Put(ctx, "grant", "a", mine, time.Time{}))
	copy(mine, "XXX")
	want(t, s, "grant", "a", "one")
	got, err := s.Get(ctx, "grant", "a")
	if err != nil {
		t.Fatal(err)
	}
	copy(got, "XXX")
	want(t, s, "grant", "a", "one")
	must(t, s.Update(ctx, "grant", "a", func(old []byte) ([]byte, time.Time, error) {
		mine = old
		return []byte("two"), time.Time{}, nil
	}))
	if string(mine) != "one" {
		t.Errorf("what change was given reads %q after Update, want %q", mine, "one")
	}
	_ = s.Update(ctx, "grant", "a", func(old []byte) ([]byte, time.Time, error) {
		copy(old, "XXX")
		return nil, time.Time{}, errors.New("refused")
	})
	want(t, s, "grant", "a", "two")
}

func testCount(t *testing.T, s authserver.Store) {
	ctx := t.Context()
	// Records that have expired may be counted for a time.
	count := func(kind string, live, expired int) {
		t.Helper()
		if n, err := s.Count(ctx, kind); n < live || n > live+expired || err != nil {
			t.Errorf("Count of %s gave %d, %v; want %d to %d", kind, n, err, live, live+expired)
		}
	}
	count("client", 0, 0)
	for i := range 5 {
		must(t, s.Put(ctx, "client", fmt.Sprint(i), []byte("v"), time.Now().Add(time.Hour)))
	}
	must(t, s.Put(ctx, "client", "0", []byte("again"), time.Now().Add(2*time.Hour)))
	must(t, s.Put(ctx, "grant", "x", []byte("v"), time.Time{}))
	if _, err := s.Take(ctx, "client", "2"); err != nil {
		t.Fatal(err)
	}
	must(t, s.Update(ctx, "client", "3", func([]byte) ([]byte, time.Time, error) { return nil, time.Time{}, nil }))
	for range 2 { // to remove what is not there changes nothing
		if _, err := s.Take(ctx, "client", "3"); err != nil {
			t.Fatal(err)
		}
	}
	must(t, s.Update(ctx, "client", "4", give("changed", time.Time{})))
	must(t, s.Update(ctx, "client", "5", give("new", time.Time{})))
	_ = s.Update(ctx, "client", "6", func([]byte) ([]byte, time.Time, error) {
		return []byte("v"), time.Time{}, errors.New("refused")
	})
	count("client", 4, 0)
	count("grant", 1, 0)
	must(t, s.Put(ctx, "client", "1", []byte("gone"), time.Now().Add(-time.Hour)))
	count("client", 3, 1)
}

func testContext(t *testing.T, s authserver.Store) {
	must(t, s.Put(t.Context(), "grant", "a", []byte("one"), time.Time{}))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ended, "grant", "a", []byte("two"), time.Time{}); err == nil {
		t.Error("Put succeeded")
	}
	if err := s.Update(ended, "grant", "a", give("two", time.Time{})); err == nil {
		t.Error("Update succeeded")
	}
	if _, err := s.Take(ended, "grant", "a"); err == nil {
		t.Error("Take succeeded")
	}
	want(t, s, "grant", "a", "one")
}

func testBadNames(t *testing.T, s authserver.Store) {
	for _, n := range [][2]string{{"", "key"}, {"grant", ""}, {"grant", strings.Repeat("k", 64<<10)}} {
		if err := s.Put(t.Context(), n[0], n[1], []byte("v"), time.Time{}); err == nil {
			t.Errorf("Put of kind %q and a key of %d bytes succeeded", n[0], len(n[1]))
		}
		// They are asked for with what a stranger sent, who is no cause for an alarm.
		wantNone(t, s, n[0], n[1])
		if value, err := s.Take(t.Context(), n[0], n[1]); value != nil || err != nil {
			t.Errorf("Take gave %q, %v; want nothing", value, err)
		}
	}
}

func testConcurrent(t *testing.T, s authserver.Store) {
	at(8, func(worker int) {
		for i := range 20 {
			key := fmt.Sprintf("%d-%d", worker, i)
			if err := s.Put(t.Context(), "grant", key, []byte(key), time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
			if value, err := s.Get(t.Context(), "grant", key); err != nil || string(value) != key {
				t.Errorf("Get gave %q, %v; want %q", value, err, key)
			}
		}
	})
	if n, err := s.Count(t.Context(), "grant"); n != 160 || err != nil {
		t.Errorf("Count gave %d, %v; want 160", n, err)
	}
}

func testSizes(t *testing.T, s authserver.Store) {
	large := strings.Repeat("x", 1<<20)
	must(t, s.Put(t.Context(), "grant", "large", []byte(large), time.Time{}))
	want(t, s, "grant", "large", large)
	must(t, s.Put(t.Context(), "grant", "empty", []byte{}, time.Time{}))
	if value, err := s.Get(t.Context(), "grant", "empty"); value == nil || len(value) > 0 || err != nil {
		t.Errorf("Get of a value of no bytes gave %v, %v; want one of no bytes that is not nil", value, err)
	}
}

func testClosed(t *testing.T, s authserver.Store) {
	must(t, s.Put(t.Context(), "grant", "a", []byte("one"), time.Time{}))
	must(t, s.Close())
	if _, err := s.Get(t.Context(), "grant", "a"); err == nil {
		t.Error("Get succeeded")
	}
	if err := s.Put(t.Context(), "grant", "a", []byte("two"), time.Time{}); err == nil {
		t.Error("Put succeeded")
	}
}

func give(value string, expires time.Time) func([]byte) ([]byte, time.Time, error) {
	return func([]byte) ([]byte, time.Time, error) { return []byte(value), expires, nil }
}

// at runs work on n goroutines at once, and waits for them.
func at(n int, work func(worker int)) {
	var all sync.WaitGroup
	for worker := range n {
		all.Go(func() { work(worker) })
	}
	all.Wait()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, s authserver.Store, kind, key, wanted string) {
	t.Helper()
	value, err := s.Get(t.Context(), kind, key)
	if err != nil || !bytes.Equal(value, []byte(wanted)) || value == nil {
		t.Errorf("Get of %s %.40q gave %.40q, %v; want %.40q", kind, key, value, err, wanted)
	}
}

func wantNone(t *testing.T, s authserver.Store, kind, key string) {
	t.Helper()
	if value, err := s.Get(t.Context(), kind, key); value != nil || err != nil {
		t.Errorf("Get of %s %.40q gave %.40q, %v; want nothing", kind, key, value, err)
	}
}
