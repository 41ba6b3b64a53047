package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"
)

// results counts the outcomes of all calls.
type results struct {
	calls    atomic.Int64 // that were right
	attacks  atomic.Int64
	requests atomic.Int64 // of attacks

	mu       sync.Mutex // guards the fields below
	outcomes map[outcome]int64
	probes   []time.Duration // since the last second
	minute   []time.Duration // since the last quiet point
}

type outcome struct {
	combination
	kind, result string
}

func (r *results) record(c combination, kind, result string) {
	if result == "ok" && kind != "notification" && kind != "connect" {
		r.calls.Add(1)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.outcomes == nil {
		r.outcomes = map[outcome]int64{}
	}
	r.outcomes[outcome{c, kind, result}]++
}

func (r *results) probe(took time.Duration) {
	r.calls.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.probes, r.minute = append(r.probes, took), append(r.minute, took)
}

// takeProbes returns the durations of the probe calls since it was last called.
func (r *results) takeProbes(minute bool) []time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := &r.probes
	if minute {
		from = &r.minute
	}
	all := *from
	*from = nil
	slices.Sort(all)
	return all
}

// quantile returns a quantile of sorted durations in milliseconds.
func quantile(sorted []time.Duration, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)].Seconds() * 1e3
}

// errors returns the number of calls with each error.
func (r *results) errors() map[string]int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]int64{}
	for o, n := range r.outcomes {
		if o.result != "ok" {
			all[o.result] += n
		}
	}
	return all
}

// write writes the table of calls by combination and kind, and the table of errors.
func (r *results) write(out io.Writer) {
	errors := r.errors()
	r.mu.Lock()
	defer r.mu.Unlock()
	kinds, rows := map[string]bool{}, map[combination]map[string][2]int64{}
	for o, n := range r.outcomes {
		kinds[o.kind] = true
		if rows[o.combination] == nil {
			rows[o.combination] = map[string][2]int64{}
		}
		cell := rows[o.combination][o.kind]
		cell[0] += n
		if o.result != "ok" {
			cell[1] += n
		}
		rows[o.combination][o.kind] = cell
	}
	columns := slices.Sorted(maps.Keys(kinds))
	table := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	fmt.Fprintf(table, "calls (of which errors that a fault explains); parallel has 8 calls each\t%s\n", strings.Join(columns, "\t"))
	byName := func(a, b combination) int { return strings.Compare(a.String(), b.String()) }
	for _, c := range slices.SortedFunc(maps.Keys(rows), byName) {
		fmt.Fprint(table, c)
		for _, kind := range columns {
			cell := rows[c][kind]
			fmt.Fprintf(table, "\t%d", cell[0])
			if cell[1] > 0 {
				fmt.Fprintf(table, " (%d)", cell[1])
			}
		}
		fmt.Fprintln(table)
	}
	_ = table.Flush()
	for _, kind := range slices.Sorted(maps.Keys(errors)) {
		fmt.Fprintf(out, "%s: %d\n", kind, errors[kind])
	}
	fmt.Fprintf(out, "calls with the right answer: %d; attacks: %d with %d requests\n", r.calls.Load(), r.attacks.Load(), r.requests.Load())
}
