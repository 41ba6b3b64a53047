package host

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A pinned is the definition that a request uses: one of several kinds.
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

// isHidden reports whether one of the lists of a server hides the definition that a request uses.
func (u pinned) isHidden(kind catalogue.Kind, list, resources *catalogue.List) bool {
	return list.Hides(u.target) ||
		kind == catalogue.Templates && !resources.Has(u.target) && list.HidesURI(u.target)
}

// pinLists are the reviewed lists of one server for one caller.
type pinLists interface {
	// verify reads lists again, unless they are the lists of the connection.
	verify(ctx context.Context, kinds ...catalogue.Kind) error
	// reviewed returns a list, and the pins that it was reviewed with.
	reviewed(kind catalogue.Kind) (*catalogue.List, *serverPins)
}

// checkPin refuses a request for a definition that is not approved.
func checkPin(ctx context.Context, l pinLists, uses pinned) error {
	if err := l.verify(ctx, uses.kinds...); err != nil {
		return err
	}
	for _, kind := range uses.kinds {
		list, pins := l.reviewed(kind)
		resources, _ := l.reviewed(catalogue.Resources)
		if uses.isHidden(kind, list, resources) {
			return pins.refusal(ctx, pin.Kind(pinrecord.Kinds[kind]), uses.target)
		}
	}
	return nil
}

// A connectionPins compares the definitions of one connection with the approved ones. A process may have
// started since the lists of its server were read, with other definitions. It is safe for concurrent use.
type connectionPins struct {
	mu      sync.Mutex // guards the fields below
	lists   [catalogue.Kinds]connectionList
	reading chan struct{} // closed with the reading in progress; nil if there is none
}

// A connectionList is a list in which definitions that are not approved are hidden.
type connectionList struct {
	list *catalogue.List // nil before the first
	read time.Time
}

// A pinSource is a connection whose lists are reviewed.
type pinSource struct {
	pins   *serverPins
	caller pinCaller
	read   func(ctx context.Context, kind catalogue.Kind) (*catalogue.List, error)
}

// clear forgets the lists of a connection that has ended.
func (o *connectionPins) clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lists = [catalogue.Kinds]connectionList{}
}

// check refuses a request for a definition that the connection does not offer in an approved form.
func (o *connectionPins) check(ctx context.Context, from pinSource, uses pinned) error {
	for _, kind := range uses.kinds {
		hidden, err := o.hides(ctx, from, kind, uses, false)
		if hidden { // or it was approved meanwhile
			hidden, err = o.hides(ctx, from, kind, uses, true)
		}
		if err != nil {
			return err
		}
		if hidden {
			return from.pins.refusal(ctx, pin.Kind(pinrecord.Kinds[kind]), uses.target)
		}
	}
	return nil
}

// hides reports whether a list of the connection hides the definition that a request uses.
func (o *connectionPins) hides(
	ctx context.Context, from pinSource, kind catalogue.Kind, uses pinned, again bool,
) (bool, error) {
	list, err := o.list(ctx, from, kind, again)
	if err != nil || kind != catalogue.Templates {
		return err == nil && uses.isHidden(kind, list, nil), err
	}
	resources, err := o.list(ctx, from, catalogue.Resources, again)
	return err == nil && uses.isHidden(kind, list, resources), err
}

// list returns a list of the connection. It is read if the last list is too old, and reviewed again if again
// is set.
func (o *connectionPins) list(
	ctx context.Context, from pinSource, kind catalogue.Kind, again bool,
) (*catalogue.List, error) {
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
			return o.review(ctx, from, kind, last, isOld)
		}
		o.mu.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// review reviews a list of the connection, and reads it before if it is old. It ends the reading in
// progress.
func (o *connectionPins) review(
	ctx context.Context, from pinSource, kind catalogue.Kind, l connectionList, isOld bool,
) (*catalogue.List, error) {
	var err error
	if isOld {
		ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, mcp.ErrTimeout)
		defer cancel()
		l.list, err = from.read(ctx, kind)
		l.read = time.Now()
	}
	if err == nil {
		l.list = from.pins.reviewList(ctx, from.caller, kind, l.list)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if err == nil {
		o.lists[kind] = l
	}
	close(o.reading)
	o.reading = nil
	return l.list, err
}
