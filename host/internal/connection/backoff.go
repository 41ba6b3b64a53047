package connection

import (
	"math/rand/v2"
	"time"
)

const (
	// minBackoff and maxBackoff limit the delay of the start of a process after an exit.
	minBackoff, maxBackoff = time.Second, 60 * time.Second
	// minReconnect and maxReconnect limit the delay of a connection over HTTP: another attempt costs
	// neither side much.
	minReconnect, maxReconnect = 250 * time.Millisecond, 5 * time.Second
	// earlyExit is the time for which a process must run so that its exit does not count as early.
	earlyExit = 30 * time.Second
	// MaxEarlyExits is the number of early exits in sequence after which a server counts as unable to
	// run.
	MaxEarlyExits = 5
	// TrialInterval is the time until such a server is started again.
	TrialInterval = 5 * time.Minute
)

// A Backoff delays the connections to a server after failures. The zero value does not delay.
type Backoff struct {
	failures   int       // in sequence
	earlyExits int       // in sequence
	Until      time.Time // when the next attempt may begin
}

// Exited records that a process ran for some time; a negative time means that it was never ready.
// It reports whether the server counts as unable to run.
func (b *Backoff) Exited(now time.Time, ran time.Duration) (crashLoop bool) {
	if ran >= earlyExit {
		*b = Backoff{}
	} else {
		b.earlyExits++
	}
	b.failures++
	if b.earlyExits >= MaxEarlyExits {
		b.Until = now.Add(TrialInterval)
		return true
	}
	b.Until = now.Add(jitter(minBackoff, maxBackoff, b.failures))
	return false
}

// Failed records a failure to connect that does not involve a process.
func (b *Backoff) Failed(now time.Time) {
	b.failures++
	b.Until = now.Add(jitter(minReconnect, maxReconnect, b.failures))
}

// A StartDelay delays the starts of a command for all callers and sessions while no start succeeds. A
// [Backoff] for each caller is not enough, because a new session begins without failures. The zero
// value does not delay.
type StartDelay struct {
	failures int // in sequence
	failed   time.Time
	Until    time.Time // when the next start may begin
}

// IsActive reports whether starts failed.
func (d *StartDelay) IsActive() bool { return d.failures > 0 }

// Failed records a failed start. Starts that were in progress at the same time count once.
func (d *StartDelay) Failed(began, now time.Time) {
	if d.failures > 0 && !began.After(d.failed) {
		return
	}
	d.failures++
	d.failed = now
	if until := now.Add(jitter(minBackoff, maxBackoff, d.failures)); until.After(d.Until) {
		d.Until = until
	}
}

// Try delays the starts of other callers while a start is tried.
func (d *StartDelay) Try(now time.Time) {
	if d.failures > 0 {
		d.Until = now.Add(minBackoff)
	}
}

// jitter returns a random delay of at most low, doubled with each failure after the first, and of at
// most high: servers that ended together do not start together.
func jitter(low, high time.Duration, failures int) time.Duration {
	return rand.N(min(low<<min(failures-1, 16), high)) //nolint:gosec // not a secret
}
