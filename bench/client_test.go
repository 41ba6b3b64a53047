package main

import (
	"slices"
	"strings"
	"testing"
)

func TestNamingOneKindLeavesTheOtherOut(t *testing.T) {
	kinds := func(set settings) (kinds []string) {
		for _, w := range catalogueWorkloads() {
			if set.includes(w) && !slices.Contains(kinds, w.kind()) {
				kinds = append(kinds, w.kind())
			}
		}
		return kinds
	}
	for _, test := range []struct {
		set  settings
		want []string
	}{
		{settings{}, []string{"server", "client"}},
		{settings{servers: "limit"}, []string{"server"}},
		{settings{clients: everything}, []string{"client"}},
		{settings{servers: everything, clients: "patchbay"}, []string{"server", "client"}},
		{settings{quick: true}, []string{"server", "client"}},
	} {
		if got := kinds(test.set); !slices.Equal(got, test.want) {
			t.Errorf("%+v runs workloads of %q, want %q", test.set, got, test.want)
		}
	}
}

func TestWantsAreOfClientsThatTakePart(t *testing.T) {
	for _, w := range catalogueClientWorkloads() {
		for _, want := range append(w.wants, want{of: subjectOfWants}) {
			i := slices.IndexFunc(catalogueClients(), func(c client) bool { return c.name == want.of })
			if i < 0 || w.memory && !catalogueClients()[i].sdk {
				t.Errorf("%s: %s does not take part", w.name, want.of)
			}
		}
	}
}

func TestReportSaysWhetherWantsAreKept(t *testing.T) {
	w := workload{clients: true, wants: []want{{floor, 1.4}, {"go-sdk", 0.05}, {"absent", 1}}}
	subjects := []*subject{
		{name: floor, rounds: []figures{{cpu: 1000}}},
		{name: subjectOfWants, rounds: []figures{{cpu: 1500}}},
		{name: "go-sdk", rounds: []figures{{cpu: 40_000}}},
	}
	var out strings.Builder
	writeCalls(&out, w, subjects)
	for _, want := range []string{
		"| client | calls/s |",
		"Wanted: patchbay at most 1.40 of limit. It is 1.50: MISSED.",
		"Wanted: patchbay at most 0.05 of go-sdk. It is 0.037: kept.",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "absent") {
		t.Errorf("a client that took no part is compared with:\n%s", out.String())
	}
}
