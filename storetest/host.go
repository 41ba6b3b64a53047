package storetest

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/state"
)

// RunHostState tests that a store conforms to [state.Store]. open returns two clients of a new
// store.
func RunHostState(t *testing.T, open func(t *testing.T) (a, b state.Store)) {
	run(t, open, map[string]func(t *testing.T, a, b state.Store){
		"Get returns what CompareAndSet wrote":      hostGet,
		"an entry needs its current version":        hostVersions,
		"concurrent counters lose nothing":          hostCounter,
		"List returns the entries in order":         hostList,
		"large and empty values":                    hostSizes,
		"canceled context of Get and CompareAndSet": hostCanceled,
	})
}

// set replaces an entry whatever its version, and returns the new version.
func set(t *testing.T, s state.Store, kind, key, value string) uint64 {
	t.Helper()
	_, version, err := s.Get(t.Context(), kind, key)
	must(t, err)
	must(t, s.CompareAndSet(t.Context(), kind, key, version, []byte(value)))
	_, version, err = s.Get(t.Context(), kind, key)
	must(t, err)
	return version
}

func wantEntry(t *testing.T, s state.Store, kind, key, want string) {
	t.Helper()
	value, version, err := s.Get(t.Context(), kind, key)
	if err != nil || value == nil || version == 0 || string(value) != want {
		t.Errorf("%.20q %.40q: got %.40q, version %d, %v; want %.40q", kind, key, value, version, err, want)
	}
}

func wantNoEntry(t *testing.T, s state.Store, kind, key string) {
	t.Helper()
	if value, version, err := s.Get(t.Context(), kind, key); value != nil || version != 0 || err != nil {
		t.Errorf("%.20q %.40q: got %.40q, version %d, %v; want no entry", kind, key, value, version, err)
	}
}

// listed returns the keys and values of a kind.
func listed(t *testing.T, s state.Store, kind string) (all []string) {
	t.Helper()
	for e, err := range s.List(t.Context(), kind) {
		must(t, err)
		all = append(all, e.Key+"="+string(e.Value))
	}
	return all
}

func hostGet(t *testing.T, a, b state.Store) {
	wantNoEntry(t, b, "pin", "a")
	value := []byte("one")
	must(t, a.CompareAndSet(t.Context(), "pin", "a", 0, value))
	copy(value, "new") // the store must not retain value
	wantEntry(t, b, "pin", "a", "one")
	set(t, b, "pin", "a", "two")
	wantEntry(t, a, "pin", "a", "two")
	for _, name := range [][2]string{{"grant", "a"}, {"pin", "A"}, {"", "a"}, {"pin", ""}, {"\xff", "a"}} {
		wantNoEntry(t, a, name[0], name[1])
	}
}

func hostVersions(t *testing.T, a, b state.Store) {
	conflict := func(version uint64, value []byte) {
		t.Helper()
		if err := b.CompareAndSet(t.Context(), "pin", "a", version, value); !errors.Is(err, state.ErrConflict) {
			t.Errorf("a change of version %d returned %v, want ErrConflict", version, err)
		}
	}
	conflict(1, []byte("new"))
	conflict(1, nil)
	must(t, a.CompareAndSet(t.Context(), "pin", "a", 0, nil)) // the entry does not exist
	version := set(t, a, "pin", "a", "one")
	for _, wrong := range []uint64{0, version - 1, version + 1, 1 << 63} {
		conflict(wrong, []byte("new"))
		conflict(wrong, nil)
	}
	wantEntry(t, a, "pin", "a", "one")
	must(t, b.CompareAndSet(t.Context(), "pin", "a", version, nil))
	wantNoEntry(t, a, "pin", "a")
}

func hostCounter(t *testing.T, a, b state.Store) {
	const each = 3
	concurrently(a, b, func(_ int, s state.Store) {
		for done := 0; done < each; {
			value, version, err := s.Get(t.Context(), "count", "n")
			if err == nil {
				n, _ := strconv.Atoi(string(value))
				err = s.CompareAndSet(t.Context(), "count", "n", version, strconv.AppendInt(nil, int64(n+1), 10))
			}
			switch {
			case err == nil:
				done++
			case !errors.Is(err, state.ErrConflict):
				t.Error(err)
				return
			}
		}
	})
	wantEntry(t, a, "count", "n", strconv.Itoa(each*concurrentUsers))
}

func hostList(t *testing.T, a, b state.Store) {
	if got := listed(t, b, "pin"); len(got) > 0 {
		t.Errorf("a new store lists %q", got)
	}
	keys, want := []string{"b", "a", "B", "aa", "é", "a b", "}{", "d", "\x00", strings.Repeat("k", 1<<10)}, []string{}
	for _, key := range keys {
		set(t, a, "pin", key, "value of "+key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		want = append(want, key+"=value of "+key)
	}
	for _, kind := range []string{"pin:b", "{pin}", "pi", strings.Repeat("k", 64)} {
		set(t, a, kind, "c", "other kind")
	}
	if got := listed(t, b, "pin"); !slices.Equal(got, want) {
		t.Errorf("the list is %q, want %q", got, want)
	}
	for e, err := range a.List(t.Context(), "pin") { // entries may change during the loop
		must(t, err)
		must(t, b.CompareAndSet(t.Context(), "pin", e.Key, e.Version, nil))
		if version := set(t, b, "pin", e.Key, "new"); version == e.Version {
			t.Errorf("the key %q got version %d twice", e.Key, version)
		}
	}
}

func hostSizes(t *testing.T, a, b state.Store) {
	for _, size := range []int{0, 1, 1 << 20, 32 << 20, 10} {
		value := strings.Repeat("v", size)
		set(t, a, "pin", "a", value)
		wantEntry(t, b, "pin", "a", value)
		if got := listed(t, b, "pin"); len(got) != 1 || got[0] != "a="+value {
			t.Errorf("a value of %d bytes: the list is %.40q", size, got)
		}
	}
}

// hostCanceled checks that a canceled call makes the whole change or no change.
func hostCanceled(t *testing.T, a, b state.Store) {
	set(t, a, "pin", "a", "one")
	_, version, err := a.Get(ended(t), "pin", "a")
	if err != nil {
		wantCanceled(t, "Get", err)
	}
	if err := a.CompareAndSet(ended(t), "pin", "a", version, []byte("two")); err == nil {
		wantEntry(t, b, "pin", "a", "two")
	} else if !errors.Is(err, state.ErrConflict) {
		wantCanceled(t, "CompareAndSet", err)
		wantEntry(t, b, "pin", "a", "one")
	}
	for _, err := range a.List(ended(t), "pin") {
		if err != nil {
			wantCanceled(t, "List", err)
		}
	}
}
