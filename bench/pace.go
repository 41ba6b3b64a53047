package main

import (
	"fmt"
	"time"
)

// A pace is how often and how long each program is measured in a workload of
// calls.
type pace struct {
	rounds int
	slice  time.Duration // of this project's program, the floors, and clients
	peer   time.Duration // of the others: twenty times slower, so a ratio to them needs no more
}

// Paces keep a run of everything within ten minutes. They are long enough for
// medians that repeat within a few percent on a quiet machine.
func (b *bench) paceOf(w workload) pace {
	p := pace{9, 250 * time.Millisecond, 100 * time.Millisecond}
	switch {
	case b.quick:
		p = pace{3, 150 * time.Millisecond, 60 * time.Millisecond}
	case len(w.bounds) == 0 || w.clients:
		p = pace{5, 150 * time.Millisecond, 60 * time.Millisecond}
	}
	if b.rounds > 0 {
		p.rounds = b.rounds
	}
	if b.slice > 0 {
		p.slice, p.peer = b.slice, b.slice
	}
	return p
}

func (p pace) of(s *subject) time.Duration {
	if s.peer {
		return p.peer
	}
	return p.slice
}

// Node compiles what it runs most only after so many calls, which are made
// before the first round, for at most so long.
const (
	slowWarmUpCalls = 1000
	slowWarmUp      = 3 * time.Second
)

// after is the pace that was kept.
func (p pace) after(subjects []*subject) pace {
	p.rounds = 0
	for _, s := range subjects {
		p.rounds = max(p.rounds, len(s.rounds))
	}
	return p
}

// leastRounds are made however long they take.
const leastRounds = 3

// String tells a reader of the report.
func (p pace) String() string {
	if p.slice == p.peer {
		return fmt.Sprintf("%d rounds of %v", p.rounds, p.slice)
	}
	return fmt.Sprintf("%d rounds of %v, of %v for peers", p.rounds, p.slice, p.peer)
}

const (
	// starting is about how long the start of a program takes, with its
	// connections; slowStarting that of one in Node.
	starting     = 100 * time.Millisecond
	slowStarting = 700 * time.Millisecond
)

// expected is about how long the workloads take, builds left out.
func (b *bench) expected(workloads []workload) time.Duration {
	var total time.Duration
	for _, w := range workloads {
		total += b.expectedOf(w)
	}
	return total
}

func (b *bench) expectedOf(w workload) time.Duration {
	if w.measure != nil {
		return w.takes(b.quick)
	}
	var total time.Duration
	p := b.paceOf(w)
	add := func(s *subject) {
		rounds := p.rounds
		total += starting + p.of(s)/2
		if s.slow {
			total += slowStarting + slowWarmUp/2
			rounds = min(rounds, leastRounds)
		}
		total += p.of(s) * time.Duration(rounds)
	}
	if w.clients {
		for range b.clients {
			add(new(subject))
		}
		return total
	}
	for _, s := range b.servers {
		if w.suits(s) {
			add(&subject{peer: s.peer, slow: s.slow})
		}
	}
	return total
}

// overdue is how long the rounds of a workload may take, half as long again as
// expected.
func (b *bench) overdue(w workload) time.Duration { return b.expectedOf(w) * 3 / 2 }
