package listing

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/connection"
)

// Lists holds the lists that a server offers to a caller, or to all callers of a shared server. It
// is safe for concurrent use.
type Lists struct {
	*Options
	resourceSubscriptions

	restoring sync.Once  // see Restore
	reviewing sync.Mutex // held from the review of a list or description until it is stored

	mu           sync.Mutex // guards the fields below, and the subscriptions
	lists        [catalogue.Kinds]list
	listeners    map[Listener]struct{}
	capabilities json.RawMessage // of the server; nil before the first connection
	approved     Approved
	reviewer     Reviewer              // of the last connection, before it of the options; may be nil
	about        *About                // of the server; nil before the first connection
	revision     string                // of the server
	announced    [catalogue.Kinds]bool // lists whose changes the server announces
	listening    <-chan struct{}       // closed when the server of the last connection announces changes
	slow         bool                  // Connect waited in vain for a connection
	closed       bool

	lacksTools atomic.Bool // the server lists no tools, and listed some before
}

// A list is a list of a server in the form in which it was last read.
type list struct {
	list     *catalogue.List  // nil before the first
	from     *connection.Conn // the connection that it was read from; nil before the first
	reviewer Reviewer         // of that connection; may be nil
	read     time.Time
	restored bool          // by a reviewer: the server was not connected to since
	changed  bool          // since then
	reading  chan struct{} // closed when the reading in progress ends; may be nil
	err      error         // of the last reading
	begun    time.Time     // when the reading in progress began
	missed   bool          // a request waited for this reading in vain
	budget   budget
	delayed  bool // listeners are notified when the list may be read again
}

// New returns lists that were not read.
func New(o *Options) *Lists {
	l := &Lists{Options: o, reviewer: o.Review, listeners: map[Listener]struct{}{}}
	l.resourceSubscriptions.owner = l
	return l
}

// MaxInstructions limits the instructions of a server that are kept for a caller, in bytes. Clients
// receive fewer: see [catalogue.MaxServerInstructions].
const MaxInstructions = 64 << 10

// Cut returns at most limit bytes of a text.
func Cut(text string, limit int) string {
	return strings.ToValidUTF8(strings.Clone(text[:min(len(text), limit)]), "")
}

// AddListener makes a listener learn of changes.
func (l *Lists) AddListener(to Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners[to] = struct{}{}
}

// RemoveListener ends the effect of AddListener.
func (l *Lists) RemoveListener(to Listener) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.listeners, to)
}

// Notify makes the listeners read the lists again.
func (l *Lists) Notify() {
	l.mu.Lock()
	all := slices.Collect(maps.Keys(l.listeners))
	l.mu.Unlock()
	for _, to := range all {
		to.ListsChanged()
	}
}

// HasListeners reports whether changes of lists or resources must be noticed.
func (l *Lists) HasListeners() (lists, resources bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.listeners) > 0, len(l.subscribers) > 0
}

// Resubscribe opens the subscriptions again that existed before a new connection, and makes the listeners
// read the lists again. watched reports whether resources were subscribed to when it was made.
func (l *Lists) Resubscribe(watched bool) {
	if watched {
		l.resubscribe()
	}
	l.Notify()
}

// Changed marks lists as changed, and notifies the listeners unless there are no kinds.
func (l *Lists) Changed(kinds ...catalogue.Kind) {
	if len(kinds) == 0 {
		return
	}
	l.mu.Lock()
	for _, k := range kinds {
		l.lists[k].changed = true
	}
	l.mu.Unlock()
	l.Notify()
}

// AllChanged marks all lists as changed, and notifies the listeners.
func (l *Lists) AllChanged() {
	l.Changed(catalogue.Tools, catalogue.Prompts, catalogue.Resources, catalogue.Templates,
		catalogue.Events)
}

// Retry makes the next request wait for the server again, and read its lists.
func (l *Lists) Retry() {
	l.mu.Lock()
	l.slow = false
	l.mu.Unlock()
	l.AllChanged()
}

// Retire marks the lists as the lists of a server without announcements: a view that still uses them
// reads them again through the lists that replace them.
func (l *Lists) Retire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.announced[:])
	for k := range l.lists {
		l.lists[k].restored = false
	}
}

// Close ends the subscriptions to resources. Lists are not read any more.
func (l *Lists) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	l.subscribeLocked()
}

// Drop drops the lists of at least least bytes, and reports whether it found any. It keeps lists
// with listeners, which are needed to notice changes.
func (l *Lists) Drop(least int) (dropped bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.lists {
		if e := &l.lists[k]; e.list != nil && e.list.Bytes() >= least && len(l.listeners) == 0 {
			e.list, e.changed, e.restored, dropped = nil, true, false, true
		}
	}
	return dropped
}

// Fresh returns the lists that are up to date; an outdated list is nil.
func (l *Lists) Fresh() (all [catalogue.Kinds]*catalogue.List) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.lists {
		if kind := catalogue.Kind(k); l.isFreshLocked(kind) {
			all[kind] = l.lists[kind].list
		}
	}
	return all
}

// Last returns the lists as they were last read; a list that was never read is nil.
func (l *Lists) Last() (all [catalogue.Kinds]*catalogue.List) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k := range l.lists {
		all[k] = l.lists[k].list
	}
	return all
}

// Err returns why a list was never read, or nil after the first reading.
func (l *Lists) Err(kind catalogue.Kind) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch e := &l.lists[kind]; {
	case e.list != nil:
		return nil
	case e.reading != nil:
		return l.notListed(kind)
	default:
		return e.err
	}
}

func (l *Lists) notListed(kind catalogue.Kind) error {
	return hosterr.Errorf(hosterr.CodeStarting, l.Server, "the server has not listed its %s yet", kind)
}

// IsCurrent reports whether a list is up to date and was read from a server.
func (l *Lists) IsCurrent(kind catalogue.Kind) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.isFreshLocked(kind) && !l.lists[kind].restored
}

// isFreshLocked reports whether a list need not be read. With a reviewer, a server that announces
// changes is not relied on to announce all of them.
func (l *Lists) isFreshLocked(kind catalogue.Kind) bool {
	e := &l.lists[kind]
	return e.list != nil && e.reading == nil &&
		(e.restored || !e.changed && (l.announced[kind] && e.reviewer == nil || time.Since(e.read) < MaxAge))
}

// FirstReading returns the channel of the reading in progress of a list that was never read, or
// nil.
func (l *Lists) FirstReading(kind catalogue.Kind) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e := &l.lists[kind]; e.list == nil {
		return e.reading
	}
	return nil
}

// Origin returns the connection that a list was last read from, nil before the first.
func (l *Lists) Origin(kind catalogue.Kind) *connection.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lists[kind].from
}

// About returns the capabilities and the revision of the server as it was last connected, and its
// approved texts.
func (l *Lists) About() Restored {
	l.mu.Lock()
	defer l.mu.Unlock()
	return Restored{Approved: l.approved, Capabilities: l.capabilities, Revision: l.revision}
}

// WereRead reports whether all lists were read, successfully or not, and no list is being read.
func (l *Lists) WereRead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.ContainsFunc(l.lists[:], func(e list) bool {
		return e.reading != nil || e.list == nil && e.err == nil
	})
}

// LackTools reports whether the server lists no tools, and listed some before: it responds, but
// clients cannot use it.
func (l *Lists) LackTools() bool { return l.lacksTools.Load() }
