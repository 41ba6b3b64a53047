package minheap_test

import (
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/internal/minheap"
)

// goal returns the size of the heap, in bytes, at which the next collection ends.
func goal() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/goal:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

func TestTheOperatorChoosesTheCollector(t *testing.T) {
	for _, name := range []string{"GOGC", "GOMEMLIMIT"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, "200")
			runtime.GC()
			before := goal()
			minheap.Set()
			runtime.GC()
			if got := goal(); got > before+8<<20 {
				t.Errorf("the goal of the collector grew from %d to %d bytes", before, got)
			}
		})
	}
}

func TestTheCollectorWaits(t *testing.T) {
	t.Setenv("GOGC", "")
	t.Setenv("GOMEMLIMIT", "")
	minheap.Set()
	runtime.GC()
	if got := goal(); got < 64<<20 {
		t.Errorf("the goal of the collector is %d bytes, want at least 64 MiB", got)
	}
}
