package limits

import (
	"errors"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/internal/limit"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

// A Breaker refuses requests to an instance of a server whose last requests had no response. The caller
// must lock it.
type Breaker struct {
	server  *Server
	breaker limit.Breaker
}

// NewBreaker returns a breaker for an instance of the server.
func (s *Server) NewBreaker() Breaker { return Breaker{server: s} }

// Reset closes the breaker.
func (b *Breaker) Reset() { b.breaker = limit.Breaker{} }

func (b *Breaker) limits() limit.BreakerLimits {
	s := b.server.settings.Load().Breaker
	return limit.BreakerLimits{Failures: s.Failures, Open: time.Duration(s.Open)}
}

// Check returns an error unless a request may be sent.
func (b *Breaker) Check(now time.Time) error {
	s := b.limits()
	wait := b.breaker.Refuses(s, now)
	if wait == 0 {
		return nil
	}
	return b.server.Refuse(hosterr.CodeUnavailable, "breaker", wait,
		"the last %d requests had no response (breaker of %d failures, open for %v): the server is tried again in %v",
		b.breaker.Failures(), s.Failures, s.Open, rounded(wait))
}

// State returns the state, and how long the breaker stays open.
func (b *Breaker) State(now time.Time) (limit.BreakerState, time.Duration) {
	return b.breaker.State(now)
}

// Succeeded counts a response.
func (b *Breaker) Succeeded() { b.breaker.Succeeded() }

// Failed counts a request without a valid response. The principal is its caller if other callers share
// the instance, and empty otherwise.
func (b *Breaker) Failed(e *hosterr.Error, principal string) {
	if !isOutage(e) {
		b.breaker.Succeeded() // the server has responded
		return
	}
	if e.Code != hosterr.CodeTimeout || principal == LocalPrincipal {
		principal = "" // a caller can cause timeouts only
	}
	b.breaker.Failed(b.limits(), principal, time.Now())
}

// isOutage reports whether a server did not respond, or with a status of a proxy or an overload.
func isOutage(e *hosterr.Error) bool {
	if status, ok := errors.AsType[*mcphttp.StatusError](e.Err); ok {
		switch status.StatusCode {
		case http.StatusRequestTimeout, http.StatusTooManyRequests:
			return true
		}
		return status.StatusCode >= http.StatusInternalServerError
	}
	return e.Code == hosterr.CodeTimeout ||
		e.Code == hosterr.CodeUnavailable && !errors.Is(e.Err, driver.ErrSessionLost)
}
