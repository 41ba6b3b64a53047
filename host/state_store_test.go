package host_test

import (
	"context"
	"errors"
	"testing"

	"github.com/patchbay-mcp/patchbay/host/state"
)

func TestMemoryStateComparesVersions(t *testing.T) {
	ctx := context.Background()
	s := &state.Memory{}
	set := func(version uint64, value string) error {
		return s.CompareAndSet(ctx, "k", "a", version, []byte(value))
	}
	if err := set(1, "x"); !errors.Is(err, state.ErrConflict) {
		t.Errorf("an absent entry was changed at version 1: %v", err)
	}
	if err := set(0, "one"); err != nil {
		t.Fatal(err)
	}
	value, first, err := s.Get(ctx, "k", "a")
	if err != nil || string(value) != "one" || first == 0 {
		t.Fatalf("Get: %q, %d, %v", value, first, err)
	}
	value[0] = 'X' // the caller's own
	if err := set(0, "two"); !errors.Is(err, state.ErrConflict) {
		t.Errorf("an entry was created twice: %v", err)
	}
	if err := s.CompareAndSet(ctx, "k", "a", first, nil); err != nil {
		t.Fatal(err)
	}
	if value, version, err := s.Get(ctx, "k", "a"); value != nil || version != 0 || err != nil {
		t.Errorf("a deleted entry: %q, %d, %v", value, version, err)
	}
	if err := set(0, ""); err != nil {
		t.Fatal(err)
	}
	value, second, err := s.Get(ctx, "k", "a")
	if err != nil || value == nil || second <= first {
		t.Errorf("a new entry: %v, version %d after %d, %v", value, second, first, err)
	}
	if err := s.CompareAndSet(ctx, "k", "Z", 0, []byte("z")); err != nil {
		t.Fatal(err)
	}
	var keys string
	for e, err := range s.List(ctx, "k") {
		if err != nil {
			t.Fatal(err)
		}
		keys += e.Key
		if err := s.CompareAndSet(ctx, "k", e.Key, e.Version, nil); err != nil {
			t.Error(err)
		}
	}
	if keys != "Za" {
		t.Errorf("the keys are %q, want those of the kind in order", keys)
	}
}
