package legacy

import (
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A levelCounts counts the log levels of the requests in progress. A session uses a single level,
// and its requests may belong to several callers: the level is the lowest that any of them asked
// for, so that a request does not take log messages from another. It is safe for concurrent use.
type levelCounts struct {
	mu     sync.Mutex // guards counts
	counts map[string]int
}

// add adds the level of a request. remove is called when the request ended.
func (l *levelCounts) add(level string) (remove func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = map[string]int{}
	}
	l.counts[level]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.counts[level]--; l.counts[level] == 0 {
			delete(l.counts, level)
		}
	}
}

// lowest returns the lowest level of a request in progress, of which there must be at least one.
func (l *levelCounts) lowest() (lowest string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	least := 0
	for level := range l.counts {
		if rank, _ := wire.LogSeverity(level); lowest == "" || rank < least {
			lowest, least = level, rank
		}
	}
	return lowest
}
