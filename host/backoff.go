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

// jitter returns a random delay of at most low, doubled with each failure after the first, and of at
// most high: servers that ended together do not start together.
func jitter(low, high time.Duration, failures int) time.Duration {
	return rand.N(min(low<<min(failures-1, 16), high)) //nolint:gosec // not a secret
}
