package main

import (
	"fmt"
	"slices"
	"time"
)

const (
	opCancel     = "cancel"
	cancelMillis = 3000                    // of a call that is cancelled
	stopTime     = 1500 * time.Millisecond // from a cancellation to the end of its call
	wipeFault    = "Redis restarted without its data"
	// lossTime is how long clients may take to learn that the store has lost their sessions.
	lossTime = time.Minute
	// stallTime is how long a process that is not scheduled may be late before sessions expire.
	stallTime = sharedIdle / 4
	// breakerTime is how long a process may go on without the store after a fault.
	breakerTime = 3 * time.Second
	// busyTime is how late that process may be while calls must be answered in time.
	busyTime = time.Second
	// resumesElsewhere says that a call is resumed at another process than its own.
	resumesElsewhere = true
)

// wipedSince reports whether the store has lost its data at a time or later.
func (c *checker) wipedSince(t time.Duration) bool {
	return slices.ContainsFunc(c.wipes, func(f fault) bool { return f.End >= t })
}

// mayForget reports whether the store may have lost something that was written between two times.
func (c *checker) mayForget(from, to time.Duration) bool {
	return c.wipedSince(from) || isRisky(c.risks, from, to)
}

// begin returns when the first attempt of a call began.
func (a *account) begin() time.Duration {
	if len(a.attempts) == 0 {
		return 0
	}
	return a.attempts[0].Begin
}

// needed are the operations that must succeed if no fault is near.
var needed = append([]string{"connect", "read"}, "echo", "append", "slow", "stream", "ask")

// checkShared checks the rules of several processes: a session ends with its store and not with a
// process, every call is answered while no fault is near, cancellations reach the process that runs
// the call, and a stream that only lost its connection goes on.
func (c *checker) checkShared(b batch) (broken []violation) {
	if !c.shared {
		return nil
	}
	add := func(rule string, a *attempt) { broken = append(broken, violation{rule, []string{a.String()}}) }
	if b.Late-c.late > stallTime {
		c.stall = b.Now
	}
	isBusy := b.Late-c.late > busyTime
	c.late = b.Late
	stalled := c.stall > 0 && b.Now-c.stall < lossTime // sessions were idle for too long
	for _, a := range b.Attempts {
		isCalm := !isBusy && a.Begin >= b.Calm[0] && a.End <= b.Calm[1]
		switch {
		case a.Error == "session lost" && !stalled && !c.wipedSince(a.Begin-lossTime) && !c.mayLose(a):
			add("lost: a session ended before its time", a)
		case isCalm && a.Outcome != answered && slices.Contains(needed, a.Op):
			add("liveness: a call failed although no fault was near", a)
		case isCalm && a.Error == "cancelled" && a.End < b.Calm[1]-stopTime && c.accounts[a.Nonce].goesOn():
			add(fmt.Sprintf("liveness: a call runs %v after its cancellation", stopTime), a)
		case resumesElsewhere && !isBusy && a.Op == "stream" && a.Era == revisions[1] && a.Outcome == unknown &&
			a.Error != "session lost" && c.received(a) && !c.isHurt(a):
			add("lost: the stream of a call that runs was not resumed", a)
		}
	}
	return broken
}

func (a *account) goesOn() bool { return a != nil && a.runs > a.stopped }

// received reports whether a call has received a notification.
func (c *checker) received(a *attempt) bool { return c.streams[a.Nonce] != nil }

// mayLose reports whether a session of an attempt may be lost: it began while the store failed over.
func (c *checker) mayLose(a *attempt) bool {
	return slices.ContainsFunc(a.Sessions[:], func(t time.Duration) bool { return isRisky(c.risks, t, t) })
}

// isHurt reports whether a fault of a process or of the store overlaps an attempt, or ended shortly
// before: events that cannot be stored have no ids.
func (c *checker) isHurt(a *attempt) bool {
	return slices.ContainsFunc(c.recent, func(f fault) bool {
		isConnection := slices.ContainsFunc(connectionFaults, func(k faultKind) bool { return k.name == f.Kind })
		return !isConnection && f.Begin < a.End && f.End > a.Begin-breakerTime
	})
}
