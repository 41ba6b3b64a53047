package limit

import "time"

// A BreakerState tells whether a [Breaker] lets requests pass.
type BreakerState string

// States of a breaker.
const (
	Closed   BreakerState = "closed"    // all requests pass
	Open     BreakerState = "open"      // no request passes
	HalfOpen BreakerState = "half-open" // one request at a time tries the server
)

// BreakerLimits configure a [Breaker].
type BreakerLimits struct {
	Failures int           // requests in sequence without a response that open it; 0 means that it never opens
	Open     time.Duration // how long it stays open
}

// A Breaker refuses the requests to a server whose last requests had no response. The zero value is
// closed. The caller must lock it.
type Breaker struct {
	failures int       // in sequence
	until    time.Time // when the breaker is no longer open; zero while it is closed
	trial    time.Time // when the last request was let through since then
	// principal caused all failures, if they are timeouts that a caller can cause.
	principal string
	certain   bool // no single caller caused all failures
}

// Refuses returns how long a request must wait, or zero if it may pass. If the breaker is
// half-open, the request is its trial. A trial without an outcome is followed by another trial
// after the limit Open, so that a slow call does not block all others.
func (b *Breaker) Refuses(l BreakerLimits, now time.Time) (wait time.Duration) {
	switch {
	case b.until.IsZero():
		return 0
	case l.Failures == 0: // the configuration changed
		*b = Breaker{}
		return 0
	case now.Before(b.until):
		return b.until.Sub(now)
	case !b.trial.IsZero() && now.Before(b.trial.Add(l.Open)):
		return b.trial.Add(l.Open).Sub(now)
	}
	b.trial = now
	return 0
}

// State returns the state, and how long the breaker stays open.
func (b *Breaker) State(now time.Time) (BreakerState, time.Duration) {
	switch {
	case b.until.IsZero():
		return Closed, 0
	case now.Before(b.until):
		return Open, b.until.Sub(now)
	}
	return HalfOpen, 0
}

// Failures returns the number of requests in sequence without a response.
func (b *Breaker) Failures() int { return b.failures }

// Succeeded counts a response.
func (b *Breaker) Succeeded() {
	if b.failures > 0 {
		*b = Breaker{}
	}
}

// Failed counts a request without a response. The principal is the caller that may be the cause, or
// empty if no single caller can: timeouts of a single caller must not close a server to the others.
func (b *Breaker) Failed(l BreakerLimits, principal string, now time.Time) {
	if l.Failures == 0 || now.Before(b.until) {
		return
	}
	if b.failures++; b.failures == 1 {
		b.principal = principal
	}
	b.certain = b.certain || principal == "" || principal != b.principal
	if b.failures >= l.Failures && b.certain || !b.until.IsZero() {
		b.until, b.trial = now.Add(l.Open), time.Time{}
	}
}
