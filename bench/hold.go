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

// holding is what each of many things of the same kind costs the server that
// holds them.
type holding struct {
	server     string
	heap       float64 // bytes
	stack      float64 // bytes
	goroutines float64
}

const (
	// firstHeld are there before the first reading, so that what a server sets
	// up once is not counted.
	firstHeld = 10
	// openTimeout bounds opening what one server holds.
	openTimeout = 2 * time.Minute
)

// manySessions is as many as a server is expected to hold by default,
// mostSessions as many as it may be asked to hold.
const (
	manySessions = 10_000
	mostSessions = 50_000
)

// catalogueHoldWorkloads are about what servers hold while nobody calls.
func catalogueHoldWorkloads() []workload {
	var all []workload
	for _, n := range []int{1_000, manySessions} {
		all = append(all, workload{
			name:     fmt.Sprintf("idle-%d", n),
			title:    fmt.Sprintf("%d idle sessions", n),
			call:     load.Call{Era: echo.Session},
			measure:  measureSessions,
			takes:    func(bool) time.Duration { return time.Duration(n) * 3 * time.Millisecond },
			sessions: n,
			brisk:    n >= manySessions,
			quick:    n < manySessions,
		})
	}
	all = append(all, workload{
		name:     fmt.Sprintf("idle-%d", mostSessions),
		title:    fmt.Sprintf("%d idle sessions, memory of the process", mostSessions),
		call:     load.Call{Era: echo.Session},
		programs: listening,
		only:     []string{ours},
		measure:  measureProcess,
		takes:    func(bool) time.Duration { return 15 * time.Second },
		sessions: mostSessions,
	})
	return append(all, catalogueStreamWorkloads()...)
}

// A holder has a server hold more of something.
type holder interface {
	Open(n int, limit time.Duration) error
	Close() error
}

// measureHeld compares what the server uses before and after it holds n of
// something.
func measureHeld(proc *process, name string, h holder, n int) (holding, error) {
	if err := h.Open(firstHeld, openTimeout); err != nil {
		return holding{}, err
	}
	before, err := proc.meter.Collect()
	if err != nil {
		return holding{}, err
	}
	if err := h.Open(n-firstHeld, openTimeout); err != nil {
		return holding{}, err
	}
	after, err := proc.meter.Collect()
	if err != nil {
		return holding{}, err
	}
	return newHolding(name, before, after, n-firstHeld), nil
}

func newHolding(server string, before, after rig.Reading, n int) holding {
	per := func(after, before uint64) float64 { return (float64(after) - float64(before)) / float64(n) }
	return holding{
		server:     server,
		heap:       per(after.Heap, before.Heap),
		stack:      per(after.Stack, before.Stack),
		goroutines: per(uint64(after.Goroutines), uint64(before.Goroutines)),
	}
}

// writeHoldings writes a table of what one of something costs.
func writeHoldings(out io.Writer, what string, all []holding) {
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

// mostPerSession is how much memory one idle session may take, in bytes.
const mostPerSession = 1024

// measureSessions has each server hold idle sessions, none with an open
// stream.
func measureSessions(ctx context.Context, b *bench, w workload, out io.Writer) error {
	var all []holding
	for _, s := range b.servers {
		if !w.suits(s) {
			continue
		}
		h, err := b.holdSessions(ctx, s, w)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		if s.name == ours {
			b.hold(target{what: w.name + ": " + w.title + ": one", got: h.heap + h.stack, most: mostPerSession, unit: "B"})
		}
		all = append(all, h)
	}
	writeHoldings(out, "session", all)
	return nil
}

func (b *bench) holdSessions(ctx context.Context, s server, w workload) (holding, error) {
	proc, err := b.start(ctx, s, w)
	if err != nil {
		return holding{}, err
	}
	defer proc.stop()
	sessions, err := load.DialSessions(proc.url)
	if err != nil {
		return holding{}, err
	}
	defer sessions.Close()
	return measureHeld(proc, s.name, sessions, w.sessions)
}

// mostResident is how much memory the whole process may take with mostSessions.
const mostResident = 400e6

// measureProcess has a server hold sessions and looks at its process as the
// system sees it, without asking for a collection: garbage counts.
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
	if bytes, ok := residentBytes(proc.cmd.Process.Pid); ok {
		memory = fmt.Sprintf("%.0f", bytes/mega)
		b.hold(target{what: w.name + ": " + w.title, got: bytes / mega, most: mostResident / mega, unit: "MB"})
	}
	writeRow(out, []string{s.name, memory, wall.Round(time.Millisecond).String(),
		fmt.Sprintf("%.1f", used.CPU.Seconds()*1e6/float64(w.sessions))})
	return nil
}

// residentBytes is the memory that a process has in RAM, where the system
// tells.
func residentBytes(pid int) (float64, bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilo, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(value), "kB")), 64)
			return kilo * 1024, err == nil
		}
	}
	return 0, false
}
