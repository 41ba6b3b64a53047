package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// A memoryCost is the memory cost of one session or stream on the server.
type memoryCost struct {
	server     string
	heap       float64 // bytes
	stack      float64 // bytes
	goroutines float64
}

const (
	// warmUpCount is the number opened before the first reading, so that one-time
	// setup is not counted.
	warmUpCount = 10
	// openTimeout bounds opening all sessions or streams of one server.
	openTimeout = 2 * time.Minute
)

// manySessions is the number of sessions that a server should keep by default.
// maxSessions is the largest number that it may be configured for.
const (
	manySessions = 10_000
	maxSessions  = 50_000
)

// catalogueHoldWorkloads measure the memory of servers without calls.
func catalogueHoldWorkloads() []workload {
	var all []workload
	for _, n := range []int{1_000, manySessions} {
		all = append(all, workload{
			name:         fmt.Sprintf("idle-%d", n),
			title:        fmt.Sprintf("%d idle sessions", n),
			call:         load.Call{Era: echo.Session},
			measure:      measureSessions,
			duration:     func(bool) time.Duration { return time.Duration(n) * 3 * time.Millisecond },
			sessions:     n,
			excludesSlow: n >= manySessions,
			quick:        n < manySessions,
		})
	}
	all = append(all, workload{
		name:     fmt.Sprintf("idle-%d", maxSessions),
		title:    fmt.Sprintf("%d idle sessions, memory of the process", maxSessions),
		call:     load.Call{Era: echo.Session},
		programs: listening,
		only:     []string{ours},
		measure:  measureProcess,
		duration: func(bool) time.Duration { return 15 * time.Second },
		sessions: maxSessions,
	})
	return append(all, catalogueStreamWorkloads()...)
}

// An opener opens more sessions or streams on a server.
type opener interface {
	Open(n int, limit time.Duration) error
	Close() error
}

// measureMemory compares the memory of the server before and after n sessions or
// streams are opened.
func measureMemory(proc *process, name string, h opener, n int) (memoryCost, error) {
	if err := h.Open(warmUpCount, openTimeout); err != nil {
		return memoryCost{}, err
	}
	before, err := proc.meter.Collect()
	if err != nil {
		return memoryCost{}, err
	}
	if err := h.Open(n-warmUpCount, openTimeout); err != nil {
		return memoryCost{}, err
	}
	after, err := proc.meter.Collect()
	if err != nil {
		return memoryCost{}, err
	}
	return newMemoryCost(name, before, after, n-warmUpCount), nil
}

func newMemoryCost(server string, before, after rig.Reading, n int) memoryCost {
	per := func(after, before uint64) float64 { return (float64(after) - float64(before)) / float64(n) }
	return memoryCost{
		server:     server,
		heap:       per(after.Heap, before.Heap),
		stack:      per(after.Stack, before.Stack),
		goroutines: per(uint64(after.Goroutines), uint64(before.Goroutines)),
	}
}

// writeMemoryCosts writes the table of the cost of one session or stream.
func writeMemoryCosts(out io.Writer, what string, all []memoryCost) {
	writeRow(out, []string{"server", "heap bytes/" + what, "stack bytes/" + what, "goroutines/" + what})
	writeRow(out, []string{"---", "---:", "---:", "---:"})
	for _, h := range all {
		writeRow(out, []string{
			h.server,
			fmt.Sprintf("%.0f", h.heap),
			fmt.Sprintf("%.0f", h.stack),
			fmt.Sprintf("%.2f", h.goroutines),
		})
	}
}

// maxPerSession is the largest accepted memory of one idle session, in bytes.
const maxPerSession = 700

// measureSessions opens idle sessions without streams on each server.
func measureSessions(ctx context.Context, b *bench, w workload, out io.Writer) error {
	var all []memoryCost
	for _, s := range b.servers {
		if !w.suits(s) {
			continue
		}
		h, err := b.measureSessionMemory(ctx, s, w)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if s.name == ours {
			b.record(target{what: w.name + ": " + w.title + ": one", got: h.heap + h.stack, most: maxPerSession,
				unit: "B", margin: steady})
		}
		all = append(all, h)
	}
	writeMemoryCosts(out, "session", all)
	return nil
}

func (b *bench) measureSessionMemory(ctx context.Context, s server, w workload) (memoryCost, error) {
	proc, err := b.start(ctx, s, w)
	if err != nil {
		return memoryCost{}, err
	}
	defer proc.stop()
	sessions, err := load.DialSessions(proc.url)
	if err != nil {
		return memoryCost{}, err
	}
	defer sessions.Close()
	return measureMemory(proc, s.name, sessions, w.sessions)
}

// maxResident is the largest accepted memory of the whole process with
// maxSessions.
const maxResident = 400e6

// measureProcess opens sessions on a server and reads the resident memory of
// its process without a garbage collection, so garbage is included.
func measureProcess(ctx context.Context, b *bench, w workload, out io.Writer) error {
	writeRow(out, []string{"server", "resident MB", "opened in", "CPU µs/session"})
	writeRow(out, []string{"---", "---:", "---:", "---:"})
	for _, s := range b.servers {
		if !w.suits(s) {
			continue
		}
		if err := b.holdProcess(ctx, s, w, out); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

func (b *bench) holdProcess(ctx context.Context, s server, w workload, out io.Writer) error {
	proc, err := b.start(ctx, s, w)
	if err != nil {
		return err
	}
	defer proc.stop()
	sessions, err := load.DialSessions(proc.url)
	if err != nil {
		return err
	}
	defer sessions.Close()
	begin := time.Now()
	if err := sessions.Open(w.sessions, openTimeout); err != nil {
		return err
	}
	wall := time.Since(begin)
	used, err := proc.meter.Read()
	if err != nil {
		return err
	}
	const mega = 1e6
	memory := "unknown"
	if bytes, ok := memoryOf(proc.cmd.Process.Pid, "VmRSS:"); ok {
		memory = fmt.Sprintf("%.0f", bytes/mega)
		b.record(target{what: w.name + ": " + w.title, got: bytes / mega, most: maxResident / mega, unit: "MB"})
	}
	writeRow(out, []string{s.name, memory, wall.Round(time.Millisecond).String(),
		fmt.Sprintf("%.1f", used.CPU.Seconds()*1e6/float64(w.sessions))})
	return nil
}

// memoryOf returns a figure of the memory of a process in bytes, such as VmRSS, the
// resident memory, or VmHWM, its peak. It reports false on systems without this figure.
func memoryOf(pid int, figure string) (float64, bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, figure); ok {
			kilo, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kilo * 1024, err == nil
		}
	}
	return 0, false
}
