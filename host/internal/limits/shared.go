package limits

import (
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/state"
)

const (
	// processTTL is how long a process that was killed counts: longer than a process or its store pauses,
	// shorter than users wait for its share.
	processTTL = 10 * time.Second
	// renewEvery is how often a process reports that it runs, and learns how many processes do.
	renewEvery = processTTL / 4
)

// A share is the part of limits that a process applies alone.
type share struct{ place, processes int }

// of returns the part of a limit. The parts of all processes add up to the limit, unless there are more
// processes: each part is at least 1.
func (s share) of(limit int64) int64 {
	part := limit / int64(s.processes)
	if int64(s.place) < limit%int64(s.processes) {
		part++
	}
	return max(part, 1)
}

// shared counts limits together with other processes. It is safe for concurrent use.
type shared struct {
	store   state.LimitStore // nil for a process that counts alone, whose share is everything
	process string           // a random name
	share   atomic.Pointer[share]
	failed  atomic.Bool // the store did not answer the last Join
}

// own returns the share of the process.
func (s *shared) own() share { return *s.share.Load() }
