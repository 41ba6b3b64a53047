package events

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// An entry is a registered event type.
type entry struct {
	server   *Server
	event    Event // Delivery is nil for all modes; guarded by Server.mu
	input    *jsonschema.Schema
	payload  *jsonschema.Schema
	interval time.Duration
	checks   bool // the source has a Check
	bind     func(args json.RawMessage) (reader, error)

	mu       sync.Mutex // guards the fields below; locked after Server.mu
	version  int64      // counts the changes of the source
	watchers map[chan struct{}]struct{}
	reason   *mcp.Error // why the event type was removed; nil before
}

func newEntry(s *Server, e *Event, args, payload reflect.Type) (*entry, error) {
	n := &entry{server: s, event: *e, watchers: map[chan struct{}]struct{}{}}
	if err := checkName(e.Name); err != nil {
		return nil, err
	}
	if err := checkModes(e.Delivery); err != nil {
		return nil, err
	}
	var err error
	if n.input, err = schemaOf(e.InputSchema, args); err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	if n.payload, err = schemaOf(e.PayloadSchema, payload); err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	n.event.InputSchema, n.event.PayloadSchema = n.input.JSON(), n.payload.JSON()
	n.event.Delivery = slices.Clone(e.Delivery)
	n.event.Meta = maps.Clone(e.Meta)
	return n, nil
}

func checkModes(modes []Mode) error {
	for _, m := range modes {
		if m != ModePoll && m != ModePush && m != ModeWebhook {
			return fmt.Errorf("Delivery contains %q, want %q, %q or %q", m, ModePoll, ModePush, ModeWebhook)
		}
	}
	return nil
}

// endedBecause returns the reason why the event type was removed, or nil.
func (n *entry) endedBecause() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.reason == nil {
		return nil
	}
	return n.reason
}

// notify wakes the watchers: the source changed or, with a reason, the event type was removed.
func (n *entry) notify(reason *mcp.Error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.version++
	n.reason = cmp.Or(n.reason, reason)
	for ch := range n.watchers {
		wake(ch)
	}
}

// watch returns a channel that receives after each change since the version, until stop is called.
func (n *entry) watch(version int64) (changed <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.watchers[ch] = struct{}{}
	if version != n.version {
		wake(ch)
	}
	return ch, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		delete(n.watchers, ch)
	}
}

// current returns the version of the source, for watch.
func (n *entry) current() int64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.version
}

// wake puts a token into a channel of one element.
func wake(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// register adds an event type.
func (s *Server) register(n *entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[n.event.Name] != nil {
		return fmt.Errorf("event %q exists already", n.event.Name)
	}
	s.entries[n.event.Name] = n
	s.listChanged()
	return nil
}

func (s *Server) update(n *entry, change func(*Event)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := n.event
	change(&e)
	if err := checkModes(e.Delivery); err != nil {
		return fmt.Errorf("events: update %q: %w", n.event.Name, err)
	}
	n.event.Description, n.event.Delivery, n.event.Meta = e.Description, slices.Clone(e.Delivery), maps.Clone(e.Meta)
	s.listChanged()
	return nil
}

func (s *Server) remove(n *entry, reason *mcp.Error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries[n.event.Name] != n {
		return // removed before
	}
	delete(s.entries, n.event.Name)
	n.notify(reason)
	s.listChanged()
}

// descriptor returns the description of an event type with its delivery modes. The caller must hold
// s.mu.
func (s *Server) descriptor(n *entry) Event {
	e := n.event
	if e.Delivery == nil {
		e.Delivery = s.modes
		return e
	}
	offered := func(m Mode) bool { return slices.Contains(s.modes, m) }
	e.Delivery = slices.DeleteFunc(slices.Clone(e.Delivery), func(m Mode) bool { return !offered(m) })
	return e
}

// visible returns the event types that the caller may see, by name.
func (s *Server) visible(ctx context.Context) []Event {
	s.mu.Lock()
	all := make([]Event, 0, len(s.entries))
	for _, name := range slices.Sorted(maps.Keys(s.entries)) {
		all = append(all, s.descriptor(s.entries[name]))
	}
	s.mu.Unlock()
	return slices.DeleteFunc(all, func(e Event) bool { return len(e.Delivery) == 0 || !s.shows(ctx, &e) })
}

// find returns an event type that the caller may see and its description.
func (s *Server) find(ctx context.Context, name string) (*entry, Event, error) {
	s.mu.Lock()
	n := s.entries[name]
	var e Event
	if n != nil {
		e = s.descriptor(n)
	}
	s.mu.Unlock()
	if n == nil || !s.shows(ctx, &e) {
		return nil, e, NotFound("event")
	}
	return n, e, nil
}

func (s *Server) shows(ctx context.Context, e *Event) bool {
	return s.opts.Visible == nil || s.opts.Visible(ctx, e)
}
