package host

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/limits"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// listTimeout limits how long reading all pages of one list may take after the server has
	// started.
	listTimeout = 60 * time.Second
	// listWait is how long a request waits for a list that is being read, unless the server is
	// starting. A slow server must not delay the others.
	listWait = 5 * time.Second
	// listAge is how old a list may be if its server does not announce changes.
	listAge = 60 * time.Second
	// changeDelay is how long a list is not read again after a change: servers announce several changes
	// in sequence.
	changeDelay = 100 * time.Millisecond
	// maxPages bounds the pages of a list. A server may never send the last one.
	maxPages = 1000
	// maxListBytes bounds a list, all pages.
	maxListBytes = 64 << 20
)

// A pool has the instances of an upstream that serve one caller, or all callers of a server that is
// shared, and what they offer.
type pool struct {
	up     *Upstream
	caller *Caller
	key    string // see [Upstream.poolKey]

	// The lock of the upstream guards instances, used and latest.
	instances map[string]*instance
	used      time.Time // by a request
	latest    string    // the class of the latest request, for servers with classes

	requests *limits.Queue // see queue

	forwarded forwardedHeader

	restoring sync.Once  // see restore
	reviewing sync.Mutex // held from the review of what the server has sent until it is used

	mu           sync.Mutex // guards the fields below
	lists        [catalogue.Kinds]listing
	views        map[*View]struct{} // that are notified of changes
	watched      resourceSubscriptions
	capabilities json.RawMessage       // of the server; nil before the first connection
	approved     pins.Approved         // without serverInfo if there are no pins
	pins         *pins.Server          // of the last connection, before it of the entry; nil for none
	about        pins.About            // of the server; nil without pins and before the first connection
	revision     string                // of the server
	announced    [catalogue.Kinds]bool // lists whose changes the server announces
	slow         bool                  // server/discover has waited in vain for a connection
	closed       bool

	lacksTools atomic.Bool // the server lists no tools, and had some before
}

// A listing is one list of a server, as it was last read.
type listing struct {
	list     *catalogue.List // nil before the first
	from     *conn           // the connection that it was read from; nil before the first
	pins     *pins.Server    // of that connection; nil for none
	read     time.Time
	restored bool          // from pins: the server has not been connected to since
	changed  bool          // since then
	reading  chan struct{} // closed when the reading in progress ends; nil if there is none
	err      error         // of the last reading
	begun    time.Time     // when the reading in progress began
	missed   bool          // a request has waited for this reading in vain
	budget   listBudget
	delayed  bool // views are notified when it may be read again
}

func newPool(u *Upstream, c *Caller) *pool {
	p := &pool{up: u, caller: c, pins: u.entry().pins, instances: map[string]*instance{}, views: map[*View]struct{}{}}
	p.requests = u.limits.NewQueue(false)
	return p
}

// maxInstructions bounds the instructions of a server that are kept for a caller, in bytes. Clients
// get fewer: see [catalogue.MaxServerInstructions].
const maxInstructions = 64 << 10

func cutInstructions(text string, most int) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), most)]), "")
}

// connected is called after a connection was made.
func (p *pool) connected(s *conn) {
	caps := s.Client().Capabilities()
	filter := mcp.SubscriptionFilter{
		ToolsListChanged:     caps.Tools != nil && caps.Tools.ListChanged,
		PromptsListChanged:   caps.Prompts != nil && caps.Prompts.ListChanged,
		ResourcesListChanged: caps.Resources != nil && caps.Resources.ListChanged,
	}
	declared, _ := json.Marshal(caps)
	approved := pins.Approved{Instructions: cutInstructions(s.Client().Instructions(), maxInstructions)}
	var about pins.About
	if s.pins != nil {
		about = pins.NewAbout(approved.Instructions, s.Client().ServerInfo())
		p.reviewing.Lock()
		approved = s.pins.ReviewAbout(p.up.host.ctx, p.pinCaller(), about)
		s.pins.SetCapabilities(p.up.host.ctx, p.pinCaller(), declared, s.Client().Revision())
		p.mu.Lock()
		p.about, p.approved = about, approved
		p.mu.Unlock()
		p.reviewing.Unlock()
	}
	p.mu.Lock()
	p.pins = s.pins
	p.capabilities, p.revision = declared, s.Client().Revision()
	if s.pins == nil {
		p.about, p.approved = nil, approved
	}
	p.announced = [catalogue.Kinds]bool{filter.ToolsListChanged, filter.PromptsListChanged,
		filter.ResourcesListChanged, filter.ResourcesListChanged}
	restored := false
	for k := range p.lists {
		restored = restored || p.lists[k].restored
		p.lists[k].changed, p.lists[k].missed, p.lists[k].restored = true, false, false
	}
	p.slow = false
	p.mu.Unlock()
	if restored {
		p.notify() // reads the lists of views with subscriptions again
	}
	if !filter.ToolsListChanged && !filter.PromptsListChanged && !filter.ResourcesListChanged {
		return
	}
	p.up.host.work.run(func() { p.followChanges(s, filter) })
}

// followChanges marks lists as changed until the connection ends.
func (p *pool) followChanges(s *conn, filter mcp.SubscriptionFilter) {
	for e, err := range s.Client().Listen(s.Context(), filter) { // s.Context() also ends a pause before it subscribes again
		if err != nil {
			p.up.host.opts.Logger.Debug("host: subscription ended", "server", p.up.name, "error", err)
			return
		}
		switch e.Kind {
		case mcp.EventListening: // lists that were read before may have changed since
			p.changed(p.alreadyRead()...)
		case mcp.EventToolsChanged:
			p.changed(catalogue.Tools)
		case mcp.EventPromptsChanged:
			p.changed(catalogue.Prompts)
		case mcp.EventResourcesChanged:
			p.changed(catalogue.Resources, catalogue.Templates)
		case mcp.EventChangesMissed:
			p.changed(catalogue.Tools, catalogue.Prompts, catalogue.Resources, catalogue.Templates)
		}
	}
}

// alreadyRead returns the kinds of lists that were read or are being read.
func (p *pool) alreadyRead() (kinds []catalogue.Kind) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.lists {
		if l := &p.lists[k]; p.announced[k] && (l.reading != nil || !l.changed) {
			kinds = append(kinds, catalogue.Kind(k))
		}
	}
	return kinds
}

// changed marks lists as changed, and notifies the views after changeDelay.
func (p *pool) changed(kinds ...catalogue.Kind) {
	if len(kinds) == 0 {
		return
	}
	p.mu.Lock()
	for _, k := range kinds {
		p.lists[k].changed = true
	}
	p.mu.Unlock()
	p.notify()
}

// notify makes the views with subscriptions read the lists again.
func (p *pool) notify() {
	p.mu.Lock()
	views := slices.Collect(maps.Keys(p.views))
	p.mu.Unlock()
	for _, v := range views {
		v.schedule()
	}
}

// known returns the lists that are as the server has them, nil for others.
func (p *pool) known() (lists [catalogue.Kinds]*catalogue.List) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.lists {
		if kind := catalogue.Kind(k); p.isFresh(kind) {
			lists[kind] = p.lists[kind].list
		}
	}
	return lists
}

// hasList reports whether a list was read at least once.
func (p *pool) hasList(kind catalogue.Kind) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lists[kind].list != nil
}

// isFresh reports whether a list need not be read. The lock is held. With pins, a server that announces
// changes is not relied on to announce all of them.
func (p *pool) isFresh(kind catalogue.Kind) bool {
	l := &p.lists[kind]
	return l.list != nil && l.reading == nil &&
		(l.restored || !l.changed && (p.announced[kind] && l.pins == nil || time.Since(l.read) < listAge))
}

// list returns a list of the server. If reading the list takes long or fails, it returns the
// previous list and the error. starting limits how long it waits for a server that is starting for
// the first time.
func (p *pool) list(ctx context.Context, kind catalogue.Kind, starting time.Duration) (*catalogue.List, error) {
	p.mu.Lock()
	l := &p.lists[kind]
	if p.isFresh(kind) {
		defer p.mu.Unlock()
		return l.list, nil
	}
	if l.reading == nil {
		if p.closed {
			defer p.mu.Unlock()
			return l.list, mcp.ErrClosed
		}
		if wait := l.budget.wait(time.Now()); wait > 0 {
			defer p.mu.Unlock()
			p.delay(kind, wait)
			return l.list, l.err
		}
		done := make(chan struct{})
		l.reading, l.begun, l.missed = done, time.Now(), false
		p.up.host.work.run(func() { p.read(kind, done) })
	}
	done, missed, wait := l.reading, l.missed, listWait
	if p.slow {
		wait -= discoverWait
	}
	if p.capabilities != nil || l.err != nil { // the server was connected, or has failed
		starting = 0
	}
	starting = min(starting, p.up.startTimeout()-time.Since(l.begun))
	if missed {
		wait = min(wait, starting)
	}
	p.mu.Unlock()
	if wait > 0 && p.await(ctx, done, wait, starting) {
		p.mu.Lock()
		l.missed = true
		p.mu.Unlock()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.reading == done {
		return l.list, p.up.errorf(CodeStarting, "the server has not listed its %s yet", kind)
	}
	return l.list, l.err
}

// finishReading waits until the reading of a list in progress ends. It reads a list that was never read.
func (p *pool) finishReading(ctx context.Context, kind catalogue.Kind) {
	p.mu.Lock()
	l := &p.lists[kind]
	needed := l.reading != nil || l.list == nil && l.err == nil
	p.mu.Unlock()
	if needed {
		_, _ = p.list(ctx, kind, p.up.startTimeout())
	}
}

// await waits until done is closed, at first for wait. While the server is not connected, it
// continues to wait for up to starting; once the server is connected, it waits for another
// listWait. missed reports whether the reading takes longer.
func (p *pool) await(ctx context.Context, done <-chan struct{}, wait, starting time.Duration) (missed bool) {
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
		p.mu.Lock()
		connected = p.capabilities != nil
		p.mu.Unlock()
		if wait = listWait; !connected {
			wait = min(wait, left)
		}
	}
}

// firstReading returns the channel of the reading in progress of a list that was never read, nil if
// there is none.
func (p *pool) firstReading(kind catalogue.Kind) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := &p.lists[kind]; l.list == nil {
		return l.reading
	}
	return nil
}

// delay makes the views with subscriptions read a list when its budget allows it. The lock is held.
func (p *pool) delay(kind catalogue.Kind, wait time.Duration) {
	if l := &p.lists[kind]; !l.delayed {
		l.delayed = true
		time.AfterFunc(wait, func() {
			p.mu.Lock()
			l.delayed = false
			p.mu.Unlock()
			p.notify()
		})
	}
}

// read reads a list, and notifies the views if a request did not wait for it, or it has changed again.
func (p *pool) read(kind catalogue.Kind, done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeoutCause(p.up.host.ctx, p.up.startTimeout()+listTimeout, mcp.ErrTimeout)
	defer cancel()
	p.mu.Lock()
	p.lists[kind].changed = false
	p.mu.Unlock()
	r, err := p.readAll(ctx, kind)
	list := r.list
	p.reviewing.Lock()
	defer p.reviewing.Unlock()
	if err == nil {
		list = r.pins.Review(ctx, p.pinCaller(), kind, list)
	}
	p.mu.Lock()
	l := &p.lists[kind]
	l.budget.spend(r.pages, r.size)
	l.reading, l.err, l.read = nil, err, time.Now()
	again, before := l.missed || l.changed, l.list
	if err == nil {
		l.list, l.from, l.pins = list, r.from, r.pins
	} else {
		l.changed = true // read again with the next request
	}
	p.mu.Unlock()
	if err != nil {
		return
	}
	p.recordDrift(kind, before, list)
	if kind == catalogue.Tools {
		p.observeTools(r.from, before, r.list)
	}
	if again {
		p.notify()
	}
}

// observeTools records whether a server has lost its tools: it responds, but clients cannot use it.
func (p *pool) observeTools(s *conn, before, now *catalogue.List) {
	switch {
	case now.Len() > 0:
		if p.lacksTools.Swap(false) {
			s.observe(nil)
		}
	case before != nil && before.Len() > 0:
		p.lacksTools.Store(true)
		s.observe(p.up.errorf(CodeUnavailable, "the server lists no tools, and had %d before", before.Len()))
	}
}

// A listReading is the outcome of reading all pages of a list.
type listReading struct {
	list        *catalogue.List // nil if there is an error
	from        *conn
	pins        *pins.Server // of the connection
	pages, size int          // that were requested, and their bytes
}

// readAll reads all pages of a list.
func (p *pool) readAll(ctx context.Context, kind catalogue.Kind) (r listReading, err error) {
	if p.failedLogin() { // the user may have logged in with another process
		_ = p.checkLogin(ctx) // the error of the connection says more
	}
	s, err := p.acquire(ctx, "")
	if err != nil {
		return r, err
	}
	defer s.Release()
	return p.readFrom(ctx, s, kind)
}

// readFrom reads all pages of a list of a connection.
func (p *pool) readFrom(ctx context.Context, s *conn, kind catalogue.Kind) (r listReading, err error) {
	r.from, r.pins = s, s.pins
	caps := s.Client().Capabilities()
	if kind == catalogue.Tools && caps.Tools == nil || kind == catalogue.Prompts && caps.Prompts == nil ||
		(kind == catalogue.Resources || kind == catalogue.Templates) && caps.Resources == nil {
		r.list = catalogue.Parse(kind)
		return r, nil
	}
	ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{NoCache: true})
	var pages []json.RawMessage
	var params any
	seen := map[string]bool{}
	large := false
	for {
		raw, err := s.Client().Do(ctx, kind.Method(), params)
		if err != nil {
			r.pages++
			return r, p.up.failure(ctx, err)
		}
		pages = append(pages, raw)
		r.pages, r.size = len(pages), r.size+len(raw)
		if r.size > largeList && !large { // callers take turns
			select {
			case p.up.largeReads <- struct{}{}:
				large = true
				defer func() { <-p.up.largeReads }()
			case <-ctx.Done():
				return r, p.up.failure(ctx, context.Cause(ctx))
			}
		}
		cursor, _ := jsonscan.Get(raw, "nextCursor")
		next, _ := jsonscan.Unquote(cursor)
		switch {
		case next == "":
			r.list, err = p.up.keep(kind, catalogue.Parse(kind, pages...))
			return r, err
		case seen[next] || len(pages) >= maxPages || r.size > maxListBytes:
			return r, p.up.errorf(CodeInvalidResult,
				"%s has more than %d pages or %d bytes, or repeats a cursor",
				kind.Method(), maxPages, maxListBytes)
		}
		seen[next] = true
		params = map[string]string{"cursor": next}
	}
}

func (p *pool) addView(v *View) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.views[v] = struct{}{}
}

func (p *pool) removeView(v *View) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.views, v)
}
