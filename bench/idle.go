package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// holding is what one idle session costs a server.
type holding struct {
	server     string
	heap       float64 // bytes
	stack      float64 // bytes
	goroutines float64
}

const (
	// firstSessions are open before the first reading, so that what a server
	// sets up once is not counted.
	firstSessions = 10
	// openTimeout bounds opening the sessions of one server.
	openTimeout = 2 * time.Minute
)

// manySessions is as many as a server is expected to hold by default.
const manySessions = 10_000

func catalogueIdleWorkloads() []workload {
	var all []workload
	for _, n := range []int{1_000, manySessions} {
		all = append(all, workload{
			name:     fmt.Sprintf("idle-%d", n),
			title:    fmt.Sprintf("%d idle sessions", n),
			call:     load.Call{Era: echo.Session},
			measure:  measureIdle,
			takes:    func(bool) time.Duration { return time.Duration(n) * 3 * time.Millisecond },
			sessions: n,
			brisk:    n >= manySessions,
			quick:    n < manySessions,
		})
	}
	return all
}

// measureIdle has each server hold idle sessions, none with an open stream,
// and compares its heap before and after.
func measureIdle(ctx context.Context, b *bench, w workload, out io.Writer) error {
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
			b.hold(target{what: w.title + ": bytes of one", got: h.heap + h.stack, most: 1024, unit: "B"})
		}
		all = append(all, h)
	}
	writeIdle(out, all)
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
	if err := sessions.Open(firstSessions, openTimeout); err != nil {
		return holding{}, err
	}
	before, err := proc.meter.Collect()
	if err != nil {
		return holding{}, err
	}
	more := w.sessions - firstSessions
	if err := sessions.Open(more, openTimeout); err != nil {
		return holding{}, err
	}
	after, err := proc.meter.Collect()
	if err != nil {
		return holding{}, err
	}
	per := func(after, before uint64) float64 { return (float64(after) - float64(before)) / float64(more) }
	return holding{
		server:     s.name,
		heap:       per(after.Heap, before.Heap),
		stack:      per(after.Stack, before.Stack),
		goroutines: per(uint64(after.Goroutines), uint64(before.Goroutines)),
	}, nil
}
