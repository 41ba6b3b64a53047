package host

import (
	"math/rand/v2"
	"time"
)

const (
	// minBackoff and maxBackoff bound the delay of the start of a process after an exit.
	minBackoff, maxBackoff = time.Second, 60 * time.Second
	// minReconnect and maxReconnect bound that of a connection over HTTP: another attempt costs
	// neither side much.
	minReconnect, maxReconnect = 250 * time.Millisecond, 5 * time.Second
	// earlyExit is how long a process must have run for its exit not to count as early.
	earlyExit = 30 * time.Second
	// maxEarlyExits is the number of early exits in sequence after which the server counts as one
	// that cannot run.
	maxEarlyExits = 5
	// trialInterval is how long such a server is not started again.
	trialInterval = 5 * time.Minute
	// backoffWait is how long a request waits for a delayed start.
	backoffWait = 5 * time.Second
)

// A backoff delays the starts of a server that has ended. The zero value does not.
type backoff struct {
	failures   int       // in sequence
	earlyExits int       // in sequence
	until      time.Time // when the next start is allowed
}

// exited records the end of a process after a time; a start that failed has a negative one.
func (b *backoff) exited(now time.Time, ran time.Duration) State {
	if ran >= earlyExit {
		*b = backoff{}
	} else {
		b.earlyExits++
	}
	b.failures++
	if b.earlyExits >= maxEarlyExits {
		b.until = now.Add(trialInterval)
		return StateCrashLoop
	}
	b.until = now.Add(jitter(minBackoff, maxBackoff, b.failures))
	return StateBackoff
}

// failed records a failure to connect that does not involve a process.
func (b *backoff) failed(now time.Time) {
	b.failures++
	b.until = now.Add(jitter(minReconnect, maxReconnect, b.failures))
}

// A startDelay delays the starts of a command for all callers and sessions while no start succeeds.
// The [backoff] of an instance is not enough, because a new session starts a new instance without
// failures. The zero value does not delay.
type startDelay struct {
	failures int // in sequence
	failed   time.Time
	until    time.Time // when the next start is allowed
	err      *Error    // why the last start failed
}

// failedStart records a start that did not become ready. Starts that were in progress at the same
// time count once. The caller must hold u.mu.
func (u *Upstream) failedStart(s *start, e *Error, now time.Time) {
	d := &u.delay
	if !u.isCommand() || s.state != StateStarting || e.Code == CodeConfigError || e.Code == CodeAuthRequired {
		return
	}
	if d.err = e; d.failures == 0 || s.began.After(d.failed) {
		d.failures++
		d.failed = now
		if until := now.Add(jitter(minBackoff, maxBackoff, d.failures)); until.After(d.until) {
			d.until = until
		}
	}
}

// endDelay ends the delay of starts for all callers. The caller must hold u.mu.
func (u *Upstream) endDelay() {
	if u.delay.failures == 0 {
		return
	}
	u.delay = startDelay{}
	for _, p := range u.pools {
		for _, i := range p.instances {
			i.wake()
		}
	}
}

// startsAt returns when the next start is allowed: a time in the past if it is not delayed. The
// caller must hold the lock of the upstream.
func (i *instance) startsAt() time.Time {
	if until := i.pool.up.delay.until; until.After(i.backoff.until) {
		return until
	}
	return i.backoff.until
}

// jitter returns a random delay of at most low, doubled with each failure after the first, and of at
// most high: servers that ended together do not start together.
func jitter(low, high time.Duration, failures int) time.Duration {
	return rand.N(min(low<<min(failures-1, 16), high)) //nolint:gosec // not a secret
}
