package main

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPickSelectsByNameOrDefault(t *testing.T) {
	name := func(s string) string { return s }
	byDefault := func(s string) bool { return s != "c" }
	for _, test := range []struct {
		list string
		want []string
	}{
		{"", []string{"a", "b"}},
		{"c", []string{"c"}},
		{"c, a", []string{"a", "c"}},
		{"*", []string{"a", "b", "c"}},
		{"a*, c", []string{"a", "c"}},
	} {
		got, err := pick([]string{"a", "b", "c"}, test.list, name, byDefault)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("pick %q = %q, %v; want %q", test.list, got, err, test.want)
		}
	}
	if _, err := pick([]string{"a"}, "a,x", name, byDefault); err == nil || !strings.Contains(err.Error(), "x") {
		t.Errorf("an unknown name: %v, want an error with the name", err)
	}
}

func TestParseCoresReadsRanges(t *testing.T) {
	for list, want := range map[string][]string{
		"0":     {"0"},
		"0-2,5": {"0", "1", "2", "5"},
		"":      nil,
		"x":     nil,
	} {
		if got := parseCores(list); !slices.Equal(got, want) {
			t.Errorf("parseCores(%q) = %q, want %q", list, got, want)
		}
	}
}

func TestRatioIsComputedPerRound(t *testing.T) {
	// In the second round the machine is three times slower.
	a := &subject{rounds: []figures{{cpu: 10}, {cpu: 30}, {cpu: 11}}}
	b := &subject{rounds: []figures{{cpu: 20}, {cpu: 60}, {cpu: 22}}}
	if got := a.ratio(b); got != 0.5 {
		t.Errorf("ratio = %v, want 0.5", got)
	}
	if got := a.ratio(&subject{rounds: make([]figures, 3)}); got != 0 {
		t.Errorf("ratio to unknown CPU = %v, want 0", got)
	}
}

func TestMedianOfOddAndEvenCounts(t *testing.T) {
	for _, test := range []struct {
		values []float64
		want   float64
	}{
		{nil, 0}, {[]float64{3}, 3}, {[]float64{4, 1}, 2.5}, {[]float64{9, 1, 2}, 2},
	} {
		if got := median(test.values); got != test.want {
			t.Errorf("median(%v) = %v, want %v", test.values, got, test.want)
		}
	}
}

func TestWorkloadNamesAreUnique(t *testing.T) {
	names := make(map[string]bool)
	for _, w := range catalogueWorkloads() {
		if names[w.name] {
			t.Errorf("workload name %q is used twice", w.name)
		}
		names[w.name] = true
	}
}

func TestReportMarksCallsWithExtraWork(t *testing.T) {
	all := catalogueWorkloads()
	w := all[slices.IndexFunc(all, func(w workload) bool { return w.name == "modern-sse" })]
	var subjects []*subject
	for _, s := range catalogueServers() {
		subjects = append(subjects, &subject{
			name: s.name, call: w.callOf(s),
			rounds: []figures{{rate: 1000, busy: 1, cpu: 10 * time.Microsecond}},
		})
	}
	var out strings.Builder
	writeCalls(&out, w, pace{}, subjects)
	if got := out.String(); !strings.Contains(got, "| patchbay ¹ | 1000 | 100% | 10.0 |") ||
		!strings.Contains(got, "\n¹ ") ||
		strings.Contains(got, "go-sdk ¹") {
		t.Errorf("report of %s:\n%s\nwant a mark and a footnote for patchbay only", w.name, got)
	}
}

func TestSpreadServersRunOnAllCores(t *testing.T) {
	p := pinning{measured: "3", rest: []string{"0", "1", "2"}}
	if got := p.spreadArgv("server"); !slices.Equal(got, []string{"taskset", "-c", "0,1,2,3", "server"}) {
		t.Errorf("command line = %q, want cores 0,1,2,3", got)
	}
	if got := (pinning{}).spreadArgv("server"); !slices.Equal(got, []string{"server"}) {
		t.Errorf("command line without pinning = %q, want the command only", got)
	}
}
