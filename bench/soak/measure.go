package main

import (
	"os"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
)

// A sample is what a process uses at one moment.
type sample struct {
	Goroutines  int    `json:"goroutines"`
	Heap        uint64 `json:"heap"`        // live, at the end of the last garbage collection
	Resident    uint64 `json:"resident"`    // 0 where it is unknown
	Descriptors int    `json:"descriptors"` // 0 where it is unknown
	Slow        int64  `json:"slow"`        // slow calls that run
}

func measure() sample {
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(live)
	return sample{
		Goroutines:  runtime.NumGoroutine(),
		Heap:        live[0].Value.Uint64(),
		Resident:    residentBytes(),
		Descriptors: descriptors(),
		Slow:        slowCalls.Load(),
	}
}

// measureQuiet collects garbage first, three times: finalizers and pools can keep memory over two
// collections.
func measureQuiet() sample {
	for range 3 {
		runtime.GC()
	}
	return measure()
}

func descriptors() int {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(all) - 1 // one of them reads the directory
}

func residentBytes() uint64 {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(text))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}
