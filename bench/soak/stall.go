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
	mu     sync.Mutex // guards the fields below
	ticked time.Time  // when it was last measured; zero before that
	total  time.Duration
	last   time.Time // when the last one ended
}

const (
	stallInterval = 200 * time.Millisecond
	// minStall is the shortest delay that counts.
	minStall = 500 * time.Millisecond
	// maxSampleAge is how old the last sample of the server may be; it sends one each second.
	maxSampleAge = 3 * time.Second
	// stallGrace is how long after a stall its effects may appear: Serve waits 10 seconds for a request.
	stallGrace = 15 * time.Second
)

// run measures until ctx ends. age returns the age of the last sample of the server.
func (s *stalls) run(ctx context.Context, age func() time.Duration) {
	for {
		s.mu.Lock()
		s.measure()
		if now := time.Now(); age() > maxSampleAge && !s.ticked.IsZero() {
			s.total, s.last = s.total+now.Sub(s.ticked), now
		}
		s.ticked = time.Now()
		s.mu.Unlock()
		if sleep(ctx, stallInterval) != nil {
			return
		}
	}
}

// measure counts the time since the last measurement if it is too long. A goroutine that was
// stalled may need the result before run continues. The caller holds the lock.
func (s *stalls) measure() {
	now := time.Now()
	if took := now.Sub(s.ticked); !s.ticked.IsZero() && took > stallInterval+minStall {
		s.total, s.last, s.ticked = s.total+took, now, now
	}
}

func (s *stalls) sum() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure()
	return s.total
}

// since reports whether a stall may have effects after a time.
func (s *stalls) since(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.measure()
	return t.Before(s.last.Add(stallGrace))
}
