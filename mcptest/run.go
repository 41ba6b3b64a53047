package mcptest

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Transports that a test body runs over.
const (
	InMemory = "in-memory" // mcp.Pipe
	Stdio    = "stdio"     // lines of JSON over byte pipes
	HTTP     = "http"      // Streamable HTTP; HTTP+SSE for 2024-11-05
)

// Modern is the first revision without sessions.
const Modern = "2026-07-28"

// Transports returns the transports that a test body runs over.
func Transports() []string { return []string{InMemory, Stdio, HTTP} }

// Revisions returns the revisions of the protocol, oldest first.
func Revisions() []string {
	return []string{"2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", Modern}
}

// A Combination is one transport and one revision.
type Combination struct {
	Transport string
	Revision  string
}

// String returns the combination as the name of a subtest.
func (on Combination) String() string { return on.Transport + "/" + on.Revision }

// Modern reports whether the revision has no sessions.
func (on Combination) Modern() bool { return on.Revision >= Modern }

// Since reports whether the revision is the given one or newer.
func (on Combination) Since(revision string) bool { return on.Revision >= revision }

// Combinations returns all transports with all revisions.
func Combinations() []Combination { return combine(Revisions()) }

// Since returns all transports with the given revision and newer ones.
func Since(revision string) []Combination {
	return combine(slices.DeleteFunc(Revisions(), func(r string) bool { return r < revision }))
}

// Before returns all transports with the revisions older than the given one.
func Before(revision string) []Combination {
	return combine(slices.DeleteFunc(Revisions(), func(r string) bool { return r >= revision }))
}

func combine(revisions []string) (all []Combination) {
	for _, transport := range Transports() {
		for _, revision := range revisions {
			all = append(all, Combination{transport, revision})
		}
	}
	return all
}

// Run runs body as a subtest for every transport and revision, each with its own client. The
// handler is shared by all.
func Run(t *testing.T, h mcp.Handler, body func(t *testing.T, c *Client)) {
	t.Helper()
	RunOn(t, h, Combinations(), nil, body)
}

// RunOn is [Run] for some combinations, with options for the clients, which may be nil.
func RunOn(t *testing.T, h mcp.Handler, on []Combination, opts *Options, body func(t *testing.T, c *Client)) {
	t.Helper()
	for _, combination := range on {
		t.Run(combination.String(), func(t *testing.T) {
			if opts != nil && opts.RealTime {
				NoLeaks(t)
				body(t, Connect(t, h, combination, opts))
				return
			}
			synctest.Test(t, func(t *testing.T) {
				t.Cleanup(drainTimers)
				c := connect(t, h, combination, opts)
				c.bubble = true
				body(t, c)
			})
		})
	}
}

// drainTimers waits until pending timers of the handler have fired in the bubble: the handler is
// used in the next one.
func drainTimers() { time.Sleep(time.Minute) }
