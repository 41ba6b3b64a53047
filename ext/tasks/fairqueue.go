package tasks

import "container/list"

// A fairQueue limits how many runs execute at the same time, in all and for each owner, and queues
// the others. The owners take turns, so that no owner delays the others. The server's mutex guards
// it.
type fairQueue struct {
	max, maxPerOwner int // runs that may execute
	running          int
	owners           map[string]*ownerQueue // the owners with a run that executes or is queued
	waiting          list.List              // of *ownerQueue, the owners with queued runs; the next owner is first
}

// An ownerQueue holds the queued runs of an owner.
type ownerQueue struct {
	owner   string
	running int
	runs    list.List     // of *run
	element *list.Element // in fairQueue.waiting; nil if runs is empty
}

func (q *fairQueue) owner(name string) *ownerQueue {
	o := q.owners[name]
	if o == nil {
		o = &ownerQueue{owner: name}
		q.owners[name] = o
	}
	return o
}

func (q *fairQueue) tryAcquire(r *run) bool {
	if q.running >= q.max {
		return false
	}
	o := q.owner(r.owner)
	if o.running >= q.maxPerOwner {
		return false
	}
	q.running++
	o.running++
	return true
}

// release ends what tryAcquire or pop began.
func (q *fairQueue) release(r *run) {
	o := q.owner(r.owner)
	q.running--
	o.running--
	q.removeIfIdle(o)
}

func (q *fairQueue) push(r *run) {
	o := q.owner(r.owner)
	r.queued = o.runs.PushBack(r)
	if o.element == nil {
		o.element = q.waiting.PushBack(o)
	}
}

func (q *fairQueue) remove(r *run) {
	if r.queued == nil {
		return
	}
	o := q.owner(r.owner)
	o.runs.Remove(r.queued)
	r.queued = nil
	if o.runs.Len() == 0 {
		q.waiting.Remove(o.element)
		o.element = nil
	}
	q.removeIfIdle(o)
}

// pop removes the next run from the queue and counts it as running. It returns nil if the limits
// allow no run. It skips owners that are at their limit, which are few, since each of them has
// maxPerOwner runs.
func (q *fairQueue) pop() *run {
	if q.running >= q.max {
		return nil
	}
	for e := q.waiting.Front(); e != nil; e = e.Next() {
		o, _ := e.Value.(*ownerQueue)
		if o.running >= q.maxPerOwner {
			continue
		}
		r, _ := o.runs.Front().Value.(*run)
		q.waiting.MoveToBack(e)
		q.running++
		o.running++
		q.remove(r)
		return r
	}
	return nil
}

func (q *fairQueue) removeIfIdle(o *ownerQueue) {
	if o.running == 0 && o.runs.Len() == 0 {
		delete(q.owners, o.owner)
	}
}
