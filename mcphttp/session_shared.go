package mcphttp

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/legacy"
	"github.com/patchbay-mcp/patchbay/internal/limitedlog"
	"github.com/patchbay-mcp/patchbay/internal/singleflight"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/replica"
)

const (
	// maxConflicts is how often a change is repeated because other processes change the same session.
	maxConflicts = 10
	// sessionIDLen is the length of rand.Text. The store is not asked for other ids.
	sessionIDLen = 26
)

// errStore asks the client to retry. Status 404 would end its session, which may well exist.
var errStore = refuseBusy(http.StatusServiceUnavailable, "the store of sessions failed")

var errSessionGone = fmt.Errorf("%w: session ended at another process", mcp.ErrClosed)

// sharedSessions are the sessions of a handler in a [replica.SessionStore]. A session is in the table
// of each process that served it lately; the store holds the records on which these processes agree.
type sharedSessions struct {
	replica.SessionStore // nil if sessions are not shared
	loads                singleflight.Group[sessionKey, *refusal]
	log                  limitedLog
	process              string             // a random name of this process
	bus                  replica.Bus        // may be nil
	stop                 func()             // ends the calls of changed
	readers              sync.WaitGroup     // the goroutines of changed
	life                 context.Context    // of the operations that read
	cancel               context.CancelFunc // ends life

	origin   string                   // of the changes at the server
	announce func(method, uri string) // reports a change at another process; nil without a bus
	unrelay  func()                   // ends the calls of relay; may be nil

	mu        sync.Mutex          // guards the fields below
	byKey     map[string]*session // sessions of the table, and sessions that are being restored
	sent      []*sentResponse     // newest first
	asks      bool                // the next repeat asks the other processes for copies
	repeating *time.Timer         // calls repeat; nil if it is not due
	changes   []change            // to send; see relay
	relaying  *time.Timer         // calls sendChanges; nil if it is not due
	answers   map[answer]bool     // about streams, to send; see reply
	answering *time.Timer         // calls sendAnswers; nil if it is not due
	ended     bool

	endpoints map[string]endpoint         // by SessionOptions.key
	receipts  map[string]chan *passedPost // for which clients wait
	post      func(c *carried)            // handles a message of HTTP+SSE; does not wait

	sending sync.Mutex // held while answers are sent
	joining sync.Mutex // held while the process subscribes to the bus; guards the field below
	leave   []func()   // ends the subscriptions
}

// sharedState is the knowledge of a process about the record of a session.
type sharedState struct {
	key      string       // the digest of the scope and the id
	restored bool         // another process opened the session; not changed once the session is in the table
	stale    atomic.Int64 // changes that may not have been read
	kept     atomic.Int64 // when this process extended the life of the record, since the table was made

	mu     sync.Mutex      // held during operations of the store; guards the field below
	record replica.Session // the record that was read or written last
}

// share prepares the table for a store.
func (t *sessions) share(h mcp.Handler, o *SessionOptions, x *sharedSessions) {
	x.SessionStore, t.events.records, x.byKey, x.answers = o.Store, o.Store, map[string]*session{}, map[answer]bool{}
	x.endpoints, x.receipts = map[string]endpoint{}, map[string]chan *passedPost{}
	x.log = limitedLog{limitedlog.Log{Logger: t.opts.Logger, Summary: "mcphttp: more failures between processes",
		What: "failures"}}
	t.config.Changed = func(ctx context.Context) error {
		message := sessionContextFrom(ctx)
		if message == nil || message.of.shared == nil || t.save(message.of) == nil {
			return nil
		}
		message.unsaved.Store(true)
		return errStore.err
	}
	x.life, x.cancel = context.WithCancel(context.Background())
	x.stop = x.Watch(t.changed)
	x.process = rand.Text()[:nameLen]
	if x.bus = o.Bus; x.bus != nil {
		t.config.Process = x.process + "-"
		t.config.Elsewhere = t.elsewhere
		x.announce, x.origin, x.unrelay = mcp.Driver(h).Relay(t.relay)
	}
}

// end stops the calls of the store and of the bus.
func (x *sharedSessions) end() {
	if x.unrelay != nil {
		x.unrelay()
	}
	x.joining.Lock()
	defer x.joining.Unlock()
	for _, stop := range x.leave {
		stop()
	}
	x.mu.Lock()
	x.ended = true
	for _, due := range []*time.Timer{x.repeating, x.relaying, x.answering} {
		if due != nil {
			due.Stop()
		}
	}
	x.mu.Unlock()
	if x.stop != nil {
		x.stop()
		x.cancel()
		x.readers.Wait()
	}
}

func (x *sharedSessions) failed(err error) *refusal {
	x.log.error(context.Background(), "mcphttp: session store failed", err)
	return errStore
}

func (x *sharedSessions) add(s *session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.byKey[s.shared.key] = s
}

func (x *sharedSessions) remove(s *session) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.byKey[s.shared.key] == s {
		delete(x.byKey, s.shared.key)
	}
}

// create stores the record of a session that was initialized.
func (t *sessions) create(s *session, conv *legacy.Session) *refusal {
	p := s.shared
	if no := t.subscribe(); no != nil || p == nil { // a session of HTTP+SSE is not shared, but learns of changes
		return no
	}
	t.shared.add(s)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.record = replica.Session{Version: 1, Principal: s.digest, Data: conv.Record()}
	// The process that serves the first request extends the life in its next sweep.
	life := min(2*t.opts.Sessions.InitTimeout, t.opts.Sessions.IdleTimeout)
	if err := t.shared.Create(context.Background(), p.key, p.record, life); err != nil {
		return t.shared.failed(err)
	}
	return nil
}

// afterShutdown replaces the refusal for an unknown session if this process has forgotten all
// sessions, which other processes continue.
func (h *Handler) afterShutdown(no *refusal) *refusal {
	if no == errNoSession && h.sessions.shared.SessionStore != nil && !h.life.isOpen() {
		return errShutdown
	}
	return no
}

// load returns a session that another process opened, which the caller releases.
func (h *Handler) load(r *http.Request, id string, principal *mcp.Principal) (*session, *refusal) {
	t, key := h.sessions, sessionKey{id, principal.Key()}
	if t.shared.SessionStore == nil || len(id) != sessionIDLen || strings.Trim(id, base32) != "" {
		return nil, errNoSession
	}
	no, err := t.shared.loads.Do(r.Context(), key, func(context.Context) (*refusal, error) {
		return t.restore(r, id, h.caller(r, principal)), nil
	})
	switch {
	case err != nil: // the client disconnected, or a hook panicked
		return nil, errStore
	case no != nil:
		return nil, no
	}
	s := t.acquire(id, principal.Key())
	if s == nil {
		return nil, errNoSession // it belongs to another principal, or ended meanwhile
	}
	return s, nil
}

// restore adds a session of the store to the table.
func (t *sessions) restore(r *http.Request, id string, c caller) *refusal {
	if t.isKnown(id) { // to another principal, or since a moment
		return nil
	}
	if no := t.subscribe(); no != nil {
		return no
	}
	s := t.newSession(id, c, nil)
	record, err := t.shared.Load(context.Background(), s.shared.key)
	no := errNoSession
	switch {
	case err != nil && !errors.Is(err, replica.ErrNoSession):
		no = t.shared.failed(err)
	case err == nil && record.Principal == s.digest:
		no = t.admit(c)
	}
	if no != nil {
		return no
	}
	s.shared.stale.Store(1) // a change since the record was read is not reported
	t.shared.add(s)
	s.shared.record, s.shared.restored = record, true
	ctx := s.newContext(r)
	conv, err := legacy.Restore(&conversationContext{ctx.Context, s}, &t.config, record.Data)
	if err != nil { // such as for a revision that this version of the server does not accept
		t.shared.log.error(ctx, "mcphttp: session not restored", err)
		t.drop(s, mcp.ErrClosed)
		if full, ok := errors.AsType[*jsonrpc.Error](err); ok { // here; other processes may have room
			return refuseBusy(http.StatusTooManyRequests, full.Message)
		}
		return errNoSession
	}
	s.hasBegun = true
	s.conv.Store(conv)
	t.begun(ctx, s)
	if no := t.add(s); no != nil {
		t.drop(s, mcp.ErrShutdown)
		return no
	}
	t.release(s)
	return nil
}

// save stores the record of a session if it has changed. If another process has the standalone stream,
// save waits until that process has subscribed to the resources of the record, so that the client
// misses no update after the response to its subscription.
func (t *sessions) save(s *session) error {
	p := s.shared
	p.mu.Lock()
	before := p.record.Version
	_, err := t.update(s, "")
	record := p.record
	p.mu.Unlock()
	if err == nil && record.Version != before && record.Listener != t.shared.process && isProcess(record.Listener) &&
		t.shared.bus != nil {
		t.tell(s, &record)
	}
	return err
}

// tell sends the new record of a session to the process that has its standalone stream. A process that
// does not answer reads the record when it learns of the change.
func (t *sessions) tell(s *session, record *replica.Session) {
	told := carried{Session: s.shared.key, Principal: s.digest, Record: record}
	_, _, err := t.shared.pass(context.Background(), record.Listener, &told, &passedPost{}, receiptTimeout)
	if err != nil && !errors.Is(err, errCarried) { // a large record is read from the store
		t.shared.log.error(context.Background(), "mcphttp: change of a session not sent to another process", err)
	}
}

// hear applies the record that another process has sent, and subscribes as it says.
func (t *sessions) hear(c *carried) {
	s := t.shared.find(c)
	if s == nil || s.conversation() == nil {
		return
	}
	p := s.shared
	p.mu.Lock()
	if c.Record.Version > p.record.Version {
		_ = t.lost(s, t.apply(s, *c.Record)) // which ended the session here if it is gone
	}
	p.mu.Unlock()
	_ = s.conversation().RefreshSubscription() // it logged the error
}

// listen makes this process the listener of a session, and then calls set, which sets the standalone
// stream. A process whose stream is replaced closes the stream when it reads the record. While the
// store fails, streams of two processes may be open. listen returns the listener of the record that it
// replaced, empty if there is none or the store fails.
func (t *sessions) listen(s *session, set func() *refusal) (former string, no *refusal) {
	if s.shared == nil {
		return "", set()
	}
	s.shared.mu.Lock() // so that set precedes the next change of the listener
	defer s.shared.mu.Unlock()
	former, err := t.update(s, t.shared.process)
	if errors.Is(err, replica.ErrNoSession) {
		return "", errNoSession
	}
	return former, set()
}

// update stores the record of a session if it has changed, or if there is a new listener. It returns
// the listener of the record that it replaced. The caller holds s.shared.mu.
func (t *sessions) update(s *session, listener string) (former string, err error) {
	p := s.shared
	err = replica.ErrConflict
	for n := 0; n < maxConflicts && errors.Is(err, replica.ErrConflict); n++ {
		next := p.record
		next.Data, next.Listener = s.conversation().Record(), cmp.Or(listener, next.Listener)
		if bytes.Equal(next.Data, p.record.Data) && listener == "" {
			return "", nil
		}
		if err = t.shared.Update(context.Background(), p.key, next, t.opts.Sessions.IdleTimeout); err == nil {
			next.Version++
			former, p.record = p.record.Listener, next
		} else if errors.Is(err, replica.ErrConflict) {
			err = errors.Join(err, t.reload(s))
		}
	}
	return former, t.lost(s, err)
}

// reload applies the changes of other processes. The caller holds s.shared.mu.
func (t *sessions) reload(s *session) error {
	p := s.shared
	record, err := t.shared.Load(t.shared.life, p.key)
	if err != nil {
		return err
	}
	return t.apply(s, record)
}

// apply applies a record. The caller holds s.shared.mu.
func (t *sessions) apply(s *session, record replica.Session) error {
	p := s.shared
	switch {
	case record.Principal != s.digest:
		return replica.ErrNoSession
	case record.Version == p.record.Version && bytes.Equal(record.Data, p.record.Data):
		return nil
	}
	before := p.record.Data
	if record.Version <= p.record.Version { // the store lost its last writes, such as by a failover
		before = nil
	}
	if err := s.conversation().Merge(before, record.Data); err != nil {
		return err // the former record stays, so that no save removes changes that were not applied
	}
	switch record.Listener {
	case "", p.record.Listener, t.shared.process:
	default:
		s.yield()
	}
	p.record = record
	return nil
}

// lost handles an error of the store, and returns it. A session without a record has ended.
func (t *sessions) lost(s *session, err error) error {
	switch {
	case err == nil, errors.Is(err, legacy.ErrEnded), t.shared.life.Err() != nil: // the session or the process ends
	case !errors.Is(err, replica.ErrNoSession):
		t.shared.failed(err)
	case t.take(s):
		t.drop(s, errSessionGone)
	}
	return err
}

// refresh reads the record of a session if it may have changed. It reports whether the session
// exists. While the store fails, a known session is served as before.
func (t *sessions) refresh(s *session) bool {
	p := s.shared
	if p == nil || p.stale.Load() == 0 || s.conversation() == nil { // or it is being opened
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.stale.Load()
	if n == 0 { // another goroutine read it meanwhile
		return t.isKnown(s.id)
	}
	err := t.lost(s, t.reload(s))
	if err == nil {
		p.stale.Add(-n)
	}
	return !errors.Is(err, replica.ErrNoSession)
}

// changed is called by the store after a change. It does not wait.
func (t *sessions) changed(key string) {
	t.shared.mu.Lock()
	defer t.shared.mu.Unlock()
	due := []*session{t.shared.byKey[key]}
	if key == "" {
		due = slices.Collect(maps.Values(t.shared.byKey))
	}
	if len(due) == 0 || due[0] == nil || t.shared.ended {
		return
	}
	for _, s := range due {
		s.shared.stale.Add(1)
	}
	t.shared.readers.Go(func() { // ends when the records are read
		for _, s := range due {
			t.refresh(s)
		}
	})
}

// keep extends the life of the records of sessions that were used here, at most once in a quarter of
// the idle timeout.
func (t *sessions) keep() {
	for _, s := range t.toKeep() {
		now := int64(time.Since(t.begin))
		err := t.lost(s, t.shared.Keep(context.Background(), s.shared.key, t.opts.Sessions.IdleTimeout))
		if err == nil {
			s.shared.kept.Store(now)
		} else if !errors.Is(err, replica.ErrNoSession) {
			return // the next sweep tries again
		}
	}
}

// refreshStale reads records again that could not be read when they changed.
func (t *sessions) refreshStale() {
	t.shared.mu.Lock()
	all := slices.Collect(maps.Values(t.shared.byKey))
	t.shared.mu.Unlock()
	for _, s := range all {
		t.refresh(s) // returns at once if the record is current
	}
}

func (t *sessions) toKeep() (due []*session) {
	now, idle := time.Since(t.begin), t.opts.Sessions.IdleTimeout
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.byID {
		if s.shared == nil || !s.used {
			continue
		}
		kept := time.Duration(s.shared.kept.Load())
		if kept == 0 || now-kept >= idle/4 && (s.users > 0 || s.touched > kept) {
			due = append(due, s)
		}
	}
	return due
}

// drop closes a session that is not in the table any more. Its record stays for other processes.
func (t *sessions) drop(s *session, cause error) {
	s.mu.Lock()
	s.dropped = true
	s.mu.Unlock()
	t.leave(s, cause)
}

// removeRecord deletes the record of a session whose client ends it.
func (t *sessions) removeRecord(s *session) *refusal {
	if s.shared == nil {
		return nil
	}
	t.shared.remove(s) // the end is not that of another process
	if err := t.shared.Delete(context.Background(), s.shared.key); err != nil {
		t.shared.add(s)
		s.shared.stale.Add(1) // it may be deleted
		return t.shared.failed(err)
	}
	return nil
}
