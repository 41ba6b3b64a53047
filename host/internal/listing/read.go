package listing

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// ReadTimeout limits how long reading all pages of a list may take after the server is
	// connected.
	ReadTimeout = 60 * time.Second
	// DiscoverWait is how long server/discover waits for servers that are starting. Clients wait for
	// few seconds before they try an older revision.
	DiscoverWait = 2 * time.Second
	// Wait is how long a request waits for a list that is being read, unless the server is
	// starting. A slow server must not delay the others.
	Wait = 5 * time.Second
	// MaxAge is how old a list may be if its server does not announce changes.
	MaxAge = 60 * time.Second
	// ChangeDelay is how long a list is not read again after a change: servers announce several changes
	// in sequence.
	ChangeDelay = 100 * time.Millisecond
	// listenWait limits how long the first reading of a connection waits for its subscription. A list that
	// was requested before must be read again, because a change may have been missed.
	listenWait = 100 * time.Millisecond
	// maxPages limits the pages of a list. A server may never send the last page.
	maxPages = 1000
)

// The events extension. Spec: SEP-3415, Capability Negotiation and Dynamic event types.
const (
	ExtensionEvents    = events.ID
	TopicEvents        = "eventsListChanged" // of the filter of a subscription
	NotificationEvents = "notifications/events/list_changed"
)

// Connected makes the lists follow a new connection, with a reviewer that may be nil.
func (l *Lists) Connected(c *connection.Conn, reviewer Reviewer) {
	caps := c.Client().Capabilities()
	filter := mcp.SubscriptionFilter{
		ToolsListChanged:     caps.Tools != nil && caps.Tools.ListChanged,
		PromptsListChanged:   caps.Prompts != nil && caps.Prompts.ListChanged,
		ResourcesListChanged: caps.Resources != nil && caps.Resources.ListChanged,
	}
	settings, _ := caps.Extensions[ExtensionEvents].(map[string]any)
	announcesEvents := settings["listChanged"] == true
	if announcesEvents {
		filter.Topics = map[string]json.RawMessage{TopicEvents: json.RawMessage("true")}
	}
	declared, _ := json.Marshal(caps)
	about := &About{Instructions: Cut(c.Client().Instructions(), MaxInstructions), ServerInfo: c.Client().ServerInfo(),
		Capabilities: declared, Revision: c.Client().Revision(), Lacks: lacks(c.Client())}
	approved := Approved{Instructions: about.Instructions}
	l.reviewing.Lock()
	if reviewer != nil {
		approved = reviewer.ReviewAbout(l.Context, about)
	}
	l.mu.Lock()
	l.about, l.approved, l.reviewer = about, approved, reviewer
	l.capabilities, l.revision = declared, about.Revision
	l.announced = [catalogue.Kinds]bool{filter.ToolsListChanged, filter.PromptsListChanged,
		filter.ResourcesListChanged, filter.ResourcesListChanged, announcesEvents}
	listening, begin := context.WithCancel(c.Context())
	l.listening = listening.Done()
	restored := false
	for k := range l.lists {
		restored = restored || l.lists[k].restored
		l.lists[k].changed, l.lists[k].missed, l.lists[k].restored = true, false, false
	}
	l.slow = false
	l.mu.Unlock()
	l.reviewing.Unlock()
	if restored {
		l.Notify() // listeners read the lists again
	}
	if slices.Contains(l.announced[:], true) {
		l.Go(func() { l.followChanges(c, filter, begin) })
	} else {
		begin()
	}
}

// Connect connects to the server, and waits until it is connected or ctx ends. It does not wait
// again for a server that once failed to become ready in time.
func (l *Lists) Connect(ctx context.Context) {
	l.mu.Lock()
	skip := l.slow || l.lists[0].restored
	l.mu.Unlock()
	if skip {
		return
	}
	c, _, err := l.Source.Acquire(ctx, true)
	l.mu.Lock()
	l.slow = err != nil && ctx.Err() != nil
	l.mu.Unlock()
	if err == nil {
		c.Release()
	}
}

// followChanges marks lists as changed until the connection ends. It calls begin when the server announces changes, or
// never will.
func (l *Lists) followChanges(c *connection.Conn, filter mcp.SubscriptionFilter, begin func()) {
	defer begin()
	for e, err := range c.Client().Listen(c.Context(), filter) { // the context also ends a pause of Listen
		if err != nil {
			l.Logger.Debug("host: subscription ended", "server", l.Server, "error", err)
			return
		}
		switch e.Kind {
		case mcp.EventListening: // lists that were read before may be outdated
			l.Changed(l.alreadyRead()...)
			begin()
		case mcp.EventToolsChanged:
			l.Changed(catalogue.Tools)
		case mcp.EventPromptsChanged:
			l.Changed(catalogue.Prompts)
		case mcp.EventResourcesChanged:
			l.Changed(catalogue.Resources, catalogue.Templates)
		case mcp.EventTopic:
			if e.Method == NotificationEvents {
				l.Changed(catalogue.Events)
			}
		case mcp.EventChangesMissed:
			l.AllChanged()
		}
	}
}

// alreadyRead returns the kinds of lists that were read or are being read.
func (l *Lists) alreadyRead() (kinds []catalogue.Kind) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.lists {
		if e := &l.lists[k]; l.announced[k] && (e.reading != nil || !e.changed) {
			kinds = append(kinds, catalogue.Kind(k))
		}
	}
	return kinds
}

// List returns a list of the server. If reading the list takes long or fails, it returns the
// previous list and the error. starting limits how long it waits for a server that is starting for
// the first time.
func (l *Lists) List(ctx context.Context, kind catalogue.Kind, starting time.Duration) (*catalogue.List, error) {
	l.mu.Lock()
	e := &l.lists[kind]
	if l.isFreshLocked(kind) {
		defer l.mu.Unlock()
		return e.list, nil
	}
	if e.reading == nil {
		if l.closed {
			defer l.mu.Unlock()
			return e.list, mcp.ErrClosed
		}
		if wait := e.budget.wait(time.Now()); wait > 0 {
			defer l.mu.Unlock()
			l.delayLocked(kind, wait)
			return e.list, e.err
		}
		done := make(chan struct{})
		e.reading, e.begun, e.missed = done, time.Now(), false
		l.Go(func() { l.read(kind, done) })
	}
	done, missed, wait := e.reading, e.missed, Wait
	if l.slow {
		wait -= DiscoverWait
	}
	if l.capabilities != nil || e.err != nil { // the server was connected, or failed
		starting = 0
	}
	starting = min(starting, l.StartTimeout()-time.Since(e.begun))
	if missed {
		wait = min(wait, starting)
	}
	l.mu.Unlock()
	if wait > 0 && l.await(ctx, done, wait, starting) {
		l.mu.Lock()
		e.missed = true
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.reading == done {
		return e.list, l.notListed(kind)
	}
	return e.list, e.err
}

// FinishReading waits until the reading of a list in progress ends. It reads a list that was never read.
func (l *Lists) FinishReading(ctx context.Context, kind catalogue.Kind) {
	l.mu.Lock()
	e := &l.lists[kind]
	needed := e.reading != nil || e.list == nil && e.err == nil
	l.mu.Unlock()
	if needed {
		_, _ = l.List(ctx, kind, l.StartTimeout())
	}
}

// await waits until done is closed, at first for wait. While the server is not connected, it
// continues to wait for up to starting; once the server is connected, it waits for another
// Wait. missed reports whether the reading takes longer.
func (l *Lists) await(ctx context.Context, done <-chan struct{}, wait, starting time.Duration) (missed bool) {
	begun, connected := time.Now(), starting <= 0
	for {
		timer := time.NewTimer(wait)
		select {
		case <-done:
			timer.Stop()
			return false
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C:
		}
		left := starting - time.Since(begun)
		if connected || left <= 0 {
			return true
		}
		l.mu.Lock()
		connected = l.capabilities != nil
		l.mu.Unlock()
		if wait = Wait; !connected {
			wait = min(wait, left)
		}
	}
}

// delayLocked makes the listeners read a list when its budget allows it.
func (l *Lists) delayLocked(kind catalogue.Kind, wait time.Duration) {
	if e := &l.lists[kind]; !e.delayed {
		e.delayed = true
		time.AfterFunc(wait, func() {
			l.mu.Lock()
			e.delayed = false
			l.mu.Unlock()
			l.Notify()
		})
	}
}

// read reads a list. It notifies the listeners unless a request waits for the list, and after a
// further change.
func (l *Lists) read(kind catalogue.Kind, done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeoutCause(l.Context, l.StartTimeout()+ReadTimeout, mcp.ErrTimeout)
	defer cancel()
	r, err := l.readAll(ctx, kind)
	list := r.list
	l.reviewing.Lock()
	defer l.reviewing.Unlock()
	if err == nil && r.reviewer != nil && r.pages > 0 { // other lists were reviewed with the description
		list = r.reviewer.ReviewList(ctx, kind, list)
	}
	l.mu.Lock()
	e := &l.lists[kind]
	e.budget.spend(r.pages, r.size)
	e.reading, e.err, e.read = nil, err, time.Now()
	again, before := e.missed || e.changed, e.list
	if err == nil {
		e.list, e.from, e.reviewer = list, r.from, r.reviewer
	} else {
		e.changed = true // read again with the next request
	}
	l.mu.Unlock()
	if err != nil {
		return
	}
	l.Drift(kind, before, list)
	if kind == catalogue.Tools {
		l.observeTools(r.from, before, r.list)
	}
	if again {
		l.Notify()
	}
}

// observeTools records whether a server lost its tools: it responds, but clients cannot use it.
func (l *Lists) observeTools(c *connection.Conn, before, now *catalogue.List) {
	switch {
	case now.Len() > 0:
		if l.lacksTools.Swap(false) {
			l.Source.Observe(c, nil)
		}
	case before != nil && before.Len() > 0:
		l.lacksTools.Store(true)
		l.Source.Observe(c, hosterr.Errorf(hosterr.CodeUnavailable, l.Server,
			"the server lists no tools, and had %d before", before.Len()))
	}
}

// A reading is the outcome of reading all pages of a list.
type reading struct {
	list        *catalogue.List // nil if there is an error
	from        *connection.Conn
	reviewer    Reviewer // of the connection
	pages, size int      // that were requested, and their bytes
}

// readAll reads all pages of a list.
func (l *Lists) readAll(ctx context.Context, kind catalogue.Kind) (r reading, err error) {
	l.BeforeRead(ctx)
	c, reviewer, err := l.Source.Acquire(ctx, true)
	if err != nil {
		return r, err
	}
	defer c.Release()
	l.mu.Lock()
	listening := l.listening
	l.mu.Unlock()
	select {
	case <-listening:
	case <-time.After(listenWait):
	}
	l.mu.Lock()
	l.lists[kind].changed = false
	l.mu.Unlock()
	r, err = l.readFrom(ctx, c, kind)
	r.reviewer = reviewer
	return r, err
}

// lacks returns the kinds that the capabilities of a server exclude, or its revision.
func lacks(c *mcp.Client) (kinds []catalogue.Kind) {
	caps := c.Capabilities()
	resources := caps.Resources != nil
	_, occurs := caps.Extensions[ExtensionEvents]
	revision, _ := wire.ParseRevision(c.Revision())
	occurs = occurs && revision.Modern()
	for kind, has := range [catalogue.Kinds]bool{caps.Tools != nil, caps.Prompts != nil, resources, resources, occurs} {
		if !has {
			kinds = append(kinds, catalogue.Kind(kind))
		}
	}
	return kinds
}

// ReadFrom reads all pages of a list of a connection.
func (l *Lists) ReadFrom(ctx context.Context, c *connection.Conn, kind catalogue.Kind) (*catalogue.List, error) {
	r, err := l.readFrom(ctx, c, kind)
	return r.list, err
}

func (l *Lists) readFrom(ctx context.Context, c *connection.Conn, kind catalogue.Kind) (r reading, err error) {
	r.from = c
	if slices.Contains(lacks(c.Client()), kind) {
		r.list = catalogue.Parse(kind)
		return r, nil
	}
	ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{NoCache: true})
	var pages []json.RawMessage
	var params any
	seen := map[string]bool{}
	large := false
	for {
		raw, err := c.Client().Do(ctx, kind.Method(), params)
		if err != nil {
			r.pages++
			return r, l.Source.Failure(ctx, c, err)
		}
		pages = append(pages, raw)
		r.pages, r.size = len(pages), r.size+len(raw)
		if r.size > LargeList && !large { // callers take turns
			select {
			case l.Memory.large <- struct{}{}:
				large = true
				defer func() { <-l.Memory.large }()
			case <-ctx.Done():
				return r, l.Source.Failure(ctx, c, context.Cause(ctx))
			}
		}
		cursor, _ := jsonscan.Get(raw, "nextCursor")
		next, _ := jsonscan.Unquote(cursor)
		switch {
		case next == "":
			r.list, err = l.Memory.Keep(kind, catalogue.Parse(kind, pages...))
			return r, err
		case seen[next] || len(pages) >= maxPages || r.size > maxListBytes:
			return r, hosterr.Errorf(hosterr.CodeInvalidResult, l.Server,
				"%s has more than %d pages or %d bytes, or repeats a cursor",
				kind.Method(), maxPages, maxListBytes)
		}
		seen[next] = true
		params = map[string]string{"cursor": next}
	}
}
