package kept_test

import (
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/kept"
)

func TestOldestResultIsForgotten(t *testing.T) {
	var s kept.Store[int]
	first := s.Add(1)
	if got, ok := s.Get(first); !ok || got != 1 {
		t.Errorf("got %d, %t, want 1", got, ok)
	}
	last := ""
	for n := range 60 {
		last = s.Add(n)
	}
	if _, ok := s.Get(first); ok {
		t.Error("the oldest of 61 results is kept")
	}
	if got, ok := s.Get(last); !ok || got != 59 {
		t.Errorf("got %d, %t, want the last result", got, ok)
	}
}
