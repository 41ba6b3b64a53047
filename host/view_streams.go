package host

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	jsonv2 "github.com/go-json-experiment/json"

	extevents "github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/ext/events/webhook"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/events"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/internal/webhooks"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/oauth"
)

const (
	// maxSubscriptions limits the streams and the kept events of a principal: an agent follows few things at
	// once, and each holds a request at its server.
	maxSubscriptions = 64
	// maxAllSubscriptions limits the streams and the kept events of all principals, because each may keep 4 MB.
	maxAllSubscriptions = 2048
	// pollWait limits how long a poll waits until a server that pushes accepts the subscription.
	pollWait = 10 * time.Second
	// heartbeat is the interval of heartbeats to callers, and of checks that a caller may still subscribe. Clients
	// take a stream for dead after 60 seconds without a message.
	heartbeat = 15 * time.Second
)

// A seat is the place of a stream or of kept events in the limits of a principal.
type seat struct {
	principal string
	lease     *events.Lease // nil for a stream
	pool      *upstream.Pool
	name      string // of the kept events, with arguments in canonical form
	arguments string
}

// take takes a place for a subscription. The caller must delete the key.
func (h *Host) take(key any, s *seat) error {
	all, own := 0, 0
	for _, other := range h.seats.Range {
		all++
		if other.(*seat).principal == s.principal { //nolint:forcetypeassert // see seats
			own++
		}
	}
	switch {
	case own >= maxSubscriptions:
		return extevents.Exhausted("subscriptions", maxSubscriptions)
	case all >= maxAllSubscriptions:
		return extevents.Exhausted("subscriptions of all callers", maxAllSubscriptions)
	}
	h.seats.Store(key, s)
	return nil
}

// pollKept reads events that the server pushes. They are kept from the first poll on, or from the cursor of the
// server that the caller holds.
func (b *subscription) pollKept(ctx context.Context) (*events.Result, error) {
	ctx, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	own, from := b.newSeat(), &b.from.Index
	if b.from.Lease == "" && b.Cursor == nil {
		from = nil
	}
	if l := b.kept(own); l != nil {
		if r, ok, err := l.Poll(ctx, from, b.MaxEvents); ok {
			return r, err
		}
	}
	if from != nil {
		from = new(uint64)
	}
	l, h := events.NewLease(), b.view.host
	own.lease = l
	if err := h.take(l.ID, own); err != nil {
		return nil, err
	}
	feed, at := b.feed()
	h.run(func() {
		defer h.seats.Delete(l.ID)
		l.Run(h.ctx, feed, at)
	})
	r, ok, err := l.Poll(ctx, from, b.MaxEvents)
	if !ok {
		return nil, hosterr.Errorf(hosterr.CodeUnavailable, b.pool.Name(), "the subscription has ended")
	}
	if err == nil && from != nil && b.Cursor == nil {
		r.Truncated = true // the events since are lost: the server has no cursors
	}
	return r, err
}

func (b *subscription) newSeat() *seat {
	canonical := jsontext.Value(append([]byte(nil), b.Arguments...))
	if len(canonical) > 0 && canonical.Canonicalize() != nil {
		canonical = jsontext.Value(b.Arguments)
	}
	return &seat{principal: b.view.principal, pool: b.pool, name: b.Name, arguments: string(canonical)}
}

// kept returns the lease with the position of the caller, or nil.
func (b *subscription) kept(own *seat) *events.Lease {
	for id, s := range b.view.host.seats.Range {
		other := *s.(*seat) //nolint:forcetypeassert // see seats
		l := other.lease
		if other.lease = nil; l == nil || other != *own {
			continue
		}
		if id == b.from.Lease || b.from.Lease == "" && b.Cursor == nil {
			return l
		}
	}
	return nil
}

// A streamed contains the params of a notification of a stream.
type streamed struct {
	*events.Event
	Cursor    *string         `json:"cursor,omitzero"`
	Truncated *bool           `json:"truncated,omitzero"`
	Error     *mcp.Error      `json:"error,omitzero"`
	Meta      json.RawMessage `json:"_meta"`
}

// stream serves events/stream until the caller or the host ends it.
func (b *subscription) stream(ctx context.Context) (mcp.Result, error) {
	if b.req.Notify == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidRequest, "%s needs a stream for notifications", b.req.Method)
	}
	h, own := b.view.host, &seat{principal: b.view.principal}
	if err := h.take(own, own); err != nil {
		return nil, err
	}
	defer h.seats.Delete(own)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.ctx, cancel)()
	feed, at := b.feed()
	flow := feed.Start(ctx, at)
	defer flow.Stop()
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	begun := false
	for {
		var err error
		select {
		case i, more := <-flow.Items:
			if more {
				begun, err = true, b.pass(ctx, &i)
				break
			}
			if err = flow.Err(); err != nil && begun {
				_ = b.notify(ctx, events.Terminated, &streamed{Error: b.public(err)})
				err = nil
			}
			return mcp.RawResult(`{"resultType":"complete"}`), err
		case <-tick.C:
			if !begun {
				continue
			}
			if fault, _ := b.check(ctx); fault != nil {
				_ = b.notify(ctx, events.Terminated, &streamed{Error: fault})
				return mcp.RawResult(`{"resultType":"complete"}`), nil
			}
			err = b.notify(ctx, events.Heartbeat, &streamed{Cursor: b.from.Text()})
		}
		if err != nil { // the caller is gone
			return mcp.RawResult(`{"resultType":"complete"}`), nil //nolint:nilerr // the caller ended the stream
		}
	}
}

// pass sends an item to the caller, once the policy could decide about it. A position is sent with the next heartbeat.
func (b *subscription) pass(ctx context.Context, i *events.Item) error {
	before := b.from.Text()
	if i.Cursor != nil {
		b.from = events.Cursor{Server: b.pool.Name(), Position: i.Cursor}
	}
	cursor := b.from.Text()
	switch {
	case i.Begins:
		return b.notify(ctx, events.Active, &streamed{Cursor: cursor, Truncated: &i.Truncated})
	case i.Err != nil:
		return b.notify(ctx, events.Failed, &streamed{Error: b.public(i.Err)})
	case i.Event == nil:
		return nil
	}
	var e events.Event
	if err := authorize.Await(ctx, func() error {
		e = *i.Event
		return b.decide(ctx, &e)
	}, func(error) error { return b.notify(ctx, events.Heartbeat, &streamed{Cursor: before}) }); err != nil {
		return b.notify(ctx, events.Failed, &streamed{Error: b.public(err)})
	}
	return b.notify(ctx, events.Occurred, &streamed{Event: &e, Cursor: cursor})
}

func (b *subscription) notify(ctx context.Context, method string, s *streamed) error {
	s.Meta = append(append(json.RawMessage(`{"`+wire.MetaSubscriptionID+`":`), b.req.ID.String()...), '}')
	params, err := jsonv2.Marshal(s)
	if err != nil {
		return err
	}
	return b.req.Notify(ctx, method, params)
}

// public returns an error as the caller sees it within a stream. With a policy, the texts of a server, about which
// the policy does not decide, stay in the host.
func (b *subscription) public(err error) *mcp.Error {
	if e, ok := errors.AsType[*mcp.Error](err); ok {
		if b.view.host.authorize.Policy() == nil {
			return e
		}
		return mcp.Errorf(e.Code, "the server reported an error")
	}
	if e, ok := errors.AsType[*hosterr.Error](err); ok && e.Code == hosterr.CodeDenied {
		reason, _ := publicReason(e.Err)
		return extevents.Forbidden(reason)
	}
	b.view.host.opts.Logger.Debug("host: events interrupted", "server", b.pool.Name(), "event", b.Name, "error", err)
	return mcp.Errorf(mcp.CodeInternalError, "the server cannot be reached, or its events are invalid")
}

// check returns the error that ends a subscription whose caller may no longer subscribe, or
// [authorize.ErrUndecided].
func (b *subscription) check(ctx context.Context) (*mcp.Error, error) {
	v := b.view
	item, s, err := v.table.Find(ctx, catalogue.Events, b.item.Public)
	q, ok := errors.AsType[*routes.QuarantinedError](err)
	if err == nil && (item == nil || s.Name() != b.pool.Name()) || ok && q != nil {
		fault, _ := errors.AsType[*mcp.Error](catalogue.Events.Unknown(b.item.Public))
		return fault, nil
	}
	if err == nil {
		b.item = item
	}
	p := v.host.authorize.Policy()
	if p == nil {
		return nil, nil
	}
	switch d := v.host.authorize.Ask(ctx, (*callView)(v), p, b.req, b.action()); {
	case d.Undecided:
		return nil, authorize.ErrUndecided
	case d.Do != policy.OutcomeAllow:
		return extevents.Forbidden("the policy no longer allows the subscription"), nil
	}
	return nil, nil
}

// EventWebhooks configures [Host.OfferWebhooks].
type EventWebhooks struct {
	// Store keeps the subscriptions. Callers receive subscriptions without end only if it is durable.
	Store webhook.Store
	// Fetcher sends the deliveries; see [webhook.SenderOptions]. Default: an [oauth.Fetcher] without options.
	Fetcher *oauth.Fetcher
	// Caller returns the caller of a stored subscription as it may act now, since its key may have been revoked or
	// limited meanwhile. An [*mcp.Error] ends the subscription, after another error the caller is looked up again.
	// Default: callers do not change.
	Caller func(ctx context.Context, c *policy.Caller) (*policy.Caller, error)
	// Endless reports whether a caller with a principal may have a subscription without end: Caller must notice when
	// such a caller loses its rights. Other subscriptions last an hour at most. Default: no caller may.
	Endless func(c *policy.Caller) bool
}

// OfferWebhooks delivers events to the URLs of callers with a principal, which until then cannot subscribe, and
// continues the subscriptions in the store, which may start servers. It must be called at most once, before the first
// request. [Host.Close] ends the deliveries; then the caller may close the store.
func (h *Host) OfferWebhooks(ctx context.Context, o *EventWebhooks) error {
	w := webhooks.New(&webhooks.Options{Store: o.Store, Fetcher: o.Fetcher, Current: o.Caller,
		Endless: o.Endless, Logger: h.opts.Logger,
		Open: func(
			ctx context.Context, c *policy.Caller, req *mcp.Request, cursor string,
		) (webhooks.Subscription, error) {
			return (*webhookView)(h.For(c)).open(ctx, req, cursor)
		}})
	h.webhooks.Store(w) // first: the views of stored callers offer webhooks
	err := w.Start(ctx)
	if err != nil {
		h.webhooks.Store(nil)
	}
	return err
}

// A webhookView manages the webhooks of the caller of a view.
type webhookView View

// open returns the subscription of a request events/subscribe that ended.
func (v *webhookView) open(ctx context.Context, req *mcp.Request, cursor string) (webhooks.Subscription, error) {
	r, err := events.ParseRequest(req.Params)
	if err != nil {
		return nil, err
	}
	if cursor != "" {
		r.Cursor = &cursor
	}
	item, s, err := v.table.Find(upstream.WithCaller(ctx, v.caller), catalogue.Events, r.Name)
	q, ok := errors.AsType[*routes.QuarantinedError](err)
	if err == nil && item == nil || ok && q != nil {
		return nil, catalogue.Events.Unknown(r.Name)
	}
	if err != nil {
		return nil, fmt.Errorf("find the event %q: %v", r.Name, err) //nolint:errorlint // the caller must try again
	}
	b, err := newSubscription((*View)(v), req, r, item, s)
	if err != nil {
		return nil, err
	}
	return (*webhookEvents)(b), nil
}

// unsubscribe serves events/unsubscribe, also if the caller sees the type of events no more.
func (v *webhookView) unsubscribe(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	o, name := v.host.observe, jsonscan.GetString(req.Params, "name")
	a := &policy.Action{Kind: policy.ActionEvent, Method: req.Method, Caller: v.caller, Arguments: call.Arguments(req)}
	if v.host.opts.Recorder == nil {
		return v.host.webhooks.Load().Unsubscribe(ctx, req, v.caller)
	}
	r := o.New(req, a)
	r.Call, r.Public = o.IDs.Next(), name
	if err := o.StoreIntent(&r); err != nil {
		return nil, err
	}
	res, err := v.host.webhooks.Load().Unsubscribe(ctx, req, v.caller)
	end := r
	o.StoreEnd(&end, true, res, err)
	return res, err
}

// webhookEvents is a [webhooks.Subscription].
type webhookEvents subscription

// subscribe serves events/subscribe.
func (b *subscription) subscribe(ctx context.Context) (mcp.Result, error) {
	return b.view.host.webhooks.Load().Subscribe(ctx, b.req, b.view.caller, (*webhookEvents)(b))
}

func (b *webhookEvents) Feed() (*events.Feed, events.Request) { return (*subscription)(b).feed() }

func (b *webhookEvents) Take() (release func(), err error) {
	h, own := b.view.host, &seat{principal: b.view.principal}
	return func() { h.seats.Delete(own) }, h.take(own, own)
}

func (b *webhookEvents) Cursor(i *events.Item) string {
	if i.Cursor != nil {
		b.from = events.Cursor{Server: b.pool.Name(), Position: i.Cursor}
	}
	if text := b.from.Text(); text != nil {
		return *text
	}
	return ""
}

func (b *webhookEvents) Permit(ctx context.Context) error {
	s := (*subscription)(b)
	fault, err := s.check(upstream.WithCaller(ctx, b.view.caller))
	if fault != nil && ctx.Err() == nil {
		b.record(fault)
		return fault
	}
	return cmp.Or(ctx.Err(), err)
}

func (b *webhookEvents) Deliver(ctx context.Context, e *events.Event) error {
	err := (*subscription)(b).decide(upstream.WithCaller(ctx, b.view.caller), e)
	if err != nil && !errors.Is(err, authorize.ErrUndecided) {
		b.record(err)
	}
	return err
}

// record records that the caller did not receive an event, or the further events.
func (b *webhookEvents) record(err error) {
	_ = b.view.refused(b.req, policy.ActionEvent, b.item.Public, err)
}

func (b *webhookEvents) Ended(err error) error {
	if err == nil {
		return nil
	}
	if events.IsFinal(err) {
		fault := (*subscription)(b).public(err)
		if fault.Code == mcp.CodeMethodNotFound { // the server offers no events any more
			return catalogue.Events.Unknown(b.item.Public)
		}
		return fault
	}
	return fmt.Errorf("follow the events of %q: %v", b.pool.Name(), err) //nolint:errorlint // as in open
}
