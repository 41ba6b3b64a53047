package mcphttp

import (
	"sync"
	"time"
)

// A watch looks after those who wait for a client, and sees to it that none of them waits for too long. All of them have
// the same time, so they end in the order in which they began, and one timer serves them all. A deadline on each
// connection would be a timer for each, which costs more than most clients take.
type watch[W any] struct {
	patience time.Duration
	late     func(W) (again bool) // ends a wait, or has it begin again; must not block, for the others wait behind it

	spare sync.Pool // of *waiting[W]

	mu             sync.Mutex // guards the fields below and all that waits
	oldest, newest *waiting[W]
	timer          *time.Timer // nil until there was someone to look after
	runs           bool
}

// A waiting is one who waits.
type waiting[W any] struct {
	who          W
	until        time.Time
	isLate       bool
	older, newer *waiting[W]
}

func newWatch[W any](patience time.Duration, late func(W) (again bool)) *watch[W] {
	w := &watch[W]{patience: patience, late: late}
	w.spare.New = func() any { return new(waiting[W]) }
	return w
}

// start begins to look after who. The caller stops it when the wait is over.
func (w *watch[W]) start(who W) *waiting[W] {
	e := w.spare.Get().(*waiting[W])
	e.who, e.until = who, time.Now().Add(w.patience)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.append(e)
	switch {
	case w.runs:
	case w.timer == nil:
		w.timer = time.AfterFunc(w.patience, w.look)
	default:
		w.timer.Reset(w.patience)
	}
	w.runs = true
	return e
}

// stop ends a wait and reports whether it was too long. Nothing is done about it from now on.
func (w *watch[W]) stop(e *waiting[W]) (wasLate bool) {
	w.mu.Lock()
	if wasLate = e.isLate; !wasLate {
		w.remove(e)
	}
	w.mu.Unlock()
	*e = waiting[W]{}
	w.spare.Put(e)
	return wasLate
}

// look sees to those whose time is over.
func (w *watch[W]) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for w.oldest != nil && !w.oldest.until.After(now) {
		e := w.oldest
		w.remove(e)
		if w.late(e.who) {
			e.until = now.Add(w.patience)
			w.append(e)
		} else {
			e.isLate = true
		}
	}
	if w.runs = w.oldest != nil; w.runs {
		w.timer.Reset(w.oldest.until.Sub(now))
	}
}

// append puts e behind all others. The caller holds w.mu.
func (w *watch[W]) append(e *waiting[W]) {
	if e.older = w.newest; e.older != nil {
		e.older.newer = e
	} else {
		w.oldest = e
	}
	w.newest = e
}

// remove takes e out from among the others. The caller holds w.mu.
func (w *watch[W]) remove(e *waiting[W]) {
	if e.older != nil {
		e.older.newer = e.newer
	} else {
		w.oldest = e.newer
	}
	if e.newer != nil {
		e.newer.older = e.older
	} else {
		w.newest = e.older
	}
	e.older, e.newer = nil, nil
}
