package host

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A pinned is what a request uses: a definition of one of several kinds.
type pinned struct {
	kinds  []catalogue.Kind
	target string // name or URI at the server
}

// pinnedKinds are the kinds of definitions that requests use.
var pinnedKinds = map[ActionKind][]catalogue.Kind{
	ActionCall:     {catalogue.Tools},
	ActionGet:      {catalogue.Prompts},
	ActionRead:     {catalogue.Resources, catalogue.Templates},
	ActionComplete: {catalogue.Prompts, catalogue.Resources, catalogue.Templates},
}

// uses returns what a request uses.
func (r *route) uses() pinned { return pinned{pinnedKinds[r.kind], r.target} }

// isHidden reports whether one of the lists of a server hides what a request uses.
func (u pinned) isHidden(kind catalogue.Kind, list, resources *catalogue.List) bool {
	return list.Hides(u.target) ||
		kind == catalogue.Templates && !resources.Has(u.target) && list.HidesURI(u.target)
}

// checkPin refuses a request for a definition that is not approved.
func (v *View) checkPin(ctx context.Context, r *route) error {
	p := r.pool
	if p.pinned() == nil {
		return nil
	}
	uses := r.uses()
	if err := p.verify(ctx, uses.kinds...); err != nil {
		return err
	}
	for _, kind := range uses.kinds {
		p.mu.Lock()
		list, resources, pins := p.lists[kind].list, p.lists[catalogue.Resources].list, p.lists[kind].pins
		p.mu.Unlock()
		if uses.isHidden(kind, list, resources) {
			return pins.refusal(ctx, pinKinds[kind], r.target)
		}
	}
	return nil
}

// ownLists are lists of one connection, which is not the one whose lists the pool has.
type ownLists struct {
	mu      sync.Mutex // guards the fields below
	lists   [catalogue.Kinds]ownList
	reading chan struct{} // closed with the reading in progress; nil if there is none
}

// An ownList is a list with what is not approved hidden.
type ownList struct {
	list *catalogue.List // nil before the first
	read time.Time
}

// checkPins refuses a request for a definition that the connection does not offer in an approved form.
// [View.checkPin] has checked that of the pool. A process may have started since, with definitions of its
// own, and a pool may have several.
func (s *start) checkPins(ctx context.Context, uses pinned) error {
	if s.pins == nil {
		return nil
	}
	p := s.in.pool
	for _, kind := range uses.kinds {
		p.mu.Lock()
		checked := p.lists[kind].from == s
		p.mu.Unlock()
		if checked {
			continue
		}
		hidden, err := s.hides(ctx, kind, uses, false)
		if hidden { // or it was approved meanwhile
			hidden, err = s.hides(ctx, kind, uses, true)
		}
		if err != nil {
			return unsent(p.up.requestError(ctx, err))
		}
		if hidden {
			return s.pins.refusal(ctx, pinKinds[kind], uses.target)
		}
	}
	return nil
}

// hides reports whether a list of the connection hides what a request uses.
func (s *start) hides(ctx context.Context, kind catalogue.Kind, uses pinned, again bool) (bool, error) {
	list, err := s.ownList(ctx, kind, again)
	if err != nil || kind != catalogue.Templates {
		return err == nil && uses.isHidden(kind, list, nil), err
	}
	resources, err := s.ownList(ctx, catalogue.Resources, again)
	return err == nil && uses.isHidden(kind, list, resources), err
}

// ownList returns a list of the connection. It is read if the last one is as old as a list may be, and
// reviewed again if again is set.
func (s *start) ownList(ctx context.Context, kind catalogue.Kind, again bool) (*catalogue.List, error) {
	o := &s.own
	for {
		o.mu.Lock()
		last, reading := o.lists[kind], o.reading
		isOld := last.list == nil || time.Since(last.read) >= listAge
		if !isOld && !again {
			o.mu.Unlock()
			return last.list, nil
		}
		if reading == nil {
			o.reading = make(chan struct{})
			o.mu.Unlock()
			return s.reviewOwn(ctx, kind, last, isOld)
		}
		o.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// reviewOwn reviews a list of the connection, and reads it before if it is old. It ends the reading in
// progress.
func (s *start) reviewOwn(ctx context.Context, kind catalogue.Kind, own ownList, isOld bool) (*catalogue.List, error) {
	o, p := &s.own, s.in.pool
	var err error
	if isOld {
		ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, mcp.ErrTimeout)
		defer cancel()
		var r listReading
		r, err = p.readFrom(ctx, s, kind)
		own = ownList{r.list, time.Now()}
	}
	if err == nil {
		p.reviewing.Lock()
		own.list = p.review(ctx, s.pins, kind, own.list)
		p.reviewing.Unlock()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.lists[kind] = own
	}
	close(o.reading)
	o.reading = nil
	return own.list, err
}
