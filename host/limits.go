package host

import (
	"time"

	"github.com/patchbay-mcp/patchbay/host/config"
)

// A BreakerState tells whether requests are sent to a server.
type BreakerState string

// States of a breaker.
const (
	BreakerClosed   BreakerState = "closed"    // all requests are sent
	BreakerOpen     BreakerState = "open"      // requests are refused
	BreakerHalfOpen BreakerState = "half-open" // one request at a time tries the server
)

// A LimitStatus contains the figures of the limits of a server at one time. See [config.ServerSettings] and
// [config.CallerLimits].
type LimitStatus struct {
	// Running is the number of requests at the server, and Queued the number of requests that wait for
	// their turn. Requests that wait for an answer of their caller do not count.
	Running, Queued int
	// Concurrency and Queue are the configured limits of Running and Queued: of each process if the server
	// is a command that is not shared.
	Concurrency, Queue int
	// Instances is the limit of processes or connections of the server.
	Instances int
	// Breaker is the state of the breaker that refuses most, and RetryAfter the time until it tries the
	// server again.
	Breaker    BreakerState
	RetryAfter time.Duration
	// Refused counts the requests that each setting has refused since the server was configured, such as
	// "concurrency" or "limits.perCaller".
	Refused map[string]uint64
}

// callerLimits returns the limits of callers that are in force.
func (h *Host) callerLimits() *config.CallerLimits { return &h.servers.Current().Settings().Limits }
