package events

import (
	"cmp"
	"context"
	"encoding/json"
	"iter"
	"slices"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxBatch limits the occurrences that are read at once, maxBatchBytes the size of their payloads
	// unless a source provides no cursors to divide them.
	maxBatch      = 1000
	maxBatchBytes = 4 << 20
	// minRetry and maxRetry are the first and the longest delay after a failure of a source.
	minRetry = time.Second
	maxRetry = time.Minute
)

// A Subscription selects occurrences for a caller.
type Subscription struct {
	Principal *mcp.Principal
	Name      string          // of the event type
	Arguments json.RawMessage // a JSON object; nil means an empty object
	// Scope is the part of the program that the caller uses, such as an endpoint of a gateway. Equal
	// subscriptions of different scopes are different subscriptions. Default: the only part.
	Scope string
	// Details contain the knowledge of the program about the caller of a webhook, such as its
	// claims: a JSON value of at most 32 KiB, which each refresh replaces. Default: nothing.
	Details json.RawMessage
}

// A Start is where the delivery to a subscription begins.
type Start struct {
	// Cursor is a position that the client received, empty to start now.
	Cursor string
	// MaxAge is the age of the oldest occurrence to deliver, zero for no limit. It has no effect
	// without a cursor.
	MaxAge time.Duration
}

// A Feed delivers the occurrences of a subscription. It is for packages that implement a delivery
// mode; see [Server.Open]. It has no resources to release.
type Feed struct {
	// Cursor is the position at which the delivery begins; empty if there is no replay.
	Cursor string
	// Truncated reports that occurrences after the client's cursor were skipped.
	Truncated bool

	entry   *entry
	caller  *mcp.Principal
	reader  reader
	first   *batch
	version int64     // of the source, before the first batch was read
	since   time.Time // of the replay; zero if it is not limited
}

// An Item is an element of [Feed.Items]: an occurrence, a gap, a failure, or a sign of life.
type Item struct {
	// Event is the occurrence, nil for other items.
	Event *Delivered
	// Cursor is the position after the item, empty if there is no replay.
	Cursor string
	// Gap reports that occurrences were skipped before Cursor.
	Gap bool
	// Failure is a failure of the source, for the client. The feed tries again.
	Failure *mcp.Error
}

// Open opens a subscription of a delivery mode. It checks the name, the arguments and the permission
// of the caller, and reads the first occurrences. The error is an [*mcp.Error] that says why the
// subscription is invalid, or a failure of the source, which is not for the client.
//
// Spec: SEP-3415, Event delivery; Cursor Lifecycle; Authorization.
func (s *Server) Open(ctx context.Context, mode Mode, sub Subscription, at Start) (*Feed, error) {
	return s.openAt(ctx, mode, sub, at, s.opts.MaxEvents)
}

func (s *Server) openAt(ctx context.Context, mode Mode, sub Subscription, at Start, limit int) (*Feed, error) {
	ctx = mcp.WithPrincipal(ctx, sub.Principal)
	n, e, err := s.find(ctx, sub.Name)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(e.Delivery, mode) {
		return nil, Unsupported("deliveryMode", string(mode))
	}
	args := sub.Arguments
	switch {
	case args == nil:
		args = json.RawMessage("{}")
	case len(args) > maxArgument:
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.arguments has %d bytes, want at most %d",
			len(args), maxArgument)
	}
	f := &Feed{entry: n, caller: sub.Principal}
	if f.reader, err = n.bind(n.input.ApplyDefaults(args)); err != nil {
		return nil, err
	}
	if err := f.reader.authorize(ctx); err != nil {
		return nil, err
	}
	if at.Cursor != "" && at.MaxAge > 0 {
		f.since = time.Now().Add(-at.MaxAge)
	}
	f.version = n.current()
	if f.first, err = f.read(ctx, at.Cursor, limit); err != nil {
		return nil, err
	}
	f.Truncated = f.first.truncated
	switch {
	case at.Cursor == "":
		f.Cursor = f.first.cursor
	case f.Truncated:
		f.Cursor = f.first.start
	case f.first.cursor != "":
		f.Cursor = at.Cursor
	}
	return f, nil
}

// read returns the next occurrences. It drops occurrences that are older than the replay may go, and
// divides a batch that is too large.
func (f *Feed) read(ctx context.Context, cursor string, limit int) (*batch, error) {
	b, err := f.reader.read(ctx, Position{Cursor: cursor, Since: f.since, Max: limit})
	if err != nil {
		return nil, err
	}
	if b.cursor == "" {
		b.truncated = false // Spec: SEP-3415, Gaps and truncated: there is no position to skip
	} else {
		f.drop(b, cursor)
	}
	size := 0
	for i, d := range b.events {
		size += len(d.Data)
		if (i+1 >= limit || size > maxBatchBytes) && d.Cursor != "" && i+1 < len(b.events) {
			b.events, b.cursor, b.more = b.events[:i+1], d.Cursor, true
			break
		}
	}
	if len(b.events) == 0 && b.cursor == cursor {
		b.more = false // a source that makes no progress is not read at once again
	}
	if b.next == 0 {
		b.next = f.entry.interval
	}
	return b, nil
}

// drop drops the occurrences of a batch that are too old, and sets its start: a position from which
// all others can be read again. cursor is the position of the batch.
func (f *Feed) drop(b *batch, cursor string) {
	b.start = cmp.Or(b.start, cursor)
	for _, d := range b.events {
		if !f.isTooOld(d) {
			break
		}
		b.start = cmp.Or(d.Cursor, b.start)
	}
	if kept := slices.DeleteFunc(b.events, f.isTooOld); len(kept) < len(b.events) {
		b.events, b.truncated = kept, true
	}
	if len(b.events) == 0 {
		b.start = b.cursor
	}
}

func (f *Feed) isTooOld(d *Delivered) bool { return d.Time.Before(f.since) }

// Items returns the occurrences from the begin of the feed on, in order, until ctx ends. It waits for
// the body of the loop. Without occurrences it yields an Item with the current cursor at every
// [Options].Heartbeat. The last value is an [*mcp.Error] if the server ends the subscription, because
// the event type was removed or the caller lost the permission. Items must be called once.
func (f *Feed) Items(ctx context.Context) iter.Seq2[Item, error] {
	return func(yield func(Item, error) bool) {
		r := feeding{Feed: f, ctx: mcp.WithPrincipal(ctx, f.caller), yield: yield, cursor: f.Cursor}
		opts := &f.entry.server.opts
		r.recheck = time.Now().Add(opts.Recheck)
		r.heartbeat = time.NewTimer(opts.Heartbeat)
		defer r.heartbeat.Stop()
		var stop func()
		r.changed, stop = f.entry.watch(f.version)
		defer stop()
		if err := r.run(); err != nil && ctx.Err() == nil {
			yield(Item{}, err)
		}
	}
}

// A feeding is a loop over a feed.
type feeding struct {
	*Feed
	ctx       context.Context
	yield     func(Item, error) bool
	cursor    string
	recheck   time.Time // of the permission
	heartbeat *time.Timer
	changed   <-chan struct{}
	retry     time.Duration // after the next failure
}

// run returns the reason why the server ends the subscription, or nil if the loop ended.
func (r *feeding) run() error {
	b := r.first
	r.first = nil
	b.truncated = false // Feed.Truncated reports it
	for {
		if b != nil {
			if on, err := r.deliver(b); !on {
				return err
			}
		}
		if b == nil || !b.more {
			if on, err := r.wait(b); !on {
				return err
			}
		}
		var err error
		if b, err = r.next(); err != nil {
			if e := asError(err); r.ends(e) {
				return e
			}
			if !r.failed(err) {
				return nil
			}
			b = nil
		}
	}
}

// next checks the permission if that is due, and reads.
func (r *feeding) next() (*batch, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	b, err := r.read(r.ctx, r.cursor, min(r.entry.server.opts.MaxEvents, maxBatch))
	if err == nil {
		r.retry = 0
		if !b.more {
			r.since = time.Time{} // the replay is over
		}
	}
	return b, err
}

// check returns an error if the event type was removed or, when its check is due, the permission.
func (r *feeding) check() error {
	if err := r.entry.endedBecause(); err != nil {
		return err
	}
	now := time.Now()
	if now.Before(r.recheck) {
		return nil
	}
	err := r.reader.authorize(r.ctx)
	if err == nil {
		r.recheck = now.Add(r.entry.server.opts.Recheck)
	}
	return err
}

// ends reports whether an error ends the feed, as every reason does for which an event type was removed.
func (r *feeding) ends(e *mcp.Error) bool {
	return isFinal(e) || e != nil && r.entry.endedBecause() != nil
}

// permit reports whether an occurrence of a batch may be delivered, or returns why the server ends
// the feed. While the permission cannot be determined, it waits.
func (r *feeding) permit(b *batch) (on bool, err error) {
	for r.ctx.Err() == nil {
		err := r.check()
		if err == nil {
			r.retry = 0
			return true, nil
		}
		if e := asError(err); r.ends(e) {
			return false, e
		}
		if !r.failed(err) {
			break
		}
		b.more = true // the source may have changed meanwhile
		if on, err := r.wait(nil); !on {
			return false, err
		}
	}
	return false, nil
}

// failed reports a failure of the source.
func (r *feeding) failed(err error) bool {
	if r.ctx.Err() != nil {
		return false
	}
	r.retry = min(max(2*r.retry, minRetry), maxRetry)
	public := asError(err)
	if public == nil {
		public = errFailed
		r.entry.server.opts.Logger.ErrorContext(r.ctx, "events: the source failed",
			"event", r.entry.event.Name, "retry", r.retry, "error", err)
	}
	return r.send(Item{Cursor: r.cursor, Failure: public})
}

// deliver yields the occurrences of a batch. It reports whether the feed goes on, or returns why the
// server ends it. The loop body may take hours, so it checks before each occurrence.
func (r *feeding) deliver(b *batch) (on bool, err error) {
	if b.truncated && !r.send(Item{Cursor: b.start, Gap: true}) {
		return false, nil
	}
	for i, d := range b.events {
		if on, err := r.permit(b); !on {
			return false, err
		}
		switch {
		case d.Cursor != "":
			r.cursor = d.Cursor
		case i == len(b.events)-1:
			r.cursor = b.cursor
		}
		if !r.send(Item{Event: d, Cursor: r.cursor}) {
			return false, nil
		}
	}
	r.cursor = b.cursor
	return true, nil
}

func (r *feeding) send(i Item) bool {
	r.heartbeat.Reset(r.entry.server.opts.Heartbeat)
	return r.yield(i, nil)
}

// wait waits until the source must be read again, and yields signs of life meanwhile. It reports
// whether the feed goes on, or returns why the server ends it.
func (r *feeding) wait(b *batch) (on bool, err error) {
	var poll <-chan time.Time
	delay := r.retry
	if delay == 0 && r.entry.checks && b != nil {
		delay = max(b.next, minRetry/10)
	}
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		poll = timer.C
	}
	var recheck <-chan time.Time
	if r.retry == 0 { // otherwise the permission is checked with the source
		timer := time.NewTimer(time.Until(r.recheck))
		defer timer.Stop()
		recheck = timer.C
	}
	for {
		select {
		case <-r.ctx.Done():
			return false, nil
		case <-r.changed:
			if r.retry == 0 || r.entry.endedBecause() != nil { // a source that fails is read later
				return true, nil
			}
		case <-poll:
			return true, nil
		case <-recheck:
			return true, nil
		case <-r.heartbeat.C:
			if !r.send(Item{Cursor: r.cursor}) {
				return false, nil
			}
		}
	}
}
