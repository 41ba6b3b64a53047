package main

import (
	"strings"
	"testing"
	"time"
)

func TestTargetsOfAWorkloadAreRecorded(t *testing.T) {
	w := workload{name: "w", title: "calls", bounds: []bound{{of: baseline, cpu: 1.4},
		{of: "go-sdk", cpu: 0.05, rate: 15}, {of: "absent", cpu: 1}}}
	b := new(bench)
	b.recordBounds(w, []*subject{
		{name: baseline, rounds: []figures{{cpu: 1000}}},
		{name: ours, rounds: []figures{{cpu: 1500}}},
		{name: "go-sdk", rounds: []figures{{cpu: 40_000}}},
	})
	b.record(target{what: "idle", got: 700.4, most: 1024, unit: "B"})
	b.record(target{what: "cheaper", got: -0.4, most: 8, unit: "µs"})
	var out strings.Builder
	writeTargets(&out, b.targets)
	want := `
## Targets

| what | is | wanted |  |
| --- | ---: | ---: | --- |
| w: calls: CPU ÷ limit | 1.50× | ≤ 1.40× | MISSED |
| w: calls: CPU ÷ go-sdk | 0.037× | ≤ 0.05× | met |
| w: calls: calls per core ÷ go-sdk | 26.67× | ≥ 15.00× | met |
| idle | 700 B | ≤ 1024 B | met |
| cheaper | -0.4 µs | ≤ 8.00 µs | met |
`
	if got := out.String(); got != want {
		t.Errorf("targets:\n%s\nwant:\n%s", got, want)
	}
}

func TestFiguresOfAnEarlierVersionStandBesideMissedTargets(t *testing.T) {
	w := workload{name: "w", title: "calls", bounds: []bound{{of: baseline, cpu: 1.2}, {of: ours, allocs: 5}}}
	b := new(bench)
	b.recordBounds(w, []*subject{
		{name: baseline, rounds: []figures{{cpu: 1000}}},
		{name: ours, rounds: []figures{{cpu: 1800, allocs: 6}}},
		{name: before, rounds: []figures{{cpu: 1700, allocs: 6}}},
	})
	var out strings.Builder
	writeTargets(&out, b.targets)
	for _, want := range []string{"1.80× | ≤ 1.20× | MISSED, in the earlier version 1.70× |",
		"6.00 a call | ≤ 5.00 a call | MISSED, in the earlier version 6.00 a call |"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("targets:\n%s\nwant the row %q", out.String(), want)
		}
	}
	if got := b.targets[0].growth; got != 1800.0/1700 {
		t.Errorf("growth of the CPU of a call = %v, want %v", got, 1800.0/1700)
	}
}

func TestReportWithoutTargetsHasNoTable(t *testing.T) {
	var out strings.Builder
	writeTargets(&out, nil)
	if out.Len() > 0 {
		t.Errorf("report %q, want nothing", out.String())
	}
}

func TestBoundsMayReferToOneProgram(t *testing.T) {
	w := workload{bounds: []bound{{of: ours, micros: 5, allocs: 25}}}
	b := &bench{}
	b.recordBounds(w, []*subject{{name: ours, rounds: []figures{{cpu: 4 * time.Microsecond, allocs: 26}}}})
	if len(b.targets) != 2 || b.targets[0].got != 4 || !b.targets[0].met() || b.targets[1].got != 26 ||
		b.targets[1].met() {
		t.Errorf("targets = %+v, want the time met and the allocations not met", b.targets)
	}
}

func TestOnlyDifferencesBeyondTheMarginAreRegressions(t *testing.T) {
	for _, test := range []struct {
		target target
		want   bool
	}{
		{target{got: 1.3, most: 1.2, margin: noisy}, false},
		{target{got: 1.6, most: 1.2, margin: noisy}, true},
		{target{got: 1.6, most: 1.2, open: 1.5, margin: noisy}, false},
		{target{got: 126, most: 125, margin: exact}, true},
		{target{got: 125, most: 125, margin: exact}, false},
		{target{got: 900, most: 1, margin: unreliable}, false},
		{target{got: 1.6, most: 1.2, before: 1.4, growth: 1.09, margin: noisy}, false},
		{target{got: 1.6, most: 1.2, before: 1.5, growth: 1.11, margin: noisy}, true},
		{target{got: 1.3, most: 1.2, before: 1.0, growth: 1.3, margin: noisy}, false},
		{target{got: 126, most: 125, before: 126, growth: 1, margin: exact}, true},
		{target{got: 1600, most: 1400, before: 1600, growth: 1, margin: steady}, true},
		{target{got: 7, least: 10, before: 9, growth: 1.05, margin: noisy}, false},
		{target{got: 7, least: 10, before: 7.5, growth: 1.2, margin: noisy}, true},
		{target{got: 9, least: 10, margin: noisy}, false},
		{target{got: 7, least: 10, margin: noisy}, true},
	} {
		if got := test.target.regressed(); got != test.want {
			t.Errorf("%+v: regressed = %v, want %v", test.target, got, test.want)
		}
	}
}
