//go:build linux

package main

import (
	"fmt"
	"maps"
	"math"
	"os"
	"runtime"
	"runtime/metrics"
	"runtime/pprof"
	"runtime/trace"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

type latencies struct {
	n                  int
	p50, p95, p99, max time.Duration
}

func newLatencies(took []time.Duration) latencies {
	if len(took) == 0 {
		return latencies{}
	}
	slices.Sort(took)
	return latencies{len(took), took[len(took)/2], took[len(took)*95/100], took[len(took)*99/100], took[len(took)-1]}
}

// attackFigures are the outcomes of the attacks.
type attackFigures struct {
	Statuses map[int]int
	Broken   int // connections
}

// figures are those of the server process. All of them grow with time, except the sizes.
type figures struct {
	CPU           time.Duration // user and system
	GC, Assist    float64       // seconds of processor time of the garbage collector
	Heap          uint64        // live and unswept objects, in bytes
	HeapPeak      uint64
	RSS, RSSPeak  uint64
	Goroutines    uint64
	Runnable      []uint64 // how many goroutines waited how long for a processor
	Pauses        []uint64 // how many times the garbage collector stopped all goroutines for how long
	RunnableLimit []string // upper limits of the buckets, in seconds
	PauseLimit    []string
	before        uint64
}

var samples = []string{
	"/cpu/classes/gc/total:cpu-seconds", "/cpu/classes/gc/mark/assist:cpu-seconds",
	"/memory/classes/heap/objects:bytes", "/sched/goroutines:goroutines",
	"/sched/latencies:seconds", "/sched/pauses/total/gc:seconds",
}

var heapPeak atomic.Uint64

// watchHeap records the peak of the heap.
func watchHeap() {
	sample := []metrics.Sample{{Name: samples[2]}}
	for {
		metrics.Read(sample)
		heapPeak.Store(max(heapPeak.Load(), sample[0].Value.Uint64()))
		time.Sleep(20 * time.Millisecond)
	}
}

func readFigures() (f figures) {
	runtime.GC() // the statistics of processor time are updated by it
	read := make([]metrics.Sample, len(samples))
	for i, name := range samples {
		read[i].Name = name
	}
	metrics.Read(read)
	f.GC, f.Assist = read[0].Value.Float64(), read[1].Value.Float64()
	f.Heap, f.HeapPeak, f.Goroutines = read[2].Value.Uint64(), heapPeak.Load(), read[3].Value.Uint64()
	f.Runnable, f.RunnableLimit = histogram(read[4].Value.Float64Histogram())
	f.Pauses, f.PauseLimit = histogram(read[5].Value.Float64Histogram())
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	f.CPU = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	status, _ := os.ReadFile("/proc/self/status")
	f.RSS, f.RSSPeak = statusBytes(string(status), "VmRSS:"), statusBytes(string(status), "VmHWM:")
	return f
}

func statusBytes(status, name string) uint64 {
	_, after, _ := strings.Cut(status, name)
	kb, _, _ := strings.Cut(strings.TrimSpace(after), " ")
	n, _ := strconv.ParseUint(kb, 10, 64)
	return n << 10
}

func histogram(h *metrics.Float64Histogram) (counts []uint64, limits []string) {
	for i := range h.Counts {
		limits = append(limits, strconv.FormatFloat(h.Buckets[i+1], 'g', 3, 64)) // JSON has no infinity
	}
	return h.Counts, limits
}

func (f figures) since(begun figures) figures {
	f.CPU -= begun.CPU
	f.GC -= begun.GC
	f.Assist -= begun.Assist
	for i := range f.Runnable {
		f.Runnable[i] -= begun.Runnable[i]
	}
	for i := range f.Pauses {
		f.Pauses[i] -= begun.Pauses[i]
	}
	return f
}

// quantile returns a quantile of a histogram: the upper limit of its bucket.
func quantile(counts []uint64, limits []string, q float64) time.Duration {
	var total, below uint64
	for _, n := range counts {
		total += n
	}
	for i, n := range counts {
		if below += n; float64(below) >= q*float64(total) && below > 0 {
			s, _ := strconv.ParseFloat(limits[i], 64)
			return time.Duration(min(s, math.MaxInt32) * float64(time.Second))
		}
	}
	return 0
}

// record writes profiles and an execution trace of one second.
func record(path string) error {
	runtime.SetMutexProfileFraction(10)
	runtime.SetBlockProfileRate(1e6)
	for _, kind := range []struct {
		name  string
		start func(*os.File) error
		stop  func()
	}{
		{"trace", func(f *os.File) error { return trace.Start(f) }, trace.Stop},
		{"cpu", func(f *os.File) error { return pprof.StartCPUProfile(f) }, pprof.StopCPUProfile},
	} {
		f, err := os.Create(path + "." + kind.name)
		if err != nil {
			return err
		}
		if err := kind.start(f); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		kind.stop()
		_ = f.Close()
	}
	for _, name := range []string{"heap", "mutex", "goroutine"} {
		f, err := os.Create(path + "." + name)
		if err != nil {
			return err
		}
		_ = pprof.Lookup(name).WriteTo(f, 0)
		_ = f.Close()
	}
	runtime.SetMutexProfileFraction(0)
	runtime.SetBlockProfileRate(0)
	return nil
}

// A result is that of one part.
type result struct {
	quiet, loaded latencies
	server        figures
	attack        attackFigures
	time          time.Duration
}

const header = "| part | quiet p50 / p99 | loaded p50 / p95 / p99 / max | p50 × | p99 × | attacks by status | CPU | GC, assist |" +
	" runnable p99 / p99.9 | GC pause max | heap before / peak MiB | RSS peak MiB |\n" +
	"|---|---|---|---|---|---|---|---|---|---|---|---|"

const legend = `
Times are those of one caller that calls, waits 2 ms and calls again. CPU is that of the server, of one
core; GC and assist are parts of it. Runnable is how long goroutines of the server waited for a processor.
The heap includes objects that are not collected yet.
`

func (r result) row(p part) string {
	s, seconds := r.server, r.time.Seconds()
	var statuses []string
	for _, status := range slices.Sorted(maps.Keys(r.attack.Statuses)) {
		statuses = append(statuses, fmt.Sprintf("%d: %d", status, r.attack.Statuses[status]))
	}
	statuses = append(statuses, fmt.Sprintf("broken: %d", r.attack.Broken))
	return fmt.Sprintf("| %s | %s / %s | %s / %s / %s / %s | %.1f | %.1f | %s | %.0f%% | %.1f%%, %.1f%% | %s / %s | %s | %d / %d | %d |",
		p.name, ms(r.quiet.p50), ms(r.quiet.p99), ms(r.loaded.p50), ms(r.loaded.p95), ms(r.loaded.p99), ms(r.loaded.max),
		float64(r.loaded.p50)/float64(r.quiet.p50), float64(r.loaded.p99)/float64(r.quiet.p99), strings.Join(statuses, ", "),
		100*s.CPU.Seconds()/seconds, 100*s.GC/seconds, 100*s.Assist/seconds,
		ms(quantile(s.Runnable, s.RunnableLimit, 0.99)), ms(quantile(s.Runnable, s.RunnableLimit, 0.999)),
		ms(quantile(s.Pauses, s.PauseLimit, 1)), s.before>>20, s.HeapPeak>>20, s.RSSPeak>>20)
}

func ms(d time.Duration) string { return fmt.Sprintf("%.2f", float64(d)/float64(time.Millisecond)) }
