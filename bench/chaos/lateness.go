package main

import (
	"context"
	"sync/atomic"
	"time"
)

// lateness measures how long this process was not scheduled although it was ready, so that a busy
// machine is not taken for a slow program.
type lateness struct{ total atomic.Int64 }

// measure measures until ctx ends.
func (l *lateness) measure(ctx context.Context) {
	const step, usual = 10 * time.Millisecond, time.Millisecond // of a timer on a quiet machine
	for ctx.Err() == nil {
		began := time.Now()
		time.Sleep(step)
		if late := time.Since(began) - step; late > usual {
			l.total.Add(int64(late))
		}
	}
}

// add adds a time for which the program under test was stopped.
func (l *lateness) add(d time.Duration) { l.total.Add(int64(d)) }

func (l *lateness) sum() time.Duration { return time.Duration(l.total.Load()) }
