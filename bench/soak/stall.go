package main

import (
	"context"
	"sync"
	"time"
)

// stalls measures how long the processes could not run, because the machine was busy with other
// programs. That is no failure of the SDK: time limits are extended by it, and it explains the
// errors of timeouts.
type stalls struct {
	mu    sync.Mutex // guards the fields below
	total time.Duration
	last  time.Time // when the last one ended
}

const (
	stallInterval = 200 * time.Millisecond
	// minStall is the shortest delay that counts.
	minStall = 500 * time.Millisecond
	// maxSampleAge is how old the last sample of the server may be; it sends one each second.
	maxSampleAge = 3 * time.Second
	// stallGrace is how long after a stall its effects may appear.
	stallGrace = 5 * time.Second
)

// run measures until ctx ends. age returns the age of the last sample of the server.
func (s *stalls) run(ctx context.Context, age func() time.Duration) {
	for before := time.Now(); sleep(ctx, stallInterval) == nil; before = time.Now() {
		took := time.Since(before)
		if took > stallInterval+minStall || age() > maxSampleAge {
			s.mu.Lock()
			s.total, s.last = s.total+took, time.Now()
			s.mu.Unlock()
		}
	}
}

func (s *stalls) sum() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.total
}

// since reports whether a stall may have effects after a time.
func (s *stalls) since(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.Before(s.last.Add(stallGrace))
}
