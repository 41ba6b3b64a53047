package tasks

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// sweepInterval is how often expired tasks, which cannot be read any more, are deleted.
	sweepInterval = time.Minute
	// maxDelete is how many tasks are deleted at once, since a deletion may block the store.
	maxDelete = 1000
)

var errExpired = fmt.Errorf("tasks: the task's time to live is over: %w", context.DeadlineExceeded)

func (s *Server) expire(ctx context.Context, owner, id string) (*job, error) {
	ended := false
	j, err := s.change(ctx, owner, id, func(j *job, now time.Time) error {
		if ended = !j.Done && j.expired(now); !ended {
			return errUnchanged
		}
		j.fail(now, mcp.Errorf(mcp.CodeInternalError, "the task was not finished within its time to live of %v",
			time.Duration(j.TTL)*time.Millisecond))
		return nil
	})
	if err != nil {
		return nil, clientError(err)
	}
	if ended || j.Done { // also if an earlier attempt was stored although the store returned an error
		s.stopRun(id, errExpired)
	}
	return j, nil
}

// sweep, called by a timer, fails tasks whose time to live is over and deletes expired tasks.
func (s *Server) sweep() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.active.Add(1)
	s.mu.Unlock()
	defer s.active.Done()
	now := time.Now()
	due, cleanup := s.deadlines.popDue(now)
	for _, d := range due {
		if d.discarded {
			s.discard(s.base, d.owner, d.id)
			continue
		}
		j, err := s.expire(s.base, d.owner, d.id)
		switch {
		case err == nil && !j.Done:
			s.deadlines.add(d.owner, d.id, j.Expires, false) // the clock was set back
		case err == nil, errors.Is(err, errUnknownTask):
		case errors.Is(err, errRecord):
			s.log.Error("tasks: an expired task cannot be read and is deleted", "task", short(d.id), "error", err)
			if err := s.store.Delete(s.base, d.owner, d.id); err != nil {
				s.deadlines.add(d.owner, d.id, now.Add(sweepInterval), false)
			}
		default:
			s.log.Error("tasks: an expired task could not be ended; trying again later", "task", short(d.id), "error",
				err)
			s.deadlines.add(d.owner, d.id, now.Add(sweepInterval), false)
		}
	}
	if cleanup {
		s.deleteExpired(now)
	}
}

func (s *Server) deleteExpired(now time.Time) {
	for s.base.Err() == nil {
		n, err := s.store.DeleteExpired(s.base, now, maxDelete)
		if err != nil {
			s.log.Error("tasks: expired tasks could not be deleted", "error", err)
		}
		if err != nil || n < maxDelete {
			break
		}
	}
	if n, _, err := s.store.CountAll(s.base); err != nil || n > s.deadlines.len() {
		s.deadlines.scheduleCleanup(now) // finished tasks remain
	}
}

// deadlines holds when the time to live of each unfinished task ends. A single timer serves all
// deadlines.
type deadlines struct {
	sweep func()

	mu      sync.Mutex // guards the fields below
	byID    map[string]*deadline
	heap    deadlineHeap
	cleanup time.Time // when expired tasks are deleted next; zero if no task is finished
	timer   *time.Timer
	stopped bool
}

// A deadline is the end of the time to live of a task.
type deadline struct {
	owner, id string
	at        time.Time
	discarded bool // the task is to be deleted, whatever its status
	index     int  // in the heap
}

// update sets the deadline of a job that was stored, and removes it if the job is done.
func (d *deadlines) update(j *job) {
	if !j.Done {
		d.add(j.Owner, j.ID, j.Expires, false)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.byID[j.ID]; e != nil {
		heap.Remove(&d.heap, e.index)
		delete(d.byID, j.ID)
	}
	if d.cleanup.IsZero() {
		d.cleanup = time.Now().Add(sweepInterval)
	}
	d.resetTimerLocked()
}

// add sets the deadline of a task. If discard is set, the task is deleted then.
func (d *deadlines) add(owner, id string, at time.Time, discard bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e := d.byID[id]
	if e == nil {
		e = &deadline{owner: owner, id: id, at: at}
		d.byID[id] = e
		heap.Push(&d.heap, e)
	}
	e.at = at
	e.discarded = e.discarded || discard
	heap.Fix(&d.heap, e.index)
	d.resetTimerLocked()
}

func (d *deadlines) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.heap)
}

// popDue removes and returns the deadlines that passed, and reports whether a cleanup is due.
func (d *deadlines) popDue(now time.Time) (due []*deadline, cleanup bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.heap) > 0 && !d.heap[0].at.After(now) {
		e, _ := heap.Pop(&d.heap).(*deadline)
		delete(d.byID, e.id)
		due = append(due, e)
	}
	cleanup = !d.cleanup.IsZero() && !d.cleanup.After(now)
	if cleanup {
		d.cleanup = time.Time{}
	}
	d.resetTimerLocked()
	return due, cleanup
}

func (d *deadlines) scheduleCleanup(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cleanup.IsZero() {
		d.cleanup = now.Add(sweepInterval)
	}
	d.resetTimerLocked()
}

// resetTimerLocked sets the timer to the earliest deadline or cleanup, if there is any.
func (d *deadlines) resetTimerLocked() {
	next := d.cleanup
	if len(d.heap) > 0 && (next.IsZero() || d.heap[0].at.Before(next)) {
		next = d.heap[0].at
	}
	switch {
	case d.stopped || next.IsZero():
	case d.timer == nil:
		d.timer = time.AfterFunc(time.Until(next), d.sweep)
	default:
		d.timer.Reset(time.Until(next))
	}
}

func (d *deadlines) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	if d.timer != nil {
		d.timer.Stop()
	}
}

// A deadlineHeap is a [heap.Interface] with the earliest deadline first.
type deadlineHeap []*deadline

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, k int) bool { return h[i].at.Before(h[k].at) }
func (h deadlineHeap) Swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].index, h[k].index = i, k
}

// Push appends a *deadline.
func (h *deadlineHeap) Push(x any) {
	e, _ := x.(*deadline)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop removes and returns the last element.
func (h *deadlineHeap) Pop() any {
	all := *h
	e := all[len(all)-1]
	all[len(all)-1] = nil
	*h = all[:len(all)-1]
	return e
}
