package main

import (
	"context"
	"fmt"
	"time"

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

// measureIdle has each server hold idle sessions, none with an open stream,
// and compares its heap before and after.
func (b *bench) measureIdle(ctx context.Context, w workload) ([]holding, error) {
	var all []holding
	for _, s := range b.servers {
		if !w.suits(s) {
			continue
		}
		h, err := b.hold(ctx, s, w)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", w.name, s.name, err)
		}
		all = append(all, h)
	}
	return all, nil
}

func (b *bench) hold(ctx context.Context, s server, w workload) (holding, error) {
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
	more := w.idle - firstSessions
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
