package main

import (
	"testing"
	"time"
)

// A run of all workloads is limited to fifteen minutes, of which two minutes are reserved for
// the builds and for slow program starts. A quick run is for CI.
func TestRunsAreBounded(t *testing.T) {
	for _, test := range []struct {
		set  settings
		most time.Duration
	}{
		{settings{}, 10 * time.Minute},
		{settings{workloads: "*"}, 15 * time.Minute},
		{settings{quick: true}, 185 * time.Second},
		{settings{workloads: "gateway-*"}, 5 * time.Minute},
	} {
		servers, clients, workloads, err := test.set.picked()
		if err != nil {
			t.Fatal(err)
		}
		b := &bench{servers: servers, clients: clients, quick: test.set.quick}
		if got := b.expected(workloads); got > test.most {
			t.Errorf("%+v: expected duration %v, want at most %v", test.set, got, test.most)
		}
	}
}

func TestPaceDependsOnTheWorkload(t *testing.T) {
	w := workload{bounds: []bound{{of: baseline, cpu: 1}}}
	full, variant, quick := new(bench).paceOf(w), new(bench).paceOf(workload{}), (&bench{quick: true}).paceOf(w)
	if full.rounds <= variant.rounds || variant.rounds < quick.rounds || quick.rounds < minRounds {
		t.Errorf("rounds: %d with targets, %d without, %d in a quick run, want fewer each time, at least %d", full.rounds,
			variant.rounds, quick.rounds, minRounds)
	}
	if got := (&bench{rounds: 2, slice: time.Second}).paceOf(w); got != (pace{2, time.Second, time.Second}) {
		t.Errorf("with explicit rounds and slice: pace = %+v, want 2 rounds of 1s", got)
	}
	if got := full.of(&subject{peer: true}); got != full.peer || full.of(new(subject)) != full.slice {
		t.Errorf("slice of a peer = %v, want %v", got, full.peer)
	}
	three := []*subject{{rounds: make([]figures, 2)}, {rounds: make([]figures, 3)}}
	if got := full.after(three).String(); got != "3 rounds of 250ms, of 100ms for peers" {
		t.Errorf("actual pace = %q, want 3 rounds", got)
	}
}
