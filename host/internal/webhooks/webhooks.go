// Package webhooks delivers the events of servers to the URLs of callers.
//
// A subscription outlives the request that made it, and the process. So the package stores who subscribed where,
// and judges the subscription again before each event: as the caller may act now, and by the policy that is in
// force. Signatures, the proof of an endpoint, retries and storage belong to package ext/events/webhook.
//
// Spec: SEP-3415, Webhook-Based Delivery.
package webhooks

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	extevents "github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/events"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxPerPrincipal and maxAll limit the subscriptions, as for streams: an agent follows few things at once, and
	// each subscription holds a request at its server.
	maxPerPrincipal = 64
	maxAll          = 2048
	// beginWait limits how long a server may take to accept a subscription.
	beginWait = 10 * time.Second
	// adoptWait is how long a feed waits until its endpoint has answered the challenge, which takes 5 seconds at
	// most.
	adoptWait = 30 * time.Second
	// callerAge is for how long the credentials of a caller are not looked up again: as for requests.
	callerAge = time.Second
	// checkInterval is the interval of checks that a caller may still subscribe, while there are no events.
	checkInterval = 15 * time.Second
)

// A Subscription is the subscription of a caller to a type of events.
type Subscription interface {
	// Feed returns the events of the server, and the position at which they begin.
	Feed() (*events.Feed, events.Request)
	// Cursor returns the position after an item for the caller; empty without one.
	Cursor(i *events.Item) string
	// Permit returns the error that ends the subscription of a caller who may no longer subscribe, or
	// [authorize.ErrUndecided].
	Permit(ctx context.Context) error
	// Deliver gives an event the name and data for the caller. The error means that the caller must not receive it;
	// after [authorize.ErrUndecided] it must be called again.
	Deliver(ctx context.Context, e *events.Event) error
	// Ended returns the error that ends the subscription after its feed ended, or an error after which the feed
	// begins again.
	Ended(err error) error
	// Take takes a place in the limits of the principal, until release is called.
	Take() (release func(), err error)
}

// Options configure [Webhooks]. Store and Open are required.
type Options struct {
	Store   webhook.Store
	Fetcher *oauth.Fetcher // nil for the default
	// Current returns a stored caller as it may act now. An [*mcp.Error] ends the subscription; after another error
	// the caller is looked up again. Default: callers do not change.
	Current lookup
	// Endless reports whether a caller with a principal may have a subscription without end, which requires a durable
	// store and that Current learns when the caller loses its rights. Default: nobody.
	Endless func(c *policy.Caller) bool
	// Open returns the subscription of a request, of a caller whose own request ended.
	Open func(ctx context.Context, c *policy.Caller, req *mcp.Request, cursor string) (Subscription, error)
	// Logger is required.
	Logger *slog.Logger
}

// Webhooks deliver the events of subscriptions to their URLs. They are safe for concurrent use.
type Webhooks struct {
	o      Options
	sender *webhook.Sender
	parked sync.Map        // by the key of a subscription: the *parked feed that has begun
	ctx    context.Context // of all feeds
	cancel context.CancelFunc
}

// New returns Webhooks, which deliver after a call of Start.
func New(o *Options) *Webhooks {
	w := &Webhooks{o: *o}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	w.sender = webhook.NewSender(&webhook.SenderOptions{Store: o.Store, Fetcher: o.Fetcher, Logger: o.Logger,
		NoExpiry: o.Store.Durable(), MaxSubscriptions: maxAll, MaxPerPrincipal: maxPerPrincipal})
	return w
}

// Start begins to deliver, at first for the subscriptions in the store. It must be called once. After an error, w is
// closed.
func (w *Webhooks) Start(ctx context.Context) error {
	err := w.sender.Start(ctx, w)
	if err != nil {
		w.Close() // the subscriptions that were read before the error deliver already
	}
	return err
}

// Close stops the deliveries. Subscriptions remain in the store.
func (w *Webhooks) Close() {
	if err := w.sender.Close(); err != nil {
		w.o.Logger.Error("host: the progress of webhooks is not stored: their last events will be sent again",
			"error", err)
	}
	w.cancel()
}

// A beginning is a request events/subscribe. Its context carries it to Begin.
type beginning struct {
	sub      Subscription
	isRepeat bool // the subscription exists
}

type beginningKey struct{}

// Subscribe serves events/subscribe of a caller, which the policy has allowed.
func (w *Webhooks) Subscribe(
	ctx context.Context, req *mcp.Request, c *policy.Caller, sub Subscription,
) (mcp.Result, error) {
	own, err := encode(c, req.ClientInfo())
	if err != nil {
		return nil, err
	}
	b := &beginning{sub: sub}
	return w.sender.Answer(context.WithValue(ctx, beginningKey{}, b), req, func(r *webhook.Request) {
		r.Principal, r.Scope, r.Details = c.Principal, scope(c), withURL(own, r.URL)
		if r.NoExpiry && (c.Principal == nil || w.o.Endless == nil || !w.o.Endless(c)) {
			r.NoExpiry = false // the caller is granted the default lifetime, and refreshes
		}
		b.isRepeat = w.sender.Has(r.Subscription, r.URL)
	})
}

// Unsubscribe serves events/unsubscribe of a caller.
func (w *Webhooks) Unsubscribe(ctx context.Context, req *mcp.Request, c *policy.Caller) (mcp.Result, error) {
	return w.sender.Answer(ctx, req, func(r *webhook.Request) { r.Principal, r.Scope = c.Principal, scope(c) })
}

// Begin implements [webhook.Feed]. Without a request, it decides whether a delivery may be repeated.
func (w *Webhooks) Begin(
	ctx context.Context, s extevents.Subscription, at extevents.Start,
) (cursor string, truncated bool, err error) {
	b, ok := ctx.Value(beginningKey{}).(*beginning)
	switch {
	case ok && b.isRepeat:
		return at.Cursor, false, nil
	case ok:
		return w.begin(ctx, s, b.sub)
	}
	_, sub, err := w.open(ctx, s, "")
	if err == nil {
		err = sub.Permit(ctx)
	}
	return at.Cursor, false, err
}

// open returns the subscription of a stored caller.
func (w *Webhooks) open(ctx context.Context, s extevents.Subscription, cursor string) (*identity, Subscription, error) {
	id, err := identify(ctx, s, w.o.Current)
	if err != nil {
		return nil, nil, err
	}
	req, err := id.request(s)
	if err != nil {
		return nil, nil, err
	}
	sub, err := w.o.Open(ctx, id.caller, req, cursor)
	return id, sub, err
}

// A parked feed has begun and waits for the endpoint to be proven, so that no event in between is lost.
type parked struct {
	*events.Flow
	cursor  string
	release func()
	timer   *time.Timer
}

func keyOf(s extevents.Subscription) string {
	return fmt.Sprintf("%q", []string{s.Principal.Key(), s.Scope, s.Name, string(s.Arguments), urlOf(s)})
}

// begin begins to read the events of a server, and returns their first position.
func (w *Webhooks) begin(
	ctx context.Context, s extevents.Subscription, sub Subscription,
) (cursor string, truncated bool, err error) {
	release, err := sub.Take()
	if err != nil {
		return "", false, err
	}
	feed, at := sub.Feed()
	p := &parked{Flow: feed.Start(w.ctx, at), release: release}
	timer := time.NewTimer(beginWait)
	defer timer.Stop()
	err = mcp.Errorf(mcp.CodeInternalError, "the server has not accepted the subscription in time")
	select {
	case i, more := <-p.Items:
		if more {
			p.cursor = sub.Cursor(&i)
			w.park(keyOf(s), p)
			return p.cursor, i.Truncated, nil
		}
		if err = p.Err(); err == nil {
			err = context.Canceled // the host is closed
		}
	case <-timer.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.end()
	return "", false, err
}

func (p *parked) end() {
	p.release()
	p.Stop()
}

// park holds a feed until the Sender follows it.
func (w *Webhooks) park(key string, p *parked) {
	p.timer = time.AfterFunc(adoptWait, func() {
		if w.parked.CompareAndDelete(key, p) {
			p.end()
		}
	})
	if before, ok := w.parked.Swap(key, p); ok {
		other, _ := before.(*parked)
		other.timer.Stop()
		other.end()
	}
}

// adopt returns the feed of a subscription that begins at a cursor, or a new feed.
func (w *Webhooks) adopt(s extevents.Subscription, sub Subscription, cursor string) *events.Flow {
	if found, ok := w.parked.LoadAndDelete(keyOf(s)); ok {
		p, _ := found.(*parked)
		p.timer.Stop()
		p.release()
		if p.cursor == cursor {
			return p.Flow
		}
		p.Stop()
	}
	feed, at := sub.Feed()
	return feed.Start(w.ctx, at)
}

// errChanged: the caller may do more or less than before, so the feed begins again for it.
var errChanged = errors.New("the rights of the caller changed")

// Follow implements [webhook.Feed].
func (w *Webhooks) Follow(
	ctx context.Context, s extevents.Subscription, cursor string,
) iter.Seq2[extevents.Item, error] {
	return func(yield func(extevents.Item, error) bool) {
		f := &following{webhooks: w, subscription: s, cursor: cursor, yield: yield}
		err := errChanged
		for errors.Is(err, errChanged) {
			err = f.run(ctx)
		}
		if err != nil && ctx.Err() == nil {
			yield(extevents.Item{}, err)
		}
	}
}

// A following passes the events of a server to the Sender for a stored subscription.
type following struct {
	webhooks     *Webhooks
	subscription extevents.Subscription
	cursor       string // after the last item
	yield        func(extevents.Item, error) bool

	sub     Subscription
	caller  *identity
	checked time.Time // when the caller was looked up
}

// run follows the server until ctx or the Sender ends it, which is no error. It returns errors of [webhook.Feed], and
// errChanged.
func (f *following) run(ctx context.Context) (err error) {
	if f.caller, f.sub, err = f.webhooks.open(ctx, f.subscription, f.cursor); err != nil {
		return err
	}
	f.checked = time.Now()
	flow := f.webhooks.adopt(f.subscription, f.sub, f.cursor)
	defer flow.Stop()
	tick := time.NewTicker(checkInterval)
	defer tick.Stop()
	for {
		item := extevents.Item{Cursor: f.cursor}
		select {
		case i, more := <-flow.Items:
			if !more {
				return f.sub.Ended(flow.Err())
			}
			if item, err = f.judge(ctx, &i); err != nil {
				return err
			}
		case <-tick.C:
			if err := f.permit(ctx); err != nil && !errors.Is(err, authorize.ErrUndecided) {
				return err
			}
		case <-ctx.Done():
			return nil
		}
		f.cursor = item.Cursor
		if !f.yield(item, nil) {
			return nil
		}
	}
}

// permit decides whether the caller may still subscribe.
func (f *following) permit(ctx context.Context) error {
	if now := time.Now(); now.Sub(f.checked) >= callerAge {
		caller, err := identify(ctx, f.subscription, f.webhooks.o.Current)
		if err != nil {
			return err
		}
		if caller.encoded != f.caller.encoded {
			return errChanged
		}
		f.checked = now
	}
	return f.sub.Permit(ctx)
}

// judge returns an item of the server for the Sender, once the policy could decide about it.
func (f *following) judge(ctx context.Context, i *events.Item) (item extevents.Item, err error) {
	err = authorize.Await(ctx, func() error {
		if err := f.permit(ctx); err != nil {
			return err
		}
		item, err = f.item(ctx, i)
		return err
	}, func(err error) error {
		f.webhooks.o.Logger.WarnContext(ctx, "host: an event of a webhook waits for a decision of the policy", "event",
			f.subscription.Name, "error", err)
		return nil
	})
	return item, err
}

// item returns an item of the server for the Sender. An event that the caller must not receive becomes a position.
// The error is [authorize.ErrUndecided].
func (f *following) item(ctx context.Context, i *events.Item) (extevents.Item, error) {
	item := extevents.Item{Cursor: f.sub.Cursor(i)}
	switch {
	case i.Begins:
		item.Gap = i.Truncated
	case i.Err != nil:
		f.webhooks.o.Logger.DebugContext(ctx, "host: events of a webhook interrupted", "event", f.subscription.Name,
			"error", i.Err)
		item.Failure = mcp.Errorf(mcp.CodeInternalError, "the server cannot be reached")
	case i.Event != nil:
		e := *i.Event
		switch err := f.sub.Deliver(ctx, &e); {
		case errors.Is(err, authorize.ErrUndecided):
			return item, err
		case err == nil:
			item.Event = &extevents.Delivered{ID: e.ID, Name: e.Name, Time: e.Time, Data: e.Data, Cursor: item.Cursor}
		}
	}
	return item, nil
}
