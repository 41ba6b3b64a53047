package tasks

import "container/list"

// A turns says which runs may go: so many at once, of all owners together and of each, so that nobody takes all places. Of
// those that wait, one owner after the other has a turn. It is guarded by the lock of the manager.
type turns struct {
	places, own int // that there are, and that one owner may take
	taken       int
	lines       map[string]*line // of the owners that have a run
	next        list.List        // of *line: those with somebody waiting, the one whose turn it is first
}

// A line is the runs of one owner.
type line struct {
	owner   string
	taken   int
	waiting list.List     // of *run
	turn    *list.Element // in next; nil while nobody waits
}

func (t *turns) line(owner string) *line {
	l := t.lines[owner]
	if l == nil {
		l = &line{owner: owner}
		t.lines[owner] = l
	}
	return l
}

// take takes a place for a run, if there is one for its owner.
func (t *turns) take(r *run) bool {
	if t.taken >= t.places {
		return false
	}
	l := t.line(r.owner)
	if l.taken >= t.own {
		return false
	}
	t.taken++
	l.taken++
	return true
}

// release returns a place back.
func (t *turns) release(r *run) {
	l := t.line(r.owner)
	t.taken--
	l.taken--
	t.forget(l)
}

// wait puts a run at the end of its owner's line.
func (t *turns) wait(r *run) {
	l := t.line(r.owner)
	r.place = l.waiting.PushBack(r)
	if l.turn == nil {
		l.turn = t.next.PushBack(l)
	}
}

// drop takes a run out of its line.
func (t *turns) drop(r *run) {
	if r.place == nil {
		return
	}
	l := t.line(r.owner)
	l.waiting.Remove(r.place)
	r.place = nil
	if l.waiting.Len() == 0 {
		t.next.Remove(l.turn)
		l.turn = nil
	}
	t.forget(l)
}

// call returns the run whose turn it is, with its place; nil if there is none. The lines that are passed over are those of
// owners who have all the places that they may have, which cannot be many.
func (t *turns) call() *run {
	if t.taken >= t.places {
		return nil
	}
	for e := t.next.Front(); e != nil; e = e.Next() {
		l, _ := e.Value.(*line)
		if l.taken >= t.own {
			continue
		}
		r, _ := l.waiting.Front().Value.(*run)
		t.next.MoveToBack(e)
		t.taken++
		l.taken++
		t.drop(r)
		return r
	}
	return nil
}

func (t *turns) forget(l *line) {
	if l.taken == 0 && l.waiting.Len() == 0 {
		delete(t.lines, l.owner)
	}
}
