package approve

import "sync"

const (
	// maxWaiting limits the requests that wait for users, and maxWaitingPerPrincipal the requests of
	// each principal: an operator cannot decide about more in time.
	maxWaiting             = 1024
	maxWaitingPerPrincipal = 64
)

// waiting contains what all requests that wait for users share: their number, and the signal that wakes
// them. It is safe for concurrent use.
type waiting struct {
	mu       sync.Mutex // guards the fields below
	all      int
	by       map[string]int // the number of requests, by principal
	end      bool           // no request may wait any more
	answered chan struct{}  // closed with the next answer; nil before a request waits for it
}

// add counts a request of a principal. It returns false if too many requests wait.
func (w *waiting) add(principal string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all >= maxWaiting || w.by[principal] >= maxWaitingPerPrincipal {
		return false
	}
	if w.by == nil {
		w.by = map[string]int{}
	}
	w.all++
	w.by[principal]++
	return true
}

func (w *waiting) remove(principal string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all--
	if w.by[principal]--; w.by[principal] == 0 {
		delete(w.by, principal)
	}
}

// next returns a channel that is closed with the next answer, and whether waiting must end.
func (w *waiting) next() (answered <-chan struct{}, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.answered == nil {
		w.answered = make(chan struct{})
	}
	return w.answered, w.end
}

// wake makes all requests look for an answer.
func (w *waiting) wake() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wakeLocked()
}

func (w *waiting) wakeLocked() {
	if w.answered != nil {
		close(w.answered)
		w.answered = nil
	}
}

// stop ends the wait of all requests, and of later requests.
func (w *waiting) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.end = true
	w.wakeLocked()
}
