package legacy

import (
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A levelCounts counts the log levels of the requests in progress. A session uses a single level,
// and its requests may belong to several callers: the level is the lowest that any of them asked
// for, so that a request does not take log messages from another. It is safe for concurrent use.
type levelCounts struct {
	mu     sync.Mutex // guards counts
	counts [8]int     // by wire.LogSeverity
}

// add adds n requests with a level; n is negative when a request ended.
func (l *levelCounts) add(level string, n int) {
	rank, _ := wire.LogSeverity(level) // valid: the envelope was opened
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts[rank] += n
}

// lowest returns the lowest level of a request in progress, of which there must be at least one.
func (l *levelCounts) lowest() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	rank := slices.IndexFunc(l.counts[:], func(n int) bool { return n > 0 })
	return wire.LogLevel(rank)
}
