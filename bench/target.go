package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
)

// ours is the name of this project's server and client, to which the targets
// apply.
const ours = "patchbay"

// A target is a performance goal of this project and its measured value in this
// run. One noisy run is not a proof, so a missed target is not an error.
type target struct {
	what        string
	got         float64
	most, least float64 // zero: no such bound
	unit        string  // follows the figures
}

func (t target) met() bool {
	return (t.most == 0 || t.got <= t.most) && (t.least == 0 || t.got >= t.least)
}

// record adds a target to the table at the end of the run.
func (b *bench) record(t target) { b.targets = append(b.targets, t) }

// A bound is a target of a workload of calls: the largest cost and the smallest
// throughput of this project's program, as multiples of another program's.
type bound struct {
	of   string
	cpu  float64 // per call, at most
	rate float64 // calls per second of CPU, at least
	// micros and allocs are not multiples: CPU time and allocations of a call
	// of that program, at most.
	micros, allocs, bytes float64
	// above is CPU time of a call above that of the other program, at most, in
	// microseconds.
	above float64
	// moreAllocs and moreBytes are allocations of a call above those of the
	// other program, at most.
	moreAllocs, moreBytes float64
}

// recordBounds records the bounds of a workload whose programs took part.
func (b *bench) recordBounds(w workload, subjects []*subject) {
	find := func(name string) *subject {
		i := slices.IndexFunc(subjects, func(s *subject) bool { return s.name == name && len(s.rounds) > 0 })
		if i < 0 {
			return nil
		}
		return subjects[i]
	}
	subject := find(ours)
	for _, bound := range w.bounds {
		other := find(bound.of)
		if subject == nil || other == nil {
			continue
		}
		what := w.name + ": " + w.title
		if bound.cpu > 0 {
			b.record(target{what: what + ": CPU ÷ " + bound.of, got: subject.ratio(other), most: bound.cpu, unit: "×"})
		}
		if bound.micros > 0 {
			b.record(target{what: what + ": CPU", got: other.median(cpuMicros), most: bound.micros, unit: "µs"})
		}
		if bound.above > 0 {
			b.record(target{what: what + ": CPU above " + bound.of, got: subject.added(other), most: bound.above,
				unit: "µs"})
		}
		if bound.moreAllocs > 0 {
			b.record(target{what: what + ": allocations above " + bound.of, most: bound.moreAllocs, unit: "a call",
				got: math.Round(max(0, subject.median(allocations)-other.median(allocations)))})
		}
		if bound.moreBytes > 0 {
			b.record(target{what: what + ": bytes above " + bound.of, most: bound.moreBytes, unit: "a call",
				got: math.Round(subject.median(allocated) - other.median(allocated))})
		}
		if bound.bytes > 0 {
			b.record(target{what: what + ": bytes allocated", got: math.Round(other.median(allocated)),
				most: bound.bytes, unit: "a call"})
		}
		if bound.allocs > 0 {
			b.record(target{what: what + ": allocations", got: math.Round(other.median(allocations)),
				most: bound.allocs, unit: "a call"})
		}
		if bound.rate > 0 {
			b.record(target{what: what + ": calls per core ÷ " + bound.of, got: subject.throughput(other),
				least: bound.rate, unit: "×"})
		}
	}
}

// writeTargets writes the table of all targets.
func writeTargets(out io.Writer, all []target) {
	if len(all) == 0 {
		return
	}
	fmt.Fprint(out, "\n## Targets\n\n")
	writeRow(out, []string{"what", "is", "wanted", ""})
	writeRow(out, []string{"---", "---:", "---:", "---"})
	for _, t := range all {
		wanted, result := "≤ "+formatFigure(t.most, t.unit), "met"
		if t.most == 0 {
			wanted = "≥ " + formatFigure(t.least, t.unit)
		}
		if !t.met() {
			result = "MISSED"
		}
		writeRow(out, []string{t.what, formatFigure(t.got, t.unit), wanted, result})
	}
}

// formatFigure formats numbers from 100 as integers and smaller ones like
// ratios.
func formatFigure(f float64, unit string) string {
	text := formatRatio(f)
	if f >= 100 {
		text = strconv.FormatFloat(f, 'f', 0, 64)
	}
	if unit == "×" {
		return text + unit
	}
	return text + " " + unit
}
