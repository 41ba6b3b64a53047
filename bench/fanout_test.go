package main

import (
	"strings"
	"testing"
)

func TestChangeRatiosAreComputedPerRound(t *testing.T) {
	limit := &listeningServer{name: baseline, cpu: []float64{10_000, 30_000, 11_000}, wall: []float64{20, 60, 22},
		first: []float64{1, 2, 1}}
	subject := &listeningServer{name: ours, cpu: []float64{20_000, 60_000, 22_000}, wall: []float64{40, 90, 44},
		first: []float64{3, 2, 4}}
	b, w := &bench{}, catalogueChangeWorkloads()[0]
	var out strings.Builder
	b.writeChanges(&out, w, []*listeningServer{limit, subject})
	if want := "| patchbay | 22.0 | 44.0 | 3.0 | 22.0 | 2.00 | 2.00 |\n"; !strings.HasSuffix(out.String(), want) {
		t.Errorf("table:\n%s\nwant at its end\n%s", out.String(), want)
	}
	if len(b.targets) != 1 || b.targets[0].got != 2 || b.targets[0].met() {
		t.Errorf("targets = %+v, want one of 2, not met", b.targets)
	}
}
