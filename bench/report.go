package main

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// writeHead writes the head of the report, with the conditions of the run.
func writeHead(out io.Writer, b *bench) {
	fmt.Fprintf(out, "# Benchmark\n\n%s.\n", strings.Join(b.conditions(), ". "))
}

// conditions returns the environment, the pinning and the notes of the run.
func (b *bench) conditions() []string {
	return append([]string{environment(), b.pins.String()}, b.notes...)
}

// environment describes the toolchain and the machine.
func environment() string {
	all := []string{runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH, count(runtime.NumCPU(), "core")}
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, model, found := strings.Cut(string(info), "model name\t: "); found {
			model, _, _ = strings.Cut(model, "\n")
			all = append(all, model)
		}
	}
	return strings.Join(all, ", ")
}

// writeHeading writes the heading of the table of one workload.
func writeHeading(out io.Writer, w workload) {
	fmt.Fprintf(out, "\n## %s: %s\n\n", w.name, w.title)
}

// writeCalls writes the table of one workload.
func writeCalls(out io.Writer, w workload, p pace, subjects []*subject) {
	columns := []string{w.kind(), "calls/s", "busy", "CPU µs/call", "allocs/call", "bytes/call"}
	var others []*subject
	for _, name := range w.references() {
		if i := slices.IndexFunc(subjects, func(s *subject) bool { return s.name == name }); i >= 0 {
			others = append(others, subjects[i])
			columns = append(columns, "CPU ÷ "+name)
		}
	}
	writeRow(out, columns)
	writeRow(out, append([]string{"---"}, slices.Repeat([]string{"---:"}, len(columns)-1)...))
	note := false
	reference := slices.IndexFunc(subjects, func(s *subject) bool { return s.name == plain })
	for _, s := range subjects {
		name := s.name
		if s.call.Tool != w.call.Tool {
			name, note = name+" ¹", true
		}
		row := []string{
			name,
			fmt.Sprintf("%.0f", s.median(func(f figures) float64 { return f.rate })),
			fmt.Sprintf("%.0f%%", s.median(func(f figures) float64 { return 100 * f.busy })),
			fmt.Sprintf("%.1f", s.median(cpuMicros)),
			formatKnown(s.median(allocations), s.slow),
			formatKnown(s.median(allocated), s.slow),
		}
		for _, other := range others {
			row = append(row, formatRatio(s.ratio(other)))
		}
		writeRow(out, row)
	}
	fmt.Fprintf(out, "\n%s.\n", p)
	if reference >= 0 {
		for _, s := range subjects[reference+1:] {
			fmt.Fprintf(out, "\n%s adds %.1f µs of CPU to a call of %s, at the median of the rounds.\n", s.name,
				s.added(subjects[reference]), plain)
		}
	}
	if note {
		fmt.Fprint(out, "\n¹ streams only if a message precedes the result: one progress notification and the response, "+
			"which are two events.\n")
	}
}

// formatKnown returns an empty cell for figures that Node does not report.
func formatKnown(f float64, unknown bool) string {
	if unknown {
		return "–"
	}
	return strconv.FormatFloat(f, 'f', 0, 64)
}

// formatRatio formats a ratio with two decimals, or two significant digits if
// it is small.
func formatRatio(r float64) string {
	if r < 0.1 {
		return strconv.FormatFloat(r, 'g', 2, 64)
	}
	return strconv.FormatFloat(r, 'f', 2, 64)
}

func cpuMicros(f figures) float64 { return f.cpu.Seconds() * 1e6 }

func allocations(f figures) float64 { return f.allocs }

func allocated(f figures) float64 { return f.bytes }

// median returns the median of one figure over the rounds.
func (s *subject) median(figure func(figures) float64) float64 {
	var all []float64
	for _, f := range s.rounds {
		all = append(all, figure(f))
	}
	return median(all)
}

// ratio returns the median over the rounds of the ratio of CPU per call, so that
// a drift of the machine cancels out. It is zero if the CPU time is unknown.
func (s *subject) ratio(other *subject) float64 {
	var all []float64
	for i := range min(len(s.rounds), len(other.rounds)) {
		if o := other.rounds[i].cpu; o > 0 {
			all = append(all, float64(s.rounds[i].cpu)/float64(o))
		}
	}
	return median(all)
}

// added returns the median over the rounds of the CPU per call above that of another program, in
// microseconds.
func (s *subject) added(other *subject) float64 {
	var all []float64
	for i := range min(len(s.rounds), len(other.rounds)) {
		all = append(all, cpuMicros(s.rounds[i])-cpuMicros(other.rounds[i]))
	}
	return median(all)
}

// throughput compares the calls per second of CPU time, which is the capacity
// of a saturated server. Calls per second of wall time also depend on the load
// and on other programs of the machine.
func (s *subject) throughput(other *subject) float64 { return other.ratio(s) }

// median returns the median of the values, or zero without values.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	mid := len(values) / 2
	if len(values)%2 == 1 {
		return values[mid]
	}
	return (values[mid-1] + values[mid]) / 2
}

func writeRow(out io.Writer, cells []string) {
	fmt.Fprintf(out, "| %s |\n", strings.Join(cells, " | "))
}
