package mcphttp

import (
	"net/http"
	"sync"
)

// A quota limits the number of sessions or subscriptions, in total and for each principal.
// Anonymous callers cannot be distinguished, so only the total limits them.
type quota struct {
	what         string // in the plural, for error messages
	total        int
	perPrincipal int

	mu          sync.Mutex // guards the fields below
	taken       int
	byPrincipal map[string]int
}

func newQuota(what string, total, perPrincipal int) *quota {
	return &quota{what: what, total: total, perPrincipal: perPrincipal, byPrincipal: make(map[string]int)}
}

// acquire reserves one for a principal, by its key. It returns a refusal if a limit is reached.
func (q *quota) acquire(principal string) *refusal {
	q.mu.Lock()
	defer q.mu.Unlock()
	if principal != "" && q.byPrincipal[principal] >= q.perPrincipal {
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

func (q *quota) release(principal string) {
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
