package pins

import (
	"context"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/pinrecord"
	"github.com/patchbay-mcp/patchbay/host/pin"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxAge limits the age of a list: a server must not be trusted to announce all changes.
	maxAge = 60 * time.Second
	// listTimeout limits how long reading all pages of a list may take.
	listTimeout = 60 * time.Second
)

// A Connection compares the definitions of a connection with the approved definitions. A process
// may have started since the lists of its server were read, with other definitions. It is safe for
// concurrent use.
type Connection struct {
	mu      sync.Mutex // guards the fields below
	lists   [catalogue.Kinds]connectionList
	reading chan struct{} // closed with the reading in progress; nil without a reading
}

// A connectionList is a list in which definitions that are not approved are hidden.
type connectionList struct {
	list *catalogue.List // nil before the first
	read time.Time
}

// A Source reads the lists of a connection.
type Source interface {
	ReadList(ctx context.Context, kind catalogue.Kind) (*catalogue.List, error)
}

// A Reviewer reviews the lists of a connection for a caller.
type Reviewer struct {
	Server *Server
	Caller Caller
	Source Source
}

// Clear forgets the lists of a connection that ended.
func (o *Connection) Clear() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lists = [catalogue.Kinds]connectionList{}
}

// Check refuses a request for a definition that the connection does not offer in an approved form.
func (o *Connection) Check(ctx context.Context, from *Reviewer, t Target) error {
	for _, kind := range t.Kinds {
		hidden, err := o.hides(ctx, from, kind, t, false)
		if hidden { // or it was approved meanwhile
			hidden, err = o.hides(ctx, from, kind, t, true)
		}
		if err != nil {
			return err
		}
		if hidden {
			return from.Server.Refusal(ctx, pin.Kind(pinrecord.Kinds[kind]), t.Name)
		}
	}
	return nil
}

// hides reports whether a list of the connection hides the definition that a request uses.
func (o *Connection) hides(
	ctx context.Context, from *Reviewer, kind catalogue.Kind, t Target, again bool,
) (bool, error) {
	list, err := o.list(ctx, from, kind, again)
	if err != nil || kind != catalogue.Templates {
		return err == nil && t.isHidden(kind, list, nil), err
	}
	resources, err := o.list(ctx, from, catalogue.Resources, again)
	return err == nil && t.isHidden(kind, list, resources), err
}

// list returns a list of the connection. It is read if the last list is too old, and reviewed again if again
// is set.
func (o *Connection) list(
	ctx context.Context, from *Reviewer, kind catalogue.Kind, again bool,
) (*catalogue.List, error) {
	for {
		o.mu.Lock()
		last, reading := o.lists[kind], o.reading
		isOld := last.list == nil || time.Since(last.read) >= maxAge
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
func (o *Connection) review(
	ctx context.Context, from *Reviewer, kind catalogue.Kind, l connectionList, isOld bool,
) (*catalogue.List, error) {
	var err error
	if isOld {
		ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, mcp.ErrTimeout)
		defer cancel()
		l.list, err = from.Source.ReadList(ctx, kind)
		l.read = time.Now()
	}
	if err == nil {
		l.list = from.Server.Review(ctx, from.Caller, kind, l.list)
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
