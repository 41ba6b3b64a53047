package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"slices"
	"strconv"
)

// ours is the name of this project's server and client, to which the targets
// apply.
const ours = "patchbay"

// The margins by which a figure may exceed its target in a quick run, as a share of the target. CI runs on
// shared machines, so a quick run fails only for differences that noise does not explain, and only if a
// second, longer measurement of the workload confirms them.
const (
	// exact figures, such as allocations, do not depend on the load of the machine.
	exact = 0.001
	// steady figures are memory after a collection, and bytes allocated.
	steady = 0.1
	// noisy figures are ratios of CPU. On a machine that runs other programs, the ratios of two runs
	// differ by up to a quarter.
	noisy = 0.25
	// unreliable figures are wall times and absolute CPU times. They never fail a run.
	unreliable = 0
)

// A target is a performance goal of this project and its measured value in this
// run. A single noisy run proves nothing, so a missed target is an error only in a quick run, and only if
// it is missed by more than the margin.
type target struct {
	workload    string
	what        string
	got         float64
	most, least float64 // zero: no such bound
	unit        string  // follows the figures
	margin      float64
	// open, if not zero, replaces most for the failure of a quick run until the goal is reached: it is the
	// figure of today.
	open float64
}

func (t target) met() bool {
	return (t.most == 0 || t.got <= t.most) && (t.least == 0 || t.got >= t.least)
}

// regressed reports whether the figure is beyond the target by more than the margin.
func (t target) regressed() bool {
	if t.margin == unreliable {
		return false
	}
	most := max(t.most, t.open)
	return most > 0 && t.got > most*(1+t.margin) || t.least > 0 && t.got < t.least/(1+t.margin)
}

// record adds a target to the table at the end of the run.
func (b *bench) record(t target) {
	t.workload = b.workload
	b.targets = append(b.targets, t)
}

// confirm measures workloads with regressions again, at the pace of a full run, and returns an error if the
// regressions remain.
func (b *bench) confirm(ctx context.Context, out io.Writer, workloads []workload) error {
	again := map[string]bool{}
	for _, t := range b.targets {
		again[t.workload] = again[t.workload] || t.regressed()
	}
	b.targets = slices.DeleteFunc(b.targets, func(t target) bool { return again[t.workload] })
	b.quick = false
	for _, w := range workloads {
		if again[w.name] {
			log.Print("again, for its targets: ", w.name)
			if err := b.report(ctx, out, w); err != nil {
				return err
			}
		}
	}
	var errs []error
	for _, t := range b.targets {
		if t.regressed() {
			errs = append(errs, fmt.Errorf("%s: %s in two measurements, and the target is missed by more than "+
				"its margin of %.0f %%",
				t.what, formatFigure(t.got, t.unit), t.margin*100))
		}
	}
	return errors.Join(errs...)
}

// A bound is a target of a workload of calls: the largest cost and the smallest
// throughput of this project's program, as multiples of another program's.
type bound struct {
	of string
	// subject is the program that is compared, this project's if it is empty.
	subject string
	cpu     float64 // per call, at most
	open    float64 // cpu or moreAllocs of today, as long as it is not reached
	rate    float64 // calls per second of CPU, at least
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
	for _, bound := range w.bounds {
		subject, other := find(cmp.Or(bound.subject, ours)), find(bound.of)
		if subject == nil || other == nil {
			continue
		}
		what := w.name + ": " + w.title
		if bound.subject != "" {
			what += ": " + bound.subject
		}
		if bound.cpu > 0 {
			b.record(target{what: what + ": CPU ÷ " + bound.of, got: subject.ratio(other),
				most: bound.cpu, open: bound.open,
				margin: noisy, unit: "×"})
		}
		if bound.micros > 0 {
			b.record(target{what: what + ": CPU", got: other.median(cpuMicros), most: bound.micros, unit: "µs"})
		}
		if bound.above > 0 {
			b.record(target{what: what + ": CPU above " + bound.of, got: subject.added(other), most: bound.above,
				unit: "µs"})
		}
		if bound.moreAllocs > 0 {
			b.record(target{what: what + ": allocations above " + bound.of, most: bound.moreAllocs,
				open: bound.open, unit: "a call", margin: exact,
				got: math.Round(max(0, subject.median(allocations)-other.median(allocations)))})
		}
		if bound.moreBytes > 0 {
			b.record(target{what: what + ": bytes above " + bound.of, most: bound.moreBytes,
				unit: "a call", margin: steady,
				got: math.Round(subject.median(allocated) - other.median(allocated))})
		}
		if bound.bytes > 0 {
			b.record(target{what: what + ": bytes allocated", got: math.Round(other.median(allocated)),
				most: bound.bytes, unit: "a call", margin: steady})
		}
		if bound.allocs > 0 {
			b.record(target{what: what + ": allocations", got: math.Round(other.median(allocations)),
				most: bound.allocs, unit: "a call", margin: exact})
		}
		if bound.rate > 0 {
			b.record(target{what: what + ": calls per core ÷ " + bound.of, got: subject.throughput(other),
				least: bound.rate, unit: "×", margin: noisy})
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
