package main

import (
	"os"
	"runtime"
	"testing"

	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

func TestMemoryCostIsTheDifferenceOfReadings(t *testing.T) {
	before := rig.Reading{Heap: 5000, Stack: 4096, Goroutines: 12}
	after := rig.Reading{Heap: 4000, Stack: 8192, Goroutines: 32}
	if got, want := newMemoryCost("x", before, after, 10), (memoryCost{"x", -100, 409.6, 2}); got != want {
		t.Errorf("memoryCost = %+v, want %+v", got, want)
	}
}

func TestResidentBytesOfThisProcess(t *testing.T) {
	bytes, ok := memoryOf(os.Getpid(), "VmRSS:")
	peak, known := memoryOf(os.Getpid(), "VmHWM:")
	if runtime.GOOS != "linux" {
		t.Skip("resident memory is read on Linux only")
	}
	if !known || peak < bytes {
		t.Errorf("peak of this process = %v, %v, want at least %v", peak, known, bytes)
	}
	if !ok || bytes < 1<<20 || bytes > 1<<40 {
		t.Errorf("memory of this process = %v, %v, want 1 MiB to 1 TiB", bytes, ok)
	}
}

func TestOpenFilesReservesDescriptors(t *testing.T) {
	if n := openFiles(); n <= 0 {
		t.Errorf("openFiles() = %d, want more than 0", n)
	}
}
