package mcphttp

import (
	"net/http"
	"sync"
)

// A quota bounds how many of something there are at a time, in all and for each principal. Anonymous callers cannot be
// told apart, so for them only the bound on all counts.
type quota struct {
	what  string // in the plural, for the client
	total int
	each  int

	mu          sync.Mutex // guards the fields below
	taken       int
	byPrincipal map[string]int
}

func newQuota(what string, total, each int) *quota {
	return &quota{what: what, total: total, each: each, byPrincipal: make(map[string]int)}
}

// take takes one for a principal, by its key, or says why there is none.
func (q *quota) take(principal string) *refusal {
	q.mu.Lock()
	defer q.mu.Unlock()
	if principal != "" && q.byPrincipal[principal] >= q.each {
		return refuseBusy(http.StatusTooManyRequests, "too many "+q.what+" of one caller")
	}
	if q.taken >= q.total {
		return refuseBusy(http.StatusServiceUnavailable, "too many "+q.what)
	}
	q.taken++
	if principal != "" {
		q.byPrincipal[principal]++
	}
	return nil
}

// give returns back what take took.
func (q *quota) give(principal string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.taken--
	if principal == "" {
		return
	}
	if q.byPrincipal[principal]--; q.byPrincipal[principal] == 0 {
		delete(q.byPrincipal, principal)
	}
}
