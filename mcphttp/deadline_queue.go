package mcphttp

import (
	"container/list"
	"sync"
	"time"
)

// A deadlineQueue calls expire for every item that stays in it for longer than the timeout. The
// timeout is the same for all items, so they expire in the order in which they were added, and one
// timer serves all of them. A timer for each item would cost more than most of the waits.
type deadlineQueue[T any] struct {
	timeout time.Duration
	// expire reports whether the item starts another wait. It must not block: other items wait for
	// it.
	expire func(T) (again bool)

	mu      sync.Mutex  // guards the fields below and the deadlines in the queue
	queue   list.List   // of *deadline[T]
	timer   *time.Timer // nil until the first item
	running bool        // the timer is set
}

// A deadline is one item of a deadlineQueue.
type deadline[T any] struct {
	item    T
	at      time.Time
	element *list.Element // in the queue; nil once the deadline has expired
}

func newDeadlineQueue[T any](timeout time.Duration, expire func(T) (again bool)) *deadlineQueue[T] {
	return &deadlineQueue[T]{timeout: timeout, expire: expire}
}

// add starts a wait. The caller removes the deadline when the wait is over.
func (q *deadlineQueue[T]) add(item T) *deadline[T] {
	d := &deadline[T]{item: item, at: time.Now().Add(q.timeout)}
	q.mu.Lock()
	defer q.mu.Unlock()
	d.element = q.queue.PushBack(d)
	switch {
	case q.running:
	case q.timer == nil:
		q.timer = time.AfterFunc(q.timeout, q.expireAll)
	default:
		q.timer.Reset(q.timeout)
	}
	q.running = true
	return d
}

// remove ends a wait and reports whether it has expired. Expire is not called for it after that.
func (q *deadlineQueue[T]) remove(d *deadline[T]) (expired bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if d.element == nil {
		return true
	}
	q.queue.Remove(d.element)
	return false
}

func (q *deadlineQueue[T]) expireAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for e := q.queue.Front(); e != nil; e = q.queue.Front() {
		d := e.Value.(*deadline[T])
		switch {
		case d.at.After(now):
			q.timer.Reset(d.at.Sub(now))
			return
		case q.expire(d.item):
			d.at = now.Add(q.timeout)
			q.queue.MoveToBack(e)
		default:
			q.queue.Remove(e)
			d.element = nil
		}
	}
	q.running = false
}
