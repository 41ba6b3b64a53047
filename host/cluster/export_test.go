package cluster

import "time"

// StepWallClock makes a lease look as if the wall clock had been set forward since the last renewal.
func (l *Lease) StepWallClock(d time.Duration) {
	last := *l.renewed.Load()
	last.wall = last.wall.Add(-d)
	l.renewed.Store(&last)
}
