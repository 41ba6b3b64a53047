package host

import (
	"errors"
	"net/http"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/limit"
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

// countFailure counts a request without a valid response in the breaker of its instance.
func (s *conn) countFailure(e *Error, principal string) {
	u := s.in.pool.up
	u.mu.Lock()
	defer u.mu.Unlock()
	switch {
	case !isOutage(e):
		s.in.breaker.Succeeded() // the server has responded
		return
	case e.Code != CodeTimeout || u.poolKey(s.in.pool.caller) != "" || principal == localPrincipal:
		principal = ""
	}
	s.in.breaker.Failed(limit.BreakerLimits(u.entry().settings.Breaker), principal, time.Now())
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
	wait := i.breaker.Refuses(limit.BreakerLimits(s), time.Now())
	if wait == 0 {
		return nil
	}
	return u.refusal(CodeUnavailable, "breaker", wait,
		"the last %d requests had no response (breaker of %d failures, open for %v): the server is tried again in %v",
		i.breaker.Failures(), s.Failures, s.Open, rounded(wait))
}
