package main

import (
	"context"
	"sync"
	"time"
)

// lateness measures how long this process was not scheduled although it was ready, so that a busy
// machine is not taken for a slow program.
type lateness struct {
	mu    sync.Mutex // guards the fields below
	total time.Duration
	began time.Time // the pause in progress; zero for none
}

// The pauses that are measured, and by how much one is longer on a quiet machine.
const pauseTime, pauseSlack = 10 * time.Millisecond, time.Millisecond

// measure measures until ctx ends.
func (l *lateness) measure(ctx context.Context) {
	for ctx.Err() == nil {
		l.next(time.Now())
		time.Sleep(pauseTime)
	}
	l.next(time.Time{})
}

// next ends the pause in progress and begins another one.
func (l *lateness) next(began time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += l.overdue()
	l.began = began
}

// overdue returns by how much the pause in progress is too long. The lock is held.
func (l *lateness) overdue() time.Duration {
	if late := time.Since(l.began) - pauseTime; !l.began.IsZero() && late > pauseSlack {
		return late
	}
	return 0
}

// add adds a time for which the program under test was stopped.
func (l *lateness) add(d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.total += d
}

// sum returns the sum until now: others may run before the goroutine that measures.
func (l *lateness) sum() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total + l.overdue()
}
