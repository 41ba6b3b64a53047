package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/bench/internal/rig"
)

// memory prints the memory of Redis for each of n sessions, with the list of the processes that
// read the session, and the memory of a process.
func memory(out io.Writer, server *redisServer, r *replicas, n int) error {
	heapBefore := heap()
	before, err := server.usage()
	if err != nil {
		return err
	}
	for i := range n {
		id, err := r.open(i)
		if err == nil {
			err = r.call(i+1, i, id)
		}
		if err != nil {
			return err
		}
	}
	after, err := server.usage()
	fmt.Fprintf(out, "\n%d sessions, each at two of three processes: "+
		"%.0f bytes of Redis for each, %.0f of each process\n",
		n, (after.memory-before.memory)/float64(n), (heap()-heapBefore)/float64(n)/2)
	return err
}

// heap returns the bytes in use after a garbage collection.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc + m.StackInuse)
}

// A contender is a side of a comparison.
type contender struct {
	name string
	run  func(n int) error
}

// ratios prints how much CPU a call takes with shared sessions, and at three processes instead of one.
func ratios(ctx context.Context, out io.Writer, url string, calls, rounds int) (err error) {
	var contenders []contender
	for _, c := range []struct {
		name     string
		n        int
		url      string
		sessions int
	}{
		{"one process without a store", 1, "", 64}, {"one process with Redis", 1, url, 64},
		{"three processes with Redis, each request at the next", 3, url, 64},
	} {
		r, err := newReplicas(ctx, c.n, c.url, false)
		if err != nil {
			return err
		}
		defer r.close()
		var ids []string
		for i := range c.sessions {
			id, err := r.open(i)
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		contenders = append(contenders, contender{c.name, func(n int) error {
			for i := range n {
				// A session returns to the same process later than the process reads the other sessions.
				if err := r.call(i+i/len(ids), i, ids[i%len(ids)]); err != nil {
					return err
				}
			}
			return nil
		}})
	}
	costs := make([][]float64, len(contenders))
	for round := range rounds + 1 {
		spent := make([]time.Duration, len(contenders))
		for i := range contenders {
			c := (i + round) % len(contenders)
			runtime.GC() // none pays for the garbage of another
			begin := rig.CPUTime()
			err = errors.Join(err, contenders[c].run(calls))
			spent[c] = rig.CPUTime() - begin
		}
		if round == 0 { // warms up
			continue
		}
		for c, s := range spent {
			costs[c] = append(costs[c], float64(s)/float64(spent[0]))
		}
	}
	fmt.Fprintln(out, "\nCPU of the processes for a call of a session, ÷ one process without a store:")
	for i, c := range contenders {
		slices.Sort(costs[i])
		fmt.Fprintf(out, "%.3f  %s\n", costs[i][len(costs[i])/2], c.name)
	}
	return err
}
