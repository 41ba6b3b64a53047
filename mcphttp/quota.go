package mcphttp

import (
	"net/http"
	"sync"
)

// A quota limits the sessions or bytes that callers hold at a time: in total, for each
// caller, and for all anonymous callers together, which get at most half. The other half is
// reserved for principals, so that anonymous callers cannot take it.
type quota struct {
	what      string // in the plural, for error messages
	total     int64
	perCaller int64

	mu        sync.Mutex // guards the fields below
	taken     int64
	anonymous int64
	byCaller  map[caller]int64
}

func newQuota(what string, total, perCaller int64) *quota {
	return &quota{what: what, total: total, perCaller: perCaller, byCaller: make(map[caller]int64)}
}

// anonymousShare is the part of a limit that all anonymous callers together can take.
func anonymousShare(total int64) int64 { return (total + 1) / 2 }

// acquire reserves n for a caller. It returns a refusal if a limit would be exceeded.
func (q *quota) acquire(c caller, n int64) *refusal {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case c.key != "" && q.byCaller[c]+n > q.perCaller:
		return refuseBusy(http.StatusTooManyRequests, "too many "+q.what+" of one caller")
	case c.isAnonymous && q.anonymous+n > anonymousShare(q.total):
		return refuseBusy(http.StatusServiceUnavailable, "too many "+q.what+" of anonymous callers")
	case q.taken+n > q.total:
		return refuseBusy(http.StatusServiceUnavailable, "too many "+q.what)
	}
	q.add(c, n)
	return nil
}

func (q *quota) release(c caller, n int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.add(c, -n)
}

// add adds n to the sums of a caller. The caller of add holds q.mu.
func (q *quota) add(c caller, n int64) {
	q.taken += n
	if c.isAnonymous {
		q.anonymous += n
	}
	if c.key == "" {
		return
	}
	if q.byCaller[c] += n; q.byCaller[c] == 0 {
		delete(q.byCaller, c)
	}
}
