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
	// sweepEvery is how often finished tasks that have expired are deleted; they cannot be read from when they expire.
	sweepEvery = time.Minute
	// maxDelete is how many are deleted at a time: a store may be held up by it.
	maxDelete = 1000
)

// errExpired is the cause of the context of a run whose task's time is over.
var errExpired = fmt.Errorf("tasks: the task's time to live is over: %w", context.DeadlineExceeded)

// expire ends a task whose time is over, if it is.
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
		return nil, public(err)
	}
	if ended || j.Done { // an earlier attempt may have been stored without saying so
		s.stop(id, errExpired)
	}
	return j, nil
}

// sweep fails the tasks whose time is over, and deletes those that nobody may read any more. It is called by the timer.
func (s *Server) sweep() {
	if !s.enter() {
		return
	}
	defer s.leave()
	now := time.Now()
	due, clean := s.deadlines.take(now)
	for _, d := range due {
		if d.abandoned {
			s.abandon(s.base, d.owner, d.id)
			continue
		}
		j, err := s.expire(s.base, d.owner, d.id)
		switch {
		case err == nil && !j.Done:
			s.deadlines.add(d.owner, d.id, j.Expires) // a clock was set back
		case err == nil, errors.Is(err, errUnknownTask):
		case errors.Is(err, errRecord):
			s.log.Error("tasks: a task that cannot be read has expired, and is deleted", "task", short(d.id), "error", err)
			if err := s.store.Delete(s.base, d.owner, d.id); err != nil {
				s.deadlines.add(d.owner, d.id, now.Add(sweepEvery))
			}
		default:
			s.log.Error("tasks: a task could not be ended in time, and will be", "task", short(d.id), "error", err)
			s.deadlines.add(d.owner, d.id, now.Add(sweepEvery))
		}
	}
	if clean {
		s.clean(now)
	}
	s.deadlines.arm()
}

// clean deletes what has expired.
func (s *Server) clean(now time.Time) {
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
		s.deadlines.cleanLater(now)
	}
}

// deadlines knows when the time of each unfinished task is over. There is one timer for all of them.
type deadlines struct {
	sweep func()

	mu      sync.Mutex // guards the fields below
	byID    map[string]*deadline
	heap    deadlineHeap
	clean   time.Time // when finished tasks are to be deleted; zero if there are none
	timer   *time.Timer
	stopped bool
}

// A deadline is the end of the time of one task.
type deadline struct {
	owner, id string
	at        time.Time
	abandoned bool // it is to be deleted, in whatever state it is
	index     int  // in the heap
}

// set takes up the deadline of a job that was written.
func (d *deadlines) set(j *job) {
	if !j.Done {
		d.add(j.Owner, j.ID, j.Expires)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.byID[j.ID]; e != nil {
		heap.Remove(&d.heap, e.index)
		delete(d.byID, j.ID)
	}
	if d.clean.IsZero() {
		d.clean = time.Now().Add(sweepEvery)
	}
	d.armLocked()
}

func (d *deadlines) add(owner, id string, at time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.byID == nil {
		d.byID = map[string]*deadline{}
	}
	if e := d.byID[id]; e != nil {
		if e.at.Equal(at) {
			return
		}
		e.at = at
		heap.Fix(&d.heap, e.index)
	} else {
		e = &deadline{owner: owner, id: id, at: at}
		d.byID[id] = e
		heap.Push(&d.heap, e)
	}
	d.armLocked()
}

// abandon has a task deleted later.
func (d *deadlines) abandon(owner, id string, at time.Time) {
	d.add(owner, id, at)
	d.mu.Lock()
	defer d.mu.Unlock()
	if e := d.byID[id]; e != nil {
		e.abandoned = true
	}
}

func (d *deadlines) len() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.heap)
}

// take returns those whose time is over, and whether it is time to delete.
func (d *deadlines) take(now time.Time) (due []*deadline, clean bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for len(d.heap) > 0 && !d.heap[0].at.After(now) {
		e, _ := heap.Pop(&d.heap).(*deadline)
		delete(d.byID, e.id)
		due = append(due, e)
	}
	clean = !d.clean.IsZero() && !d.clean.After(now)
	if clean {
		d.clean = time.Time{}
	}
	return due, clean
}

func (d *deadlines) cleanLater(now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.clean.IsZero() {
		d.clean = now.Add(sweepEvery)
	}
	d.armLocked()
}

func (d *deadlines) arm() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.armLocked()
}

// armLocked sets the timer to what comes first. Nothing is set while there is nothing to come.
func (d *deadlines) armLocked() {
	next := d.clean
	if len(d.heap) > 0 && (next.IsZero() || d.heap[0].at.Before(next)) {
		next = d.heap[0].at
	}
	if d.stopped || next.IsZero() {
		return
	}
	if d.timer == nil {
		d.timer = time.AfterFunc(time.Until(next), d.sweep)
		return
	}
	d.timer.Reset(time.Until(next))
}

func (d *deadlines) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = true
	if d.timer != nil {
		d.timer.Stop()
	}
}

// deadlineHeap is a heap whose first element comes first.
type deadlineHeap []*deadline

func (h deadlineHeap) Len() int           { return len(h) }
func (h deadlineHeap) Less(i, k int) bool { return h[i].at.Before(h[k].at) }
func (h deadlineHeap) Swap(i, k int) {
	h[i], h[k] = h[k], h[i]
	h[i].index, h[k].index = i, k
}

// Push adds an *deadline at the end.
func (h *deadlineHeap) Push(x any) {
	e, _ := x.(*deadline)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop takes the last one away.
func (h *deadlineHeap) Pop() any {
	all := *h
	e := all[len(all)-1]
	all[len(all)-1] = nil
	*h = all[:len(all)-1]
	return e
}
