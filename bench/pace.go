package main

import (
	"fmt"
	"time"
)

// A pace is how often and how long each program is measured in a workload of
// calls.
type pace struct {
	rounds int
	slice  time.Duration
}

const (
	// defaultRounds and defaultSlice are long enough for medians that repeat
	// within a few percent on a quiet machine.
	defaultRounds = 5
	defaultSlice  = 2 * time.Second
	// quickRounds and quickSlice fit every workload but the largest into a
	// minute and a half.
	quickRounds = 3
	quickSlice  = 150 * time.Millisecond
)

// pace returns the rounds and the slice; what is given wins.
func (set settings) pace() pace {
	p := pace{defaultRounds, defaultSlice}
	if set.quick {
		p = pace{quickRounds, quickSlice}
	}
	if set.rounds > 0 {
		p.rounds = set.rounds
	}
	if set.slice > 0 {
		p.slice = set.slice
	}
	return p
}

// String tells a reader of the report.
func (p pace) String() string { return fmt.Sprintf("%d rounds of %v a program", p.rounds, p.slice) }

// starting is about how long the start of a program takes, with its
// connections.
const starting = 150 * time.Millisecond

// expected is about how long the workloads take, builds left out.
func (b *bench) expected(workloads []workload) time.Duration {
	var total time.Duration
	calls := starting + b.pace.slice/2 + b.pace.slice*time.Duration(b.pace.rounds)
	for _, w := range workloads {
		switch {
		case w.measure != nil:
			total += w.takes(b.quick)
		case w.clients:
			total += calls * time.Duration(len(b.clients))
		default:
			total += calls * time.Duration(len(b.servers))
		}
	}
	return total
}
