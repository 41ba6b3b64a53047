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
	// paired figures are the CPU of this version ÷ the CPU of an earlier version in the same rounds, which a
	// change in the speed of the machine affects alike.
	paired = 0.1
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
	// before, if not zero, is the figure of the earlier version in the same rounds.
	before float64
	// growth, if not zero, is the CPU of a call ÷ the CPU of a call of the earlier version, the median of the
	// rounds.
	growth float64
}

func (t target) met() bool {
	return (t.most == 0 || t.got <= t.most) && (t.least == 0 || t.got >= t.least)
}

// regressed reports whether the figure is beyond the target by more than the margin. If the earlier
// version was measured in the same rounds, a call must also take more CPU than in that version, because the
// ratio to another program differs by up to a half between machines. The two versions are compared with
// each other, not through their ratios to the other program, whose own noise would count twice.
func (t target) regressed() bool {
	beyond := false
	switch most := max(t.most, t.open); {
	case t.margin == unreliable:
		return false
	case most > 0:
		beyond = t.got > most*(1+t.margin)
	case t.least > 0:
		beyond = t.got < t.least/(1+t.margin)
	}
	if t.margin == noisy && t.growth > 0 {
		return beyond && t.growth > 1+paired
	}
	return beyond
}

// record adds a target to the table at the end of the run.
func (b *bench) record(t target) {
	t.workload = b.workload
	b.targets = append(b.targets, t)
}

// confirm measures workloads with regressions again, at the pace of a full run, and returns an error if the
// regressions remain. Programs of an earlier version are measured beside them.
func (b *bench) confirm(ctx context.Context, out io.Writer, workloads []workload) error {
	workloads = b.takeRegressed(workloads)
	if len(workloads) == 0 {
		return nil
	}
	b.quick = false
	if b.before != "" {
		log.Print("building the earlier version")
		b.addBefore(ctx, workloads)
		if err := b.build(ctx, workloads); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*b.expected(workloads)+slack)
	defer cancel()
	for _, w := range workloads {
		log.Print("again, for its targets: ", w.name)
		if err := b.report(ctx, out, w); err != nil {
			return err
		}
	}
	var errs []error
	for _, t := range b.targets {
		if t.regressed() {
			errs = append(errs, t.failure())
		}
	}
	return errors.Join(errs...)
}

// takeRegressed returns the workloads with regressions, and removes their targets.
func (b *bench) takeRegressed(workloads []workload) []workload {
	regressed := map[string]bool{}
	for _, t := range b.targets {
		regressed[t.workload] = regressed[t.workload] || t.regressed()
	}
	b.targets = slices.DeleteFunc(b.targets, func(t target) bool { return regressed[t.workload] })
	return slices.DeleteFunc(slices.Clone(workloads), func(w workload) bool { return !regressed[w.name] })
}

// failure returns the error of a regression that two measurements show.
func (t target) failure() error {
	beside := ""
	if t.before > 0 {
		beside = " (" + formatFigure(t.before, t.unit) + " in the earlier version)"
	}
	if t.growth > 0 {
		beside += fmt.Sprintf(", %.2f times the CPU of the earlier version", t.growth)
	}
	return fmt.Errorf("%s: %s in two measurements%s, and the target is missed by more than its margin of %.0f %%",
		t.what, formatFigure(t.got, t.unit), beside, t.margin*100)
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
	// micros, allocs and bytes are not multiples: CPU time, allocations and allocated bytes of a call of the
	// subject, at most.
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
		earlier := find(before)
		if bound.subject != "" {
			what += ": " + bound.subject
			earlier = nil
		}
		for _, m := range bound.measures(other) {
			t := m.target
			t.what, t.got = what+": "+t.what, m.figure(subject)
			if earlier != nil {
				t.before, t.growth = m.figure(earlier), subject.ratio(earlier)
			}
			b.record(t)
		}
	}
}

// A measure is a target of a bound with the figure of a program that the target limits.
type measure struct {
	target
	figure func(s *subject) float64
}

// measures returns the measures of a bound on multiples of another program.
func (bound bound) measures(other *subject) []measure {
	var all []measure
	add := func(limit float64, t target, figure func(s *subject) float64) {
		if limit > 0 {
			all = append(all, measure{t, figure})
		}
	}
	add(bound.cpu, target{what: "CPU ÷ " + bound.of, most: bound.cpu, open: bound.open, margin: noisy, unit: "×"},
		func(s *subject) float64 { return s.ratio(other) })
	add(bound.micros, target{what: "CPU", most: bound.micros, unit: "µs"},
		func(s *subject) float64 { return s.median(cpuMicros) })
	add(bound.above, target{what: "CPU above " + bound.of, most: bound.above, unit: "µs"},
		func(s *subject) float64 { return s.added(other) })
	add(bound.moreAllocs, target{what: "allocations above " + bound.of, most: bound.moreAllocs, open: bound.open,
		margin: exact, unit: "a call"},
		func(s *subject) float64 { return math.Round(max(0, s.median(allocations)-other.median(allocations))) })
	add(bound.moreBytes, target{what: "bytes above " + bound.of, most: bound.moreBytes, margin: steady, unit: "a call"},
		func(s *subject) float64 { return math.Round(s.median(allocated) - other.median(allocated)) })
	add(bound.bytes, target{what: "bytes allocated", most: bound.bytes, margin: steady, unit: "a call"},
		func(s *subject) float64 { return math.Round(s.median(allocated)) })
	add(bound.allocs, target{what: "allocations", most: bound.allocs, margin: exact, unit: "a call"},
		func(s *subject) float64 { return math.Round(s.median(allocations)) })
	add(bound.rate, target{what: "calls per core ÷ " + bound.of, least: bound.rate, margin: noisy, unit: "×"},
		func(s *subject) float64 { return s.throughput(other) })
	return all
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
			if t.before > 0 {
				result += ", in the earlier version " + formatFigure(t.before, t.unit)
			}
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
