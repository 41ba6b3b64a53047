package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
)

const (
	// senderLease is how long a sender holds its subscriptions after the last renewal, and senderRenewal the time
	// between renewals.
	senderLease, senderRenewal = 15 * time.Second, 3 * time.Second
	// senderMargin is the time before the end of the lease at which a process stops to deliver: requests that are
	// in flight end meanwhile.
	senderMargin = 3 * time.Second
	// senderWait limits the wait of OpenWebhooks. The lease of a process that was killed ends earlier.
	senderWait, senderPoll = senderLease + 5*time.Second, 250 * time.Millisecond
	// webhooksBatch limits the subscriptions that All reads at once: at most 25 MiB.
	webhooksBatch = 100
)

// ErrInUse means that another process delivers to the subscriptions of the sender.
var ErrInUse = errors.New("postgres: in use by another process")

// A WebhookStore is a [webhook.Store] for a single process at a time. It is safe for concurrent use.
//
// Its values contain the secrets of the subscriptions without encryption: anyone who reads the tables, or a
// backup, can forge deliveries.
type WebhookStore struct {
	store  *Store
	name   string
	sender []byte // digest of the name
	holder string // of the lease

	stop    context.CancelFunc // of the renewal
	renewal sync.WaitGroup
	lost    chan struct{} // closed when the lease is lost
}

var _ webhook.LeasedStore = (*WebhookStore)(nil)

// OpenWebhooks returns the subscriptions of a sender, which a name identifies within the store. Only one
// process at a time may deliver, so OpenWebhooks takes a lease, which the process renews every 3 seconds.
// The lease of a process that was killed ends after 15 seconds. OpenWebhooks waits up to 20 seconds for
// it, and returns [ErrInUse] if another process still holds the lease. ctx limits the wait only.
//
// A process that cannot renew its lease in time loses it: its [webhook.Sender] stops, and all changes
// return ErrInUse. Then the program closes the Sender and the WebhookStore, and opens both again.
//
// A subscription is durable when Put returns, unless the server turns synchronous_commit or fsync off.
// Subscriptions do not expire by themselves: the Sender deletes them.
func (s *Store) OpenWebhooks(ctx context.Context, name string) (*WebhookStore, error) {
	w := &WebhookStore{store: s, name: name, sender: digest(name), holder: rand.Text(), lost: make(chan struct{})}
	held, err := w.hold(ctx)
	if err != nil {
		return nil, err
	}
	renewing, stop := context.WithCancel(context.Background())
	w.stop = stop
	w.renewal.Go(func() { w.renew(renewing, held) })
	return w, nil
}

// hold waits for the lease, and returns a time at which the lease had not begun.
func (w *WebhookStore) hold(ctx context.Context) (held time.Time, err error) {
	for limit := time.Now().Add(senderWait); ; {
		held = time.Now()
		n, err := w.store.number(ctx, "hold webhooks", 0, w.sender, w.holder, senderLease)
		if err != nil {
			return held, errors.Join(err, w.release()) // the server may have begun the lease
		}
		if n == 1 { // a change that began during the lease of another process may still go on
			if err = w.store.query(ctx, "settle webhooks", 0, nil); err != nil {
				err = errors.Join(err, w.release())
			}
			return held, err
		}
		if time.Now().After(limit) {
			return held, w.inUse("another process renews its lease: end that process first")
		}
		select {
		case <-time.After(senderPoll):
		case <-ctx.Done():
			return held, fmt.Errorf("%w: %w", w.inUse("the lease of another process did not end"), context.Cause(ctx))
		}
	}
}

func (w *WebhookStore) inUse(reason string) error {
	return fmt.Errorf("%w: %s: webhooks of %.200q: %s", ErrInUse, w.store.server, w.name, reason)
}

// renew renews the lease, which was held since a time, until ctx ends. Failed attempts are repeated while the
// lease lasts.
func (w *WebhookStore) renew(ctx context.Context, held time.Time) {
	for {
		end := held.Add(senderLease - senderMargin)
		select {
		case <-time.After(min(senderRenewal, time.Until(end))):
		case <-ctx.Done():
			return
		}
		limited, cancel := context.WithDeadline(ctx, end)
		begin := time.Now()
		n, err := w.store.number(limited, "renew webhooks", 0, w.sender, w.holder, senderLease)
		late := limited.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil && n == 1 && !late:
			held = begin
		case err == nil || late || errors.Is(err, ErrClosed):
			close(w.lost)
			return
		}
	}
}

// release ends the lease, so that another process need not wait for its end.
func (w *WebhookStore) release() error {
	return w.store.query(context.Background(), "release webhooks", 0, nil, w.sender, w.holder)
}

// Close ends the lease. It must be called after the Close of the [webhook.Sender], and before the Close of
// the [Store]. Afterwards changes return [ErrInUse]. The error is that the lease ends only by itself.
func (w *WebhookStore) Close() error {
	w.stop()
	w.renewal.Wait()
	return w.release()
}

// Lost returns a channel that is closed when the lease is lost, 3 seconds before another process can hold it.
func (w *WebhookStore) Lost() <-chan struct{} { return w.lost }

// Durable returns true.
func (w *WebhookStore) Durable() bool { return true }

// Put adds or replaces a record. The error is [ErrInUse] without the lease.
func (w *WebhookStore) Put(ctx context.Context, r webhook.Record) error {
	if err := r.Check(); err != nil {
		return err
	}
	return w.change(ctx, "put webhook", len(r.Data), []byte(r.ID), append([]byte{}, r.Data...))
}

// Delete removes a record. The error is [ErrInUse] without the lease.
func (w *WebhookStore) Delete(ctx context.Context, id string) error {
	return w.change(ctx, "delete webhook", 0, []byte(id))
}

// change runs a statement that changes nothing and returns 0, or no row, unless the lease is held.
func (w *WebhookStore) change(ctx context.Context, op string, size int, args ...any) error {
	n, err := w.store.number(ctx, op, size, append([]any{w.sender, w.holder}, args...)...)
	if err == nil && n == 0 {
		err = w.inUse("the lease was lost: open the store again")
	}
	return err
}

// All returns the records in the order of their IDs.
func (w *WebhookStore) All(ctx context.Context) iter.Seq2[webhook.Record, error] {
	return func(yield func(webhook.Record, error) bool) {
		for after := []byte{}; ; {
			var found []webhook.Record // the loop may need the connection
			err := w.store.query(ctx, "list webhooks", webhook.MaxRecord, func(row pgx.Rows) error {
				var r webhook.Record
				err := row.Scan(&after, &r.Data)
				r.ID = string(after)
				found = append(found, r)
				return err
			}, w.sender, after, webhooksBatch)
			if err != nil {
				yield(webhook.Record{}, err)
				return
			}
			for _, r := range found {
				if !yield(r, nil) {
					return
				}
			}
			if len(found) < webhooksBatch {
				return
			}
		}
	}
}
