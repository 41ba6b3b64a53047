package lru_test

import (
	"slices"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/lru"
)

func TestLeastRecentlyUsedIsDropped(t *testing.T) {
	var evicted []string
	m := lru.Map[string, int]{Max: 2, OnEvict: func(key string, _ *int) { evicted = append(evicted, key) }}
	one, two, three := 1, 2, 3
	m.Put("a", &one)
	m.Put("b", &two)
	if got := m.Get("a"); got != &one {
		t.Errorf("got %v", got)
	}
	m.Put("c", &three)
	if m.Get("b") != nil || m.Get("a") == nil || m.Len() != 2 || !slices.Equal(evicted, []string{"b"}) {
		t.Errorf("got %d values, evicted %v", m.Len(), evicted)
	}
	m.Put("c", &one) // the same key
	m.Drop("a")
	m.Drop("a")
	n := 0
	m.All(func(_ string, v *int) { n += *v })
	if n != 1 || m.Len() != 1 || len(evicted) != 1 {
		t.Errorf("got %d of %d values, evicted %v", n, m.Len(), evicted)
	}
}

// The counts of an evicted key are those that its group begins with.
func TestEvictedCountsAreKept(t *testing.T) {
	f := lru.Folding[string, byte, int]{Max: 2,
		Group: func(key string) (byte, bool) { return key[0], key[0] != '-' },
		Add:   func(to, from *int) { *to += *from }}
	count := func(key string) int {
		v := f.GetOrPut(key, func() *int { return new(int) })
		*v++
		return *v
	}
	for range 3 {
		count("a1")
	}
	count("b1")
	count("b2") // evicts a1
	if got := count("a1"); got != 4 {
		t.Errorf("an evicted key has %d, want 4", got)
	}
	if got := count("a2"); got != 4 { // evicts b2, whose group has b1 already
		t.Errorf("another key of the group has %d, want 4", got)
	}
	if got := count("b3"); got != 3 {
		t.Errorf("a key of a group with two evicted keys has %d, want 3", got)
	}
	count("-1")
	count("-2")
	count("-3")
	if got := count("-1"); got != 1 || f.Len() != 2 || f.Get("-2") != nil {
		t.Errorf("a key without a group has %d, want 1; %d keys", got, f.Len())
	}
}
