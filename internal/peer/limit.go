package peer

import (
	"sync"
	"time"
)

// A MinuteLimit is a token bucket for what a peer may do each minute, such as questions of a server
// to the user. It is safe for concurrent use.
type MinuteLimit struct {
	mu   sync.Mutex // guards the fields below
	used float64    // tokens taken and not refilled
	last time.Time  // when used was computed
}

// Allow takes a token, and reports whether there was a token.
func (l *MinuteLimit) Allow(now time.Time, perMinute float64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = max(0, l.used-now.Sub(l.last).Minutes()*perMinute)
	l.last = now
	if l.used+1 > perMinute {
		return false
	}
	l.used++
	return true
}

// maxRecentIDs limits the ids of a peer. A user visits far fewer pages.
const maxRecentIDs = 256

// RecentIDs contains ids of which a peer may announce the end, such as those of the pages that the
// user was asked to visit. It is safe for concurrent use.
type RecentIDs struct {
	mu  sync.Mutex // guards ids
	ids map[string]struct{}
}

// Add adds an id, in place of another id if there are too many.
func (r *RecentIDs) Add(id string) {
	if id == "" {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for old := range r.ids {
		if len(r.ids) < maxRecentIDs {
			break
		}
		delete(r.ids, old)
	}
	if r.ids == nil {
		r.ids = map[string]struct{}{}
	}
	r.ids[id] = struct{}{}
}

// Remove removes an id and reports whether it was present.
func (r *RecentIDs) Remove(id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, ok := r.ids[id]
	delete(r.ids, id)
	return ok
}
