package observe

import (
	"slices"
	"sync"
	"time"
)

const (
	// recentTime is how long a message counts for [policy.Action.Recent]: longer than most tasks of an agent.
	recentTime = 30 * time.Minute
	// maxRecent limits the callers whose servers are recorded.
	maxRecent = 10_000
)

// Recent holds the servers whose messages callers recently received. It is safe for concurrent use.
type Recent struct {
	mu      sync.Mutex // guards callers
	callers map[string]map[string]time.Time
}

// Add records that a caller receives a message from a server.
func (r *Recent) Add(caller, server string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	servers := r.callers[caller]
	if servers == nil {
		if r.callers == nil {
			r.callers = map[string]map[string]time.Time{}
		}
		if len(r.callers) >= maxRecent {
			r.evictLocked(now)
		}
		servers = map[string]time.Time{}
		r.callers[caller] = servers
	}
	servers[server] = now
}

// evictLocked removes callers without recent messages. If every caller received recent messages, it
// removes the caller whose last message is the oldest.
func (r *Recent) evictLocked(now time.Time) {
	oldest, when := "", now
	for caller, servers := range r.callers {
		var last time.Time
		for _, t := range servers {
			if t.After(last) {
				last = t
			}
		}
		if now.Sub(last) > recentTime {
			delete(r.callers, caller)
		} else if !last.After(when) {
			oldest, when = caller, last
		}
	}
	if len(r.callers) >= maxRecent {
		delete(r.callers, oldest)
	}
}

// Servers returns the names of the servers of a caller in order.
func (r *Recent) Servers(caller string) (names []string) {
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for server, t := range r.callers[caller] {
		if now.Sub(t) <= recentTime {
			names = append(names, server)
		}
	}
	slices.Sort(names)
	return names
}
