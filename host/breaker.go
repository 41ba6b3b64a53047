package host

import (
	"errors"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A BreakerState is the state of the breaker of a server: whether requests are sent to it.
type BreakerState string

// States of a breaker.
const (
	BreakerClosed   BreakerState = "closed"    // all requests are sent
	BreakerOpen     BreakerState = "open"      // requests are refused
	BreakerHalfOpen BreakerState = "half-open" // one request at a time tries the server
)

// A breaker refuses the calls of an instance whose last ones had no response. The lock of the upstream
// guards it. The zero value is closed.
type breaker struct {
	failures int       // in sequence
	until    time.Time // when it is no longer open; zero while it is closed
	trial    time.Time // when the last request was let through since then
	// principal is the caller of all failures, if they are timeouts that it may have caused.
	principal string
	certain   bool // some failure is not one of those
}

// refuses reports whether a call is refused, and for how long. Otherwise it may be the trial: if that has
// no outcome in time, there is another one, so that one slow call does not keep all others waiting.
func (b *breaker) refuses(s config.Breaker, now time.Time) (wait time.Duration) {
	switch {
	case b.until.IsZero():
		return 0
	case s.Failures == 0: // the configuration has changed
		*b = breaker{}
		return 0
	case now.Before(b.until):
		return b.until.Sub(now)
	case !b.trial.IsZero() && now.Before(b.trial.Add(s.Open)):
		return b.trial.Add(s.Open).Sub(now)
	}
	b.trial = now
	return 0
}

func (b *breaker) state(now time.Time) BreakerState {
	switch {
	case b.until.IsZero():
		return BreakerClosed
	case now.Before(b.until):
		return BreakerOpen
	}
	return BreakerHalfOpen
}

// succeeded counts a response.
func (b *breaker) succeeded() {
	if b.failures > 0 {
		*b = breaker{}
	}
}

// failed counts a request without a response. principal is the caller that may have caused it, empty if
// no single one can: timeouts of one caller must not close a server to the others.
func (b *breaker) failed(s config.Breaker, principal string, now time.Time) {
	if s.Failures == 0 || now.Before(b.until) {
		return
	}
	if b.failures++; b.failures == 1 {
		b.principal = principal
	}
	b.certain = b.certain || principal == "" || principal != b.principal
	if b.failures >= s.Failures && b.certain || !b.until.IsZero() {
		b.until, b.trial = now.Add(s.Open), time.Time{}
	}
}

// countFailure counts a request without a valid response in the breaker of its instance.
func (s *conn) countFailure(e *Error, principal string) {
	u := s.in.pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case !isOutage(e):
		s.in.breaker.succeeded() // the server has responded
		return
	case e.Code != CodeTimeout || u.poolKey(s.in.pool.caller) != "" || principal == localPrincipal:
		principal = ""
	}
	s.in.breaker.failed(u.entry().settings.Breaker, principal, time.Now())
}

// isOutage reports whether a server did not respond, or with a status of a proxy or an overload.
func isOutage(e *Error) bool {
	if status, ok := errors.AsType[*mcphttp.StatusError](e.Err); ok {
		switch status.StatusCode {
		case http.StatusRequestTimeout, http.StatusTooManyRequests:
			return true
		}
		return status.StatusCode >= http.StatusInternalServerError
	}
	return e.Code == CodeTimeout || e.Code == CodeUnavailable && !errors.Is(e.Err, mcp.ErrSessionLost)
}

// checkBreaker returns an error if the last calls of the instance had no response. The lock of the
// upstream is held.
func (i *instance) checkBreaker() error {
	u := i.pool.up
	s := u.entry().settings.Breaker
	wait := i.breaker.refuses(s, time.Now())
	if wait == 0 {
		return nil
	}
	return u.refusal(CodeUnavailable, "breaker", wait,
		"the last %d requests had no response (breaker of %d failures, open for %v): the server is tried again in %v",
		i.breaker.failures, s.Failures, s.Open, rounded(wait))
}
