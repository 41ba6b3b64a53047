package webhook

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// saveEvery and saveChanges are how often the progress of a subscription is stored while its
	// deliveries succeed: after a second, or after 256 events, which make two changes each. After
	// the process was killed, these events are sent again; receivers must recognize so many.
	saveEvery   = time.Second
	saveChanges = 2 * 256
	// maxSecrets limits the secrets that sign at the same time, if a client replaces its secret
	// again and again.
	maxSecrets = 3
	// suspendAfter and suspendFailures are when a Sender stops to deliver: after an hour without a
	// success and more failures than a short breakdown causes.
	suspendAfter    = time.Hour
	suspendFailures = 20
	// dropAfter is when a subscription without end is removed. Nobody refreshed it meanwhile.
	dropAfter = 7 * 24 * time.Hour
	// minBackoff and maxBackoff are the times between attempts to follow a feed that failed.
	minBackoff, maxBackoff = time.Second, time.Minute
)

// errRefreshed ends a loop over [Feed.Follow] whose subscription now belongs to a caller with other rights.
var errRefreshed = errors.New("webhook: the caller of the subscription changed")

// A subscription delivers the events of a feed to a URL. Its record is guarded by mu, except the
// fields that never change.
type subscription struct {
	sender *Sender
	id     string
	owner  string          // the key of the principal
	ctx    context.Context // ends with the subscription, and with the sender
	cancel context.CancelFunc
	ready  chan struct{} // closed when the subscription is in the store
	wake   chan struct{} // buffered(1): a refresh resumes the deliveries
	timer  *time.Timer   // of the expiry

	mu     sync.Mutex  // guards the fields below
	record             // Name, Arguments, Scope and URL never change
	again  func()      // makes the feed follow the subscription as it is now; nil before the first loop
	later  *time.Timer // stores the record if it changed
	dirty  bool        // the record changed since it was stored
	count  int         // of the changes since then
	ended  bool        // the record must not be stored any more
	orphan bool        // the subscription has ended, and its record could not be deleted
}

// newSubscription returns the subscription of a request.
func (s *Sender) newSubscription(id string, r Request, secret Secret) *subscription {
	return s.openSubscription(id, &record{
		Version: recordVersion, Name: r.Name, Arguments: r.Arguments, URL: r.URL,
		Principal: storedPrincipal(r.Principal), Scope: r.Scope, Details: r.Details,
		Secrets: []storedSecret{{Secret: secret.Reveal(), parsed: secret}},
	})
}

func (s *Sender) openSubscription(id string, r *record) *subscription {
	sub := &subscription{sender: s, id: id, owner: r.Principal.public().Key(), record: *r,
		ready: make(chan struct{}), wake: make(chan struct{}, 1)}
	sub.ctx, sub.cancel = context.WithCancel(s.ctx)
	return sub
}

// subject returns the subscription as the feed knows it.
func (d *subscription) subject() events.Subscription {
	return events.Subscription{Principal: d.Principal.public(), Name: d.Name, Arguments: d.Arguments,
		Scope: d.Scope, Details: d.Details}
}

// release reports whether the subscription has ended, and leaves its record to another.
func (d *subscription) release() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended {
		d.orphan = false
		d.timer.Stop()
	}
	return d.ended
}

// schedule sets the timer of the expiry.
func (d *subscription) schedule() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended || d.Expires.IsZero() {
		d.timer.Stop()
		return
	}
	d.timer.Reset(time.Until(d.Expires))
}

// end ends the subscription and removes its record from the store, if a condition holds. It reports
// whether the subscription ended now. It holds the lock during both, so that a new subscription with
// the same ID cannot be stored in between. If the record cannot be deleted, it can be called again,
// as the timer does.
func (d *subscription) end(ctx context.Context, condition func() bool) (ended bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.orphan && (d.ended || !condition()) {
		return false, nil
	}
	d.ended = true
	d.cancel()
	err = d.sender.delete(ctx, d.id)
	if d.orphan = err != nil; d.orphan {
		d.timer.Reset(maxBackoff)
	} else {
		d.timer.Stop()
	}
	return true, err
}

func always() bool { return true }

// isOver reports whether the end of the subscription has come. The caller holds mu.
func (d *subscription) isOver() bool { return !d.Expires.IsZero() && !d.Expires.After(time.Now()) }

// refresh applies a request for this subscription. It returns nil if the subscription has ended.
//
// Spec: SEP-3415, Subscription identity.
func (d *subscription) refresh(ctx context.Context, r Request, secret Secret) (*Grant, error) {
	d.mu.Lock()
	defer d.schedule()
	defer d.mu.Unlock()
	if d.ended {
		return nil, nil
	}
	now := time.Now()
	status := &Status{!d.Suspended, d.LastDelivery, d.LastError, d.FailedSince}
	before := d.record
	d.Principal.Scopes, d.Details = r.Principal.Scopes, r.Details
	d.rotate(secret, now)
	d.Expires = d.sender.expiry(r)
	d.Gap = false
	if d.Suspended {
		d.Suspended, d.Failures, d.FailedSince, d.Pending = false, 0, time.Time{}, pending{}
	}
	if err := d.put(ctx); err != nil {
		d.record = before // the client does not learn of the changes
		return nil, err
	}
	isSame := slices.Equal(before.Principal.Scopes, d.Principal.Scopes) && bytes.Equal(before.Details, d.Details)
	if !isSame && d.again != nil {
		d.again()
	}
	if before.Suspended {
		select {
		case d.wake <- struct{}{}:
		default:
		}
	}
	return &Grant{ID: d.id, Expires: d.Expires, Cursor: d.Cursor, Truncated: before.Gap, Status: status}, nil
}

// rotate replaces the secret. The old secret signs for some time too. The caller holds mu.
func (d *subscription) rotate(secret Secret, now time.Time) {
	if d.Secrets[0].parsed == secret {
		return
	}
	old := slices.Clone(d.Secrets)
	old[0].Until = now.Add(secretGrace)
	old = slices.DeleteFunc(old, func(s storedSecret) bool {
		return s.parsed == secret || !s.Until.After(now)
	})
	all := append([]storedSecret{{Secret: secret.Reveal(), parsed: secret}}, old...)
	d.Secrets = all[:min(len(all), maxSecrets)]
}

// secrets returns the secrets that sign now.
func (d *subscription) secrets(now time.Time) []Secret {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]Secret, 0, maxSecrets)
	for _, s := range d.Secrets {
		if s.Until.IsZero() || s.Until.After(now) {
			all = append(all, s.parsed)
		}
	}
	return all
}

// save stores the record.
func (d *subscription) save(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.put(ctx)
}

// flush stores the record if it changed, for the last time.
func (d *subscription) flush(ctx context.Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.timer.Stop()
	var err error
	if d.dirty {
		err = d.put(ctx)
	}
	if d.orphan {
		err = d.sender.delete(ctx, d.id)
	}
	d.ended, d.orphan = true, false
	return err
}

// put stores the record. The caller holds mu.
func (d *subscription) put(ctx context.Context) error {
	d.count = 0
	if d.ended {
		return nil
	}
	data, err := jsonv2.Marshal(&d.record)
	if err == nil {
		err = d.sender.o.Store.Put(ctx, Record{ID: d.id, Data: data})
	}
	d.dirty = err != nil
	return err
}

// changed stores the record soon. The caller holds mu.
func (d *subscription) changed() {
	d.dirty = true
	if d.count++; d.count >= saveChanges {
		d.putOrLater(d.sender.ctx)
		return
	}
	if d.later == nil && !d.ended {
		d.later = time.AfterFunc(saveEvery, d.saveLater)
	}
}

func (d *subscription) saveLater() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.later = nil
	if d.dirty {
		d.putOrLater(d.sender.ctx)
	}
}

// putOrLater stores the record. If that fails, it is stored later. The caller holds mu.
func (d *subscription) putOrLater(ctx context.Context) {
	if err := d.put(ctx); err != nil && ctx.Err() == nil {
		d.sender.o.Logger.Error("webhook: the progress of a subscription is not stored", "id", d.id, "error", err)
		d.changed()
	}
}

// run delivers until the subscription ends.
func (d *subscription) run() {
	select {
	case <-d.ready:
	case <-d.ctx.Done():
		return
	}
	backoff := minBackoff
	for d.ctx.Err() == nil {
		moved, err := d.follow()
		if errors.Is(err, errRefreshed) {
			backoff = minBackoff
			continue
		}
		if ended, ok := errors.AsType[*mcp.Error](err); ok && isFinal(ended) {
			d.terminate(ended)
			return
		}
		if moved {
			backoff = minBackoff
		}
		if err != nil && d.ctx.Err() == nil {
			d.warn(err)
		}
		sleep(d.ctx, withJitter(backoff))
		backoff = min(2*backoff, maxBackoff)
	}
}

// isFinal reports whether an error ends a subscription.
func isFinal(e *mcp.Error) bool {
	switch e.Code {
	case events.CodeNotFound, events.CodeForbidden, events.CodeUnsupported, events.CodeCallbackEndpoint,
		mcp.CodeInvalidParams:
		return true
	}
	return false
}

// follow delivers the items of the feed after the cursor. It reports whether there was any. After a refresh that
// changed the caller it returns errRefreshed: an item that was not handled by then is decided about again.
func (d *subscription) follow() (moved bool, err error) {
	ctx, cancel := context.WithCancelCause(d.ctx)
	defer cancel(nil)
	d.mu.Lock()
	cursor, subject := d.Cursor, d.subject()
	d.again = func() { cancel(errRefreshed) }
	d.mu.Unlock()
	for item, err := range d.sender.feed.Follow(ctx, subject, cursor) {
		if ctx.Err() == nil && err == nil {
			err = d.handle(item)
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			return moved, err
		}
		moved = true
	}
	return moved, context.Cause(ctx)
}

// handle delivers an item.
func (d *subscription) handle(item events.Item) error {
	if item.Failure != nil {
		return nil // the feed tries again
	}
	cursor, skipped := item.Cursor, item.Gap
	if event := item.Event; event != nil {
		if err := d.sendGap(); err != nil {
			return err
		}
		result, err := d.sendEvent(event, cursor)
		if err != nil {
			return err
		}
		skipped = result == givenUp
	}
	d.moveTo(cursor, skipped)
	if item.Gap {
		return d.sendGap()
	}
	return nil
}

// moveTo sets the cursor. Without cursors the client does not learn of a gap, because there is no
// position that it could have lost.
//
// Spec: SEP-3415, Cursor Lifecycle, Gaps and truncated.
func (d *subscription) moveTo(cursor string, skipped bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if skipped && cursor != "" {
		d.Gap = true
	} else if d.Cursor == cursor {
		return
	}
	d.Cursor = cursor
	d.changed()
}
