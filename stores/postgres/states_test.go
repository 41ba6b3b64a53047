package postgres_test

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

	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestStates(t *testing.T) {
	for name, check := range map[string]func(t *testing.T, a, b mcp.OnceStore){
		"Get returns what Put stored":        statesPut,
		"large states":                       statesLarge,
		"states expire":                      statesExpire,
		"concurrent use of a key":            onceConcurrent,
		"a use is remembered until it ends":  onceLasts,
		"canceled context of Put, Get, Once": statesCanceled,
	} {
		t.Run(name, func(t *testing.T) {
			a, b := openTwo(t)
			check(t, a.States(), b.States())
		})
	}
}

func inAnHour() time.Time { return time.Now().Add(time.Hour) }

func wantState(t *testing.T, s mcp.StateStore, key, want string) {
	t.Helper()
	got, err := s.Get(t.Context(), key)
	if err != nil || string(got) != want || (got == nil) != (want == "") {
		t.Errorf("state of %.80q: got %.80q, %v; want %.80q", key, got, err, want)
	}
}

func statesPut(t *testing.T, a, b mcp.OnceStore) {
	wantState(t, b, "a", "")
	state := []byte("one")
	must(t, a.Put(t.Context(), "a", state, inAnHour()))
	copy(state, "new") // the store must not retain state
	must(t, b.Put(t.Context(), "A", []byte("\x00\xff"), inAnHour()))
	must(t, b.Put(t.Context(), "}{a}", []byte("braces"), inAnHour()))
	for _, s := range []mcp.OnceStore{a, b} {
		for range 2 { // a client may repeat a request
			wantState(t, s, "a", "one")
		}
		wantState(t, s, "A", "\x00\xff")
		wantState(t, s, "}{a}", "braces")
		wantState(t, s, "", "")
		wantState(t, s, strings.Repeat("k", 1<<20), "")
	}
}

func statesLarge(t *testing.T, a, b mcp.OnceStore) {
	for _, size := range []int{64 << 10, 1 << 20, 16 << 20} {
		state := bytes.Repeat([]byte(fmt.Sprintf("%08d", size)), size/8)
		must(t, a.Put(t.Context(), fmt.Sprint(size), state, inAnHour()))
		got, err := b.Get(t.Context(), fmt.Sprint(size))
		if err != nil || !bytes.Equal(got, state) {
			t.Errorf("a state of %d bytes: got %d bytes, %v", size, len(got), err)
		}
	}
}

func statesExpire(t *testing.T, a, b mcp.OnceStore) {
	must(t, a.Put(t.Context(), "past", []byte("v"), time.Now().Add(-time.Second)))
	wantState(t, b, "past", "")
	must(t, a.Put(t.Context(), "soon", []byte("v"), time.Now().Add(50*time.Millisecond)))
	must(t, a.Put(t.Context(), "late", []byte("v"), inAnHour()))
	for state := []byte("v"); state != nil; { // until the time limit of the test
		var err error
		state, err = b.Get(t.Context(), "soon")
		must(t, err)
	}
	wantState(t, b, "late", "v")
}

func wantOnce(t *testing.T, s mcp.OnceStore, key string, expires time.Time, want bool) {
	t.Helper()
	if first, err := s.Once(t.Context(), key, expires); err != nil || first != want {
		t.Errorf("Once of %q returned %t, %v; want %t", key, first, err, want)
	}
}

func onceConcurrent(t *testing.T, a, b mcp.OnceStore) {
	for round := range 20 {
		var first atomic.Int32
		var all sync.WaitGroup
		for worker := range concurrentUsers {
			all.Go(func() {
				is, err := []mcp.OnceStore{a, b}[worker%2].Once(t.Context(), fmt.Sprint("key ", round), inAnHour())
				if err != nil {
					t.Error(err)
				}
				if is {
					first.Add(1)
				}
			})
		}
		all.Wait()
		if n := first.Load(); n != 1 {
			t.Errorf("round %d: Once was true for %d of %d calls, want 1", round, n, concurrentUsers)
		}
		wantState(t, a, fmt.Sprint("key ", round), "") // keys of states are separate
	}
}

// onceLasts checks that a use is not forgotten early. A store may remember it for longer.
func onceLasts(t *testing.T, a, b mcp.OnceStore) {
	expires := time.Now().Add(300 * time.Millisecond)
	wantOnce(t, a, "a", expires, true)
	for time.Now().Before(expires) {
		is, err := b.Once(t.Context(), "a", expires)
		if left := time.Until(expires); is && left > 0 {
			t.Fatalf("the use of a key was forgotten %v early", left)
		}
		must(t, err)
	}
}

func statesCanceled(t *testing.T, a, b mcp.OnceStore) {
	if err := a.Put(ended(t), "a", []byte("v"), inAnHour()); err != nil {
		wantCanceled(t, "Put", err)
	}
	if _, err := a.Get(ended(t), "a"); err != nil {
		wantCanceled(t, "Get", err)
	}
	if _, err := a.Once(ended(t), "a", inAnHour()); err != nil {
		wantCanceled(t, "Once", err)
	}
	must(t, b.Put(t.Context(), "b", []byte("v"), inAnHour()))
	wantState(t, a, "b", "v")
}

const concurrentUsers = 64

// ended returns a context that was canceled.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantCanceled(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%s with a canceled context returned %v, want context.Canceled", what, err)
	}
}
