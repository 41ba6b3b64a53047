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
	Parked      int    `json:"parked"`      // of the goroutines, those that wait to read a stream; 0 between quiet points
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
	m := measure()
	m.Parked = parked(goroutineStacks())
	return m
}

// parked returns how many of the stacks are of goroutines that package readerpool keeps for the next
// message of a stream. How many it keeps depends on how many messages once arrived together, up to
// maxParked for each stream: that number rises during a run, and is no leak.
func parked(stacks []runtime.StackRecord) int {
	n := 0
	for _, stack := range stacks {
		frames := runtime.CallersFrames(stack.Stack())
		for more := true; more; {
			var frame runtime.Frame
			frame, more = frames.Next()
			if strings.HasSuffix(frame.Function, "internal/readerpool.(*Pool).park") {
				n++
				break
			}
		}
	}
	return n
}

func goroutineStacks() []runtime.StackRecord {
	for n := runtime.NumGoroutine(); ; {
		stacks := make([]runtime.StackRecord, n+10) // goroutines may start meanwhile
		all, ok := runtime.GoroutineProfile(stacks)
		if ok {
			return stacks[:all]
		}
		n = all
	}
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
