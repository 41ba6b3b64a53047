package main

import (
	"os"
	"runtime"
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

func TestHoldingIsTheDifferenceOfReadings(t *testing.T) {
	before := rig.Reading{Heap: 5000, Stack: 4096, Goroutines: 12}
	after := rig.Reading{Heap: 4000, Stack: 8192, Goroutines: 32}
	if got, want := newHolding("x", before, after, 10), (holding{"x", -100, 409.6, 2}); got != want {
		t.Errorf("holding = %+v, want %+v", got, want)
	}
}

func TestResidentBytes(t *testing.T) {
	bytes, ok := residentBytes(os.Getpid())
	if runtime.GOOS != "linux" {
		t.Skip("only Linux tells")
	}
	if !ok || bytes < 1<<20 || bytes > 1<<40 {
		t.Errorf("memory of this process = %v, %v", bytes, ok)
	}
}

func TestOpenFilesLeaveSomeToSpare(t *testing.T) {
	if n := openFiles(); n <= 0 {
		t.Errorf("streams that this process may open = %d", n)
	}
}
