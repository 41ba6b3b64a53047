package routes

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Table holds the merged lists of a caller. It merges them again when a list, the policy or the
// configuration has changed. It is safe for concurrent use, and a [listing.Listener] of its servers.
type Table struct {
	o        Options
	uris     *URIs
	resolved atomic.Pointer[Servers]  // see Servers
	merged   atomic.Pointer[Snapshot] // see Latest

	mu            sync.Mutex // guards the fields below, the pages of snapshots, and uris
	timer         *time.Timer
	subscriptions int       // open
	announced     *Snapshot // the last snapshot that subscriptions know
}

// New returns a table without lists.
func New(o *Options) *Table {
	t := &Table{o: *o}
	t.uris = &URIs{table: t}
	t.resolved.Store(o.Servers(nil))
	return t
}

// URIs returns the URIs that servers named to the caller.
func (t *Table) URIs() *URIs { return t.uris }

// Servers returns the servers of the caller in the present configuration. After a reload, subscriptions
// move to them.
func (t *Table) Servers() *Servers {
	s := t.resolved.Load()
	if t.o.Servers(s) == s {
		return s
	}
	t.mu.Lock()
	s = t.resolved.Load()
	now := t.o.Servers(s)
	if now == s {
		t.mu.Unlock()
		return s
	}
	t.resolved.Store(now)
	t.uris.keepLocked(now.All)
	subscribed := t.subscriptions > 0
	if subscribed {
		for _, p := range now.All {
			p.Lists().AddListener(t)
		}
		for _, p := range s.All {
			if !slices.Contains(now.All, p) {
				p.Lists().RemoveListener(t)
			}
		}
		t.scheduleLocked()
	}
	t.mu.Unlock()
	if subscribed {
		t.moveSubscriptions(s.All)
	}
	return now
}

// Used returns the servers that the table uses, which may be outdated after a reload.
func (t *Table) Used() []Server { return t.resolved.Load().All }

// Latest returns the last snapshot, nil before the first. After a reload it contains the present servers,
// with their known lists.
func (t *Table) Latest() *Snapshot {
	m := t.merged.Load()
	if m == nil {
		return nil
	}
	s := t.Servers()
	if m.servers == s {
		return m
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	m = t.merged.Load()
	if m == nil || m.servers == s || s != t.resolved.Load() {
		return m
	}
	lists := make([][catalogue.Kinds]*catalogue.List, len(s.All))
	for n, p := range s.All {
		lists[n] = p.Lists().Last()
	}
	m = merge(&t.o, s, lists)
	t.merged.Store(m)
	return m
}

// Last returns the last snapshot, which may be outdated after a reload; nil before the first.
func (t *Table) Last() *Snapshot { return t.merged.Load() }

// Current returns the snapshot of the present lists. It reads the lists that may have changed.
func (t *Table) Current(ctx context.Context) (*Snapshot, error) { return t.within(ctx, ctx, 0) }

// within returns the snapshot of the present lists. It waits for lists until wait is done. starting limits
// how long it waits for servers that are starting for the first time.
func (t *Table) within(ctx, wait context.Context, starting time.Duration) (*Snapshot, error) {
	s := t.Servers()
	lists := make([][catalogue.Kinds]*catalogue.List, len(s.All))
	known := true
	for n, p := range s.All {
		p.Restore(ctx)
		lists[n] = p.Lists().Fresh()
		known = known && !slices.Contains(lists[n][:], nil)
	}
	if !known {
		s.read(wait, lists, starting)
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	old, m := t.update(s, lists)
	switch {
	case old == nil && t.o.Elsewhere: // no effect without subscriptions
		t.o.Send(mcp.Event{Kind: mcp.EventToolsChanged})
		t.o.Send(mcp.Event{Kind: mcp.EventPromptsChanged})
		t.o.Send(mcp.Event{Kind: mcp.EventResourcesChanged})
		t.o.Send(eventsChanged())
	case old != nil && old != m:
		t.announce(old, m)
	}
	return m, nil
}

// read sets the lists that are nil.
func (s *Servers) read(ctx context.Context, lists [][catalogue.Kinds]*catalogue.List, starting time.Duration) {
	var reading sync.WaitGroup
	for n, p := range s.All {
		for k := range catalogue.Kinds {
			if lists[n][k] == nil {
				reading.Go(func() { lists[n][k], _ = p.Lists().List(ctx, catalogue.Kind(k), starting) })
			}
		}
	}
	reading.Wait()
}

// update stores the snapshot with the lists, and returns it with the snapshot that subscriptions knew before.
func (t *Table) update(s *Servers, lists [][catalogue.Kinds]*catalogue.List) (old, now *Snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now = t.merged.Load()
	if now == nil || now.servers != s || now.epoch != t.o.Epoch() || !slices.Equal(now.lists, lists) {
		now = merge(&t.o, s, lists)
		if s == t.resolved.Load() { // else a reload was faster
			t.merged.Store(now)
		}
	}
	if s != t.resolved.Load() {
		return now, now
	}
	old, t.announced = t.announced, now
	return old, now
}

// announce sends the changes of lists to subscriptions.
func (t *Table) announce(old, now *Snapshot) {
	for kind, event := range map[catalogue.Kind]mcp.EventKind{
		catalogue.Tools: mcp.EventToolsChanged, catalogue.Prompts: mcp.EventPromptsChanged,
	} {
		if !now.Catalogue.Equal(kind, old.Catalogue) {
			t.o.Send(mcp.Event{Kind: event})
		}
	}
	if !now.Catalogue.Equal(catalogue.Resources, old.Catalogue) ||
		!now.Catalogue.Equal(catalogue.Templates, old.Catalogue) {
		t.o.Send(mcp.Event{Kind: mcp.EventResourcesChanged})
	}
	if !now.Catalogue.Equal(catalogue.Events, old.Catalogue) {
		t.o.Send(eventsChanged())
	}
}

// eventsChanged returns the notification that the types of events changed.
func eventsChanged() mcp.Event {
	topics := map[string]json.RawMessage{listing.TopicEvents: json.RawMessage("true")}
	return mcp.Event{Kind: mcp.EventTopic, Method: listing.NotificationEvents, Params: json.RawMessage("{}"),
		Filter: &mcp.SubscriptionFilter{Topics: topics}}
}

// ListsChanged implements [listing.Listener]: the table reads the lists again after listing.ChangeDelay, and
// announces the changes.
func (t *Table) ListsChanged() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.scheduleLocked()
}

func (t *Table) scheduleLocked() {
	if t.timer == nil {
		t.timer = time.AfterFunc(listing.ChangeDelay, t.refresh)
	}
}

func (t *Table) refresh() {
	t.mu.Lock()
	t.timer = nil
	t.mu.Unlock()
	_, _ = t.Current(t.o.Context)
}

// Forget makes the table merge its lists again: with the next request, or soon if the caller has
// subscriptions.
func (t *Table) Forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.subscriptions > 0 {
		t.scheduleLocked()
		return
	}
	t.merged.Store(nil)
	t.announced = nil
}

// Connect connects to the servers, and waits for servers that are starting until ctx ends.
func (t *Table) Connect(ctx context.Context) {
	var wait sync.WaitGroup
	for _, p := range t.Servers().All {
		wait.Go(func() {
			p.Restore(ctx)
			p.Lists().Connect(ctx)
		})
	}
	wait.Wait()
}
