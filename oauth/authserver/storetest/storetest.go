// Package storetest tests implementations of [authserver.Store].
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

// An Open opens a store in an existing directory, or in any other place that the directory can
// name: with the same directory it opens the same records, with another directory it does not. The
// previous store with the same directory was closed before. A store in memory may ignore it.
type Open func(dir string) (authserver.Store, error)

// Run tests that a store conforms to [authserver.Store].
func Run(t *testing.T, open Open) {
	for name, check := range map[string]func(*testing.T, authserver.Store){
		"Put and Get":               testPut,
		"names are separate":        testNames,
		"expiry":                    testExpiry,
		"GetAndDelete removes":      testGetAndDelete,
		"concurrent GetAndDelete":   testGetAndDeleteOnce,
		"Update sees the old value": testUpdate,
		"failed Update":             testUpdateFails,
		"concurrent Update":         testUpdatesExclude,
		"values are copies":         testCopies,
		"canceled context":          testContext,
		"invalid names":             testBadNames,
		"concurrent use":            testConcurrent,
		"large and empty values":    testSizes,
		"closed store":              testClosed,
	} {
		t.Run(name, func(t *testing.T) { check(t, start(t, open, t.TempDir())) })
	}
}

// RunLasting is [Run] for a persistent store. It also tests that records survive closing the store.
func RunLasting(t *testing.T, open Open) {
	Run(t, open)
	t.Run("records survive closing", func(t *testing.T) {
		dir, ctx := t.TempDir(), t.Context()
		first, err := open(dir)
		if err != nil {
			t.Fatal(err)
		}
		must(t, first.Put(ctx, "grant", "forever", []byte("1"), time.Time{}))
		must(t, first.Put(ctx, "grant", "today", []byte("2"), time.Now().Add(time.Hour)))
		must(t, first.Put(ctx, "grant", "taken", []byte("3"), time.Time{}))
		if _, err := first.GetAndDelete(ctx, "grant", "taken"); err != nil {
			t.Fatal(err)
		}
		must(t, first.Close())
		second := start(t, open, dir)
		want(t, second, "grant", "forever", "1")
		want(t, second, "grant", "today", "2")
		wantNone(t, second, "grant", "taken")
	})
}

// RunShared tests that stores that are open at the same time with the same directory, as in several
// processes, act as a single store, as [authserver.Store] describes. Here the previous store with a
// directory is still open when open is called again.
func RunShared(t *testing.T, open Open) {
	t.Run("changes are visible at once", func(t *testing.T) {
		a, b := startTwo(t, open)
		must(t, a.Put(t.Context(), "grant", "a", []byte("one"), time.Now().Add(time.Hour)))
		want(t, b, "grant", "a", "one")
		must(t, b.Update(t.Context(), "grant", "a", setTo("two", time.Now().Add(time.Hour))))
		want(t, a, "grant", "a", "two")
		if value, err := a.GetAndDelete(t.Context(), "grant", "a"); string(value) != "two" || err != nil {
			t.Errorf("GetAndDelete returned %q, %v; want %q", value, err, "two")
		}
		wantNone(t, b, "grant", "a")
	})
	t.Run("GetAndDelete in several processes", func(t *testing.T) {
		a, b := startTwo(t, open)
		both := []authserver.Store{a, b}
		for round := range 20 {
			key := fmt.Sprint(round)
			must(t, a.Put(t.Context(), "code", key, []byte("one"), time.Time{}))
			var got atomic.Int32
			concurrently(8, func(worker int) {
				value, err := both[worker%2].GetAndDelete(t.Context(), "code", key)
				if err != nil {
					t.Error(err)
				}
				if value != nil {
					got.Add(1)
				}
			})
			if n := got.Load(); n != 1 {
				t.Errorf("%d of 8 calls got the record, want 1", n)
			}
		}
	})
	t.Run("Update in several processes", func(t *testing.T) {
		a, b := startTwo(t, open)
		both := []authserver.Store{a, b}
		const workers, each = 8, 10
		concurrently(workers, func(worker int) {
			for range each {
				err := both[worker%2].Update(t.Context(), "grant", "n", func(old []byte) ([]byte, time.Time, error) {
					return append(old, '+'), time.Time{}, nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
		want(t, a, "grant", "n", strings.Repeat("+", workers*each))
		want(t, b, "grant", "n", strings.Repeat("+", workers*each))
	})
}

func startTwo(t *testing.T, open Open) (a, b authserver.Store) {
	t.Helper()
	dir := t.TempDir()
	return start(t, open, dir), start(t, open, dir)
}

func start(t *testing.T, open Open, dir string) authserver.Store {
	t.Helper()
	s, err := open(dir)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(func() { _ = s.Close() }) // the second Close in testClosed
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
	// Pairs that could be confused if kind and key were concatenated.
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
		"update": func(key string) error { return s.Update(ctx, "grant", key, setTo("v", past)) },
	} {
		must(t, s.Put(ctx, "grant", name, []byte("old"), time.Time{}))
		must(t, put(name))
		wantNone(t, s, "grant", name)
		if value, err := s.GetAndDelete(ctx, "grant", name); value != nil || err != nil {
			t.Errorf("%s: GetAndDelete of an expired record returned %q, %v", name, value, err)
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

func testGetAndDelete(t *testing.T, s authserver.Store) {
	must(t, s.Put(t.Context(), "code", "a", []byte("one"), time.Now().Add(time.Hour)))
	for _, wanted := range []string{"one", ""} {
		value, err := s.GetAndDelete(t.Context(), "code", "a")
		if err != nil || string(value) != wanted {
			t.Errorf("GetAndDelete returned %q, %v; want %q", value, err, wanted)
		}
	}
	wantNone(t, s, "code", "a")
}

func testGetAndDeleteOnce(t *testing.T, s authserver.Store) {
	for round := range 5 {
		key := fmt.Sprint(round)
		must(t, s.Put(t.Context(), "code", key, []byte("one"), time.Time{}))
		var got atomic.Int32
		concurrently(20, func(int) {
			value, err := s.GetAndDelete(t.Context(), "code", key)
			if err != nil {
				t.Error(err)
			}
			if value != nil {
				got.Add(1)
			}
		})
		if n := got.Load(); n != 1 {
			t.Errorf("%d of 20 calls got the record, want 1", n)
		}
	}
}

func testUpdate(t *testing.T, s authserver.Store) {
	ctx := t.Context()
	for _, step := range []struct{ sees, next string }{{"", "one"}, {"one", "two"}, {"two", ""}, {"", "three"}} {
		must(t, s.Update(ctx, "grant", "a", func(old []byte) ([]byte, time.Time, error) {
			if string(old) != step.sees || (old == nil) != (step.sees == "") {
				t.Errorf("change saw %q, want %q", old, step.sees)
			}
			if step.next == "" {
				return nil, time.Time{}, nil
			}
			return []byte(step.next), time.Now().Add(time.Hour), nil
		}))
		if step.next == "" {
			wantNone(t, s, "grant", "a")
		} else {
			want(t, s, "grant", "a", step.next)
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
			t.Errorf("Update returned %v, want the error of change", err)
		}
	}
	want(t, s, "grant", "a", "one")
	wantNone(t, s, "grant", "b")
}

func testUpdatesExclude(t *testing.T, s authserver.Store) {
	const workers, each = 8, 10
	concurrently(workers, func(int) {
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
		t.Errorf("the value that change got reads %q after Update, want %q", mine, "one")
	}
	_ = s.Update(ctx, "grant", "a", func(old []byte) ([]byte, time.Time, error) {
		copy(old, "XXX")
		return nil, time.Time{}, errors.New("refused")
	})
	want(t, s, "grant", "a", "two")
}

func testContext(t *testing.T, s authserver.Store) {
	must(t, s.Put(t.Context(), "grant", "a", []byte("one"), time.Time{}))
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Put(ended, "grant", "a", []byte("two"), time.Time{}); err == nil {
		t.Error("Put succeeded")
	}
	if err := s.Update(ended, "grant", "a", setTo("two", time.Time{})); err == nil {
		t.Error("Update succeeded")
	}
	if _, err := s.GetAndDelete(ended, "grant", "a"); err == nil {
		t.Error("GetAndDelete succeeded")
	}
	want(t, s, "grant", "a", "one")
}

func testBadNames(t *testing.T, s authserver.Store) {
	for _, n := range [][2]string{{"", "key"}, {"grant", ""}, {"grant", strings.Repeat("k", 64<<10)}} {
		if err := s.Put(t.Context(), n[0], n[1], []byte("v"), time.Time{}); err == nil {
			t.Errorf("Put of kind %q and a key of %d bytes succeeded", n[0], len(n[1]))
		}
		// Get and GetAndDelete are called with text from requests, so invalid names are not errors.
		wantNone(t, s, n[0], n[1])
		if value, err := s.GetAndDelete(t.Context(), n[0], n[1]); value != nil || err != nil {
			t.Errorf("GetAndDelete returned %q, %v; want nothing", value, err)
		}
	}
}

func testConcurrent(t *testing.T, s authserver.Store) {
	concurrently(8, func(worker int) {
		for i := range 20 {
			key := fmt.Sprintf("%d-%d", worker, i)
			if err := s.Put(t.Context(), "grant", key, []byte(key), time.Now().Add(time.Hour)); err != nil {
				t.Error(err)
			}
			if value, err := s.Get(t.Context(), "grant", key); err != nil || string(value) != key {
				t.Errorf("Get returned %q, %v; want %q", value, err, key)
			}
		}
	})
	concurrently(8, func(worker int) {
		for i := range 20 {
			key := fmt.Sprintf("%d-%d", worker, i)
			want(t, s, "grant", key, key)
		}
	})
}

func testSizes(t *testing.T, s authserver.Store) {
	large := strings.Repeat("x", 1<<20)
	must(t, s.Put(t.Context(), "grant", "large", []byte(large), time.Time{}))
	want(t, s, "grant", "large", large)
	must(t, s.Put(t.Context(), "grant", "empty", []byte{}, time.Time{}))
	if value, err := s.Get(t.Context(), "grant", "empty"); value == nil || len(value) > 0 || err != nil {
		t.Errorf("Get of an empty value returned %v, %v; want an empty slice that is not nil", value, err)
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

func setTo(value string, expires time.Time) func([]byte) ([]byte, time.Time, error) {
	return func([]byte) ([]byte, time.Time, error) { return []byte(value), expires, nil }
}

// concurrently runs work in n goroutines and waits for them.
func concurrently(n int, work func(worker int)) {
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
