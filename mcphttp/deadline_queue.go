package mcphttp

import (
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
	expire func(*T) (again bool)

	pool sync.Pool // of *deadline[T]

	mu          sync.Mutex // guards the fields below and the deadlines in the queue
	first, last *deadline[T]
	timer       *time.Timer // nil until the first item
	running     bool        // the timer is set
}

// A deadline is an item of a deadlineQueue.
type deadline[T any] struct {
	item       T
	at         time.Time
	expired    bool
	prev, next *deadline[T]
}

func newDeadlineQueue[T any](timeout time.Duration, expire func(*T) (again bool)) *deadlineQueue[T] {
	q := &deadlineQueue[T]{timeout: timeout, expire: expire}
	q.pool.New = func() any { return new(deadline[T]) }
	return q
}

// add starts a wait now. The caller removes the deadline when the wait is over.
func (q *deadlineQueue[T]) add(item T, now time.Time) *deadline[T] {
	d := q.pool.Get().(*deadline[T])
	d.item, d.at = item, now.Add(q.timeout)
	q.mu.Lock()
	defer q.mu.Unlock()
	q.push(d)
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

// remove ends a wait and reports whether it expired. Expire is not called for it after that.
func (q *deadlineQueue[T]) remove(d *deadline[T]) (expired bool) {
	q.mu.Lock()
	if expired = d.expired; !expired {
		q.unlink(d)
	}
	q.mu.Unlock()
	*d = deadline[T]{}
	q.pool.Put(d)
	return expired
}

func (q *deadlineQueue[T]) expireAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := time.Now()
	for q.first != nil && !q.first.at.After(now) {
		d := q.first
		q.unlink(d)
		if q.expire(&d.item) {
			d.at = now.Add(q.timeout)
			q.push(d)
		} else {
			d.expired = true
		}
	}
	if q.running = q.first != nil; q.running {
		q.timer.Reset(q.first.at.Sub(now))
	}
}

// push appends d to the queue. The caller holds q.mu.
func (q *deadlineQueue[T]) push(d *deadline[T]) {
	if d.prev = q.last; d.prev != nil {
		d.prev.next = d
	} else {
		q.first = d
	}
	q.last = d
}

// unlink removes d from the queue. The caller holds q.mu.
func (q *deadlineQueue[T]) unlink(d *deadline[T]) {
	if d.prev != nil {
		d.prev.next = d.next
	} else {
		q.first = d.next
	}
	if d.next != nil {
		d.next.prev = d.prev
	} else {
		q.last = d.prev
	}
	d.prev, d.next = nil, nil
}
