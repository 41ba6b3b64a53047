package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/echo"
	"github.com/patchbay-mcp/patchbay/bench/internal/load"
)

// listening is the directory of servers for subscribed clients.
const listening = "listen"

// listeners are the servers with a program in that directory.
func listeners() []string { return []string{baseline, ours, "go-sdk", "mcp-go"} }

// maxStreams is the maximum number of open streams.
const maxStreams = 10_000

// maxAboveBaseline is the largest accepted memory of an open stream above that of
// bare net/http, in bytes.
const (
	maxAboveBaseline  = 1400
	openAboveBaseline = 3300 // of today
)

func catalogueStreamWorkloads() []workload {
	var all []workload
	for _, n := range []int{1_000, maxStreams} {
		for _, era := range []echo.Era{echo.Modern, echo.Session} {
			all = append(all, workload{
				name:     fmt.Sprintf("stream-%s-%d", era, n),
				title:    fmt.Sprintf("%d idle event streams, %s era", n, era),
				call:     load.Call{Era: era, Tool: echo.ChangeTool},
				programs: listening,
				only:     listeners(),
				measure:  measureStreams,
				duration: func(bool) time.Duration { return time.Duration(n) * 3 * time.Millisecond },
				streams:  n,
				quick:    n < maxStreams,
			})
		}
	}
	return all
}

// measureStreams opens idle streams on each server, each with its own session
// in the session era.
func measureStreams(ctx context.Context, b *bench, w workload, out io.Writer) error {
	n := w.streams
	if files := openFiles(); n > files {
		n = files
		fmt.Fprintf(out, "Only %d streams: the limit of open files of this process.\n\n", n)
	}
	var all []memoryCost
	for _, s := range b.servers {
		if !w.suits(s) {
			continue
		}
		h, err := b.measureStreamMemory(ctx, s, w, n)
		if err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
		all = append(all, h)
	}
	writeMemoryCosts(out, "stream", all)
	find := func(name string) int {
		return slices.IndexFunc(all, func(h memoryCost) bool { return h.server == name })
	}
	if i, j := find(ours), find(baseline); i >= 0 && j >= 0 {
		above := func(i int) float64 { return all[i].heap + all[i].stack - all[j].heap - all[j].stack }
		t := target{what: w.name + ": " + w.title + ": one, above " + baseline, got: above(i),
			most: maxAboveBaseline, open: openAboveBaseline,
			unit: "B", margin: steady}
		if k := find(before); k >= 0 {
			t.before = above(k)
		}
		b.record(t)
	}
	return nil
}

func (b *bench) measureStreamMemory(ctx context.Context, s server, w workload, n int) (memoryCost, error) {
	proc, err := b.start(ctx, s, w)
	if err != nil {
		return memoryCost{}, err
	}
	defer proc.stop()
	streams, err := load.DialStreams(proc.url, w.call.Era, echo.ChangeTool)
	if err != nil {
		return memoryCost{}, err
	}
	defer streams.Close()
	return measureMemory(proc, s.name, streams, n)
}
