package bench

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// A BenchReport is the output of `patchbay bench --json`. Times of calls are in milliseconds.
type BenchReport struct {
	Target      string                   `json:"target"`
	Tool        string                   `json:"tool"`
	Revision    string                   `json:"revision"`
	Concurrency int                      `json:"concurrency"`
	Connections int                      `json:"connections"`
	Seconds     float64                  `json:"seconds"`
	Calls       int                      `json:"calls"` // ended calls, without the warm-up
	Failed      int                      `json:"failed"`
	Rate        float64                  `json:"rate"` // successful calls per second
	LatencyMs   *benchLatency            `json:"latencyMs,omitzero"`
	Errors      map[string]*failureCount `json:"errors,omitzero"`
}

// benchLatency contains the latencies of successful calls, in milliseconds.
type benchLatency struct {
	Min  float64 `json:"min"`
	Mean float64 `json:"mean"`
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

func newBenchReport(o *Options, tool, revision string, m *measurement) *BenchReport {
	h := &m.latency
	r := &BenchReport{
		Target: o.Target.String(), Tool: tool, Revision: revision, Concurrency: o.Workers, Connections: o.Connections,
		Seconds: m.took.Seconds(), Calls: h.count + m.failed, Failed: m.failed,
	}
	if m.took > 0 {
		r.Rate = float64(h.count) / m.took.Seconds()
	}
	if h.count > 0 {
		r.LatencyMs = &benchLatency{term.Milliseconds(h.min), term.Milliseconds(h.mean()),
			term.Milliseconds(h.quantile(0.5)),
			term.Milliseconds(h.quantile(0.9)), term.Milliseconds(h.quantile(0.99)),
			term.Milliseconds(h.quantile(0.999)),
			term.Milliseconds(h.max)}
	}
	if len(m.failures) > 0 {
		r.Errors = m.failures
	}
	return r
}

func showBench(f *cmdutil.Factory, r *BenchReport) {
	line := func(name, format string, args ...any) {
		f.IO.Out.Printf("%-12s %s", name, fmt.Sprintf(format, args...))
	}
	line("tool", "%s, revision %s", term.CleanLine(r.Tool), r.Revision)
	line("calls", "%d in %v, %d at a time over %s", r.Calls,
		time.Duration(r.Seconds*float64(time.Second)).Round(time.Millisecond), r.Concurrency,
		term.Counted(r.Connections, "connection"))
	line("rate", "%.1f per second", r.Rate)
	if l := r.LatencyMs; l != nil {
		line("latency", "min %.3g ms, mean %.3g ms", l.Min, l.Mean)
		for _, q := range []struct {
			name  string
			value float64
		}{{"p50", l.P50}, {"p90", l.P90}, {"p99", l.P99}, {"p99.9", l.P999}, {"max", l.Max}} {
			line("  "+q.name, "%.3f ms", q.value)
		}
	}
	line("errors", "%d", r.Failed)
	for _, kind := range slices.Sorted(maps.Keys(r.Errors)) {
		e := r.Errors[kind]
		line("  "+kind, "%d, first: %s", e.Count, e.First)
	}
}
