package main

import (
	"fmt"
	"time"
)

// A pace is the number and duration of the measurements of each program in a
// workload of calls.
type pace struct {
	rounds int
	slice  time.Duration // of this project's program, the floors, and clients
	peer   time.Duration // of the other SDKs; they are much slower, so a shorter slice is enough
}

// The paces keep a full run within twelve minutes. Slices are long enough for
// medians that repeat within a few percent on a quiet machine.
func (b *bench) paceOf(w workload) pace {
	p := pace{9, 250 * time.Millisecond, 100 * time.Millisecond}
	switch {
	case w.webhook && b.quick:
		p = pace{3, 300 * time.Millisecond, 300 * time.Millisecond}
	case w.webhook:
		p = pace{6, 2 * time.Second, 2 * time.Second}
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

// Node optimizes hot code only after many calls. They are made before the first
// round, within a time limit.
const (
	slowWarmUpCalls = 1000
	slowWarmUp      = 3 * time.Second
)

// after returns the actual pace.
func (p pace) after(subjects []*subject) pace {
	p.rounds = 0
	for _, s := range subjects {
		p.rounds = max(p.rounds, len(s.rounds))
	}
	return p
}

// minRounds is the minimum number of rounds, whatever their duration.
const minRounds = 3

// String returns a description for the report.
func (p pace) String() string {
	if p.slice == p.peer {
		return fmt.Sprintf("%d rounds of %v", p.rounds, p.slice)
	}
	return fmt.Sprintf("%d rounds of %v, of %v for peers", p.rounds, p.slice, p.peer)
}

const (
	// starting is the approximate start time of a program and its connections.
	// slowStarting is that of a Node program.
	starting     = 100 * time.Millisecond
	slowStarting = 700 * time.Millisecond
	// growthOpening is the approximate time to open the largest sizes of a table of growth.
	growthOpening = 5 * time.Second
)

// expected returns the approximate duration of the workloads without builds.
func (b *bench) expected(workloads []workload) time.Duration {
	var total time.Duration
	for _, w := range workloads {
		total += b.expectedOf(w)
	}
	return total
}

func (b *bench) expectedOf(w workload) time.Duration {
	if w.measure != nil {
		return w.duration(b.quick)
	}
	var total time.Duration
	p := b.paceOf(w)
	add := func(s *subject) {
		rounds := p.rounds
		total += starting + p.of(s)/2
		if s.slow {
			total += slowStarting + slowWarmUp/2
			rounds = min(rounds, minRounds)
		}
		total += p.of(s) * time.Duration(rounds)
	}
	if w.gateway != nil {
		for range w.gateway.programs {
			add(new(subject))
		}
		return total
	}
	if w.growth != nil {
		for range w.growth.sizes {
			add(new(subject))
		}
		return total + growthOpening
	}
	if w.webhook {
		add(new(subject))
		add(new(subject))
		return total + webhookStarting + time.Duration(p.rounds+1)*webhookSettling
	}
	if w.observed != nil {
		add(new(subject))
		add(new(subject))
		return total
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

// overdue returns the time limit of the rounds of a workload, 1.5 times the
// expected duration.
func (b *bench) overdue(w workload) time.Duration { return b.expectedOf(w) * 3 / 2 }
