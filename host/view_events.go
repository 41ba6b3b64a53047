package host

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	extevents "github.com/patchbay-mcp/patchbay/ext/events"
	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/internal/authorize"
	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/events"
	"github.com/patchbay-mcp/patchbay/host/internal/listing"
	"github.com/patchbay-mcp/patchbay/host/internal/pins"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A subscription is a request of a caller about a type of events.
type subscription struct {
	events.Request // with the name and the cursor of the server
	view           *View
	req            *mcp.Request
	item           *catalogue.Item
	pool           *upstream.Pool
	from           events.Cursor
}

// events serves events/poll, events/stream, and the methods of webhooks.
func (v *View) events(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if err := v.offersEvents(ctx, req); err != nil {
		return nil, err
	}
	if req.Method == wire.MethodEventsUnsubscribe {
		return (*webhookView)(v).unsubscribe(ctx, req)
	}
	r, err := events.ParseRequest(req.Params)
	if err != nil {
		return nil, err
	}
	c, err := v.eventCall(ctx, req, r)
	if err != nil {
		return nil, v.refused(req, policy.ActionEvent, r.Name, err)
	}
	res, err := v.send(ctx, req, c)
	e, ok := errors.AsType[*hosterr.Error](err)
	if ok && e.Code == hosterr.CodeDenied && !errors.Is(err, authorize.ErrUndecided) {
		reason, _ := publicReason(e.Err)
		return nil, extevents.Forbidden(reason)
	}
	if err == nil && req.Method == wire.MethodEventsStream {
		return mcp.EmptyResult{Meta: mcp.Meta{wire.MetaSubscriptionID: json.RawMessage(req.ID.String())}}, nil
	}
	return res, err
}

// eventCall returns the call of a request about a type of events.
func (v *View) eventCall(ctx context.Context, req *mcp.Request, r *events.Request) (*call.Call, error) {
	item, s, err := v.table.Find(ctx, catalogue.Events, r.Name)
	if q, ok := errors.AsType[*routes.QuarantinedError](err); ok {
		return &call.Call{Kind: policy.ActionEvent, Pool: q.Server, Target: q.Item.Original, Item: &q.Item,
			Quarantined: q.Err}, nil
	}
	if err == nil && item == nil {
		err = catalogue.Events.Unknown(r.Name)
	}
	if err != nil {
		return nil, err
	}
	b, err := newSubscription(v, req, r, item, s)
	if err != nil {
		return nil, err
	}
	c := &call.Call{Kind: policy.ActionEvent, Pool: s, Target: item.Original, Item: item, Local: b.poll}
	switch req.Method {
	case wire.MethodEventsStream:
		c.Local = b.stream
	case wire.MethodEventsSubscribe:
		c.Local = b.subscribe
	}
	return c, nil
}

func newSubscription(
	v *View, req *mcp.Request, r *events.Request, item *catalogue.Item, s routes.Server,
) (b *subscription, err error) {
	b = &subscription{Request: *r, view: v, req: req, item: item, pool: serverPool(s)}
	if b.from, err = events.ParseCursor(r.Cursor, s.Name()); err != nil {
		return nil, err
	}
	b.Name, b.Cursor = item.Original, b.from.Position
	return b, nil
}

// offersEvents returns an error unless the caller may send methods of events: without a server that offers events, and
// in older revisions, the methods do not exist.
func (v *View) offersEvents(ctx context.Context, req *mcp.Request) error {
	isOffered := func() bool {
		return slices.ContainsFunc(v.table.Servers().All, func(s routes.Server) bool {
			return jsonscan.HasObject(s.Lists().About().Capabilities, "extensions", listing.ExtensionEvents)
		})
	}
	isWebhook := req.Method == wire.MethodEventsSubscribe || req.Method == wire.MethodEventsUnsubscribe
	if task.IsModern(req.Revision()) && (!isWebhook || v.host.webhooks.Load() != nil) {
		if isOffered() {
			return nil
		}
		if v.table.Connect(ctx); isOffered() {
			return nil
		}
	}
	return mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
}

// feed returns the events of the subscription, and the position at which they begin. They may outlive the request.
func (b *subscription) feed() (*events.Feed, events.Request) {
	at := b.Request
	at.MaxEvents, at.Arguments = 0, append(json.RawMessage(nil), at.Arguments...)
	return &events.Feed{Source: eventSource{b.view, b.item}, Pushes: b.item.Delivers(catalogue.Push)}, at
}

// An eventSource sends requests about events to a server of a view.
type eventSource struct {
	view *View
	item *catalogue.Item
}

// Call implements [events.Source]. After a reload, it uses the present server.
func (s eventSource) Call(
	ctx context.Context, method string, params any, notify func(method string, params json.RawMessage),
) (json.RawMessage, error) {
	p := s.view.poolNamed(s.item.Server)
	if p == nil {
		return nil, catalogue.Events.Unknown(s.item.Public)
	}
	ctx = upstream.WithCaller(ctx, s.view.caller)
	c, err := p.Acquire(ctx, upstream.AnyClass)
	if err != nil {
		return nil, p.RequestError(ctx, err)
	}
	defer c.Release()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.Context(), cancel)()
	raw, err := c.Client().Do(mcp.WithCallOptions(ctx, mcp.CallOptions{NoCache: true, Notify: notify}), method, params)
	return raw, p.RequestError(ctx, err)
}

// poll serves events/poll: it passes the poll on, or reads the events that the server pushes.
func (b *subscription) poll(ctx context.Context) (mcp.Result, error) {
	serve := b.pollKept
	if b.item.Delivers(catalogue.Poll) {
		serve = b.pollServer
	}
	r, err := serve(ctx)
	if err != nil {
		return nil, err
	}
	visible := r.Events[:0]
	for _, e := range r.Events {
		switch err := b.decide(ctx, &e); {
		case err == nil:
			visible = append(visible, e)
		case errors.Is(err, authorize.ErrUndecided): // the caller polls again from its cursor
			return nil, err
		}
	}
	r.At.Server = b.pool.Name()
	r.Events, r.Cursor = visible, r.At.Text()
	return r, nil
}

// pollServer passes a poll on to the server.
func (b *subscription) pollServer(ctx context.Context) (*events.Result, error) {
	params, err := jsonv2.Marshal(b.Request)
	if err != nil {
		return nil, err
	}
	p, principal := b.pool, b.view.principal
	if err := p.Queue().Enter(ctx, principal); err != nil {
		return nil, p.RequestError(ctx, err)
	}
	defer p.Queue().Leave(principal)
	req := *b.req
	req.Params = params
	_, res, _, err := p.Forward(p.Logins().With(ctx, p.Forwarded(), b.req), &req, p.Class(b.req),
		upstream.Earlier{Uses: pins.TargetOf(policy.ActionEvent, b.item.Original)},
		&driver.ForwardOptions{Principal: principal})
	if err != nil {
		return nil, err
	}
	raw, _ := res.(mcp.RawResult)
	r, err := events.ParseResult(json.RawMessage(raw))
	if err != nil {
		return nil, hosterr.Errorf(hosterr.CodeInvalidResult, p.Name(), "%w", err)
	}
	return r, nil
}

// decide gives an event the name of the caller, charges its size, and lets the policy decide about it as about the
// result of a tool whose structured content is the data. The error means that the caller must not receive it; after
// [authorize.ErrUndecided] the policy must be asked again.
func (b *subscription) decide(ctx context.Context, e *events.Event) error {
	v := b.view
	e.Name = b.item.Public
	size, p := len(e.Data), v.host.authorize.Policy()
	if p == nil {
		v.host.limits.Charge(v.principal, size)
		return nil
	}
	raw := jsonscan.AppendQuote([]byte(`{"resultType":"complete","eventId":`), e.ID)
	raw = e.Time.AppendFormat(append(raw, `,"timestamp":"`...), time.RFC3339Nano)
	raw = append(append(append(raw, `","structuredContent":`...), e.Data...), '}')
	res, err := v.host.authorize.DecideResult(ctx, (*callView)(v), p, b.req, b.action(), mcp.RawResult(raw), nil)
	if !errors.Is(err, authorize.ErrUndecided) {
		v.host.limits.Charge(v.principal, size)
	}
	if err != nil {
		return err
	}
	left, _ := res.(mcp.RawResult)
	e.ID = jsonscan.GetString(left, "eventId")
	e.Data, _ = jsonscan.Get(left, "structuredContent")
	return nil
}

func (b *subscription) action() *policy.Action {
	return &policy.Action{Kind: policy.ActionEvent, Method: b.req.Method, Caller: b.view.caller, Server: b.pool.Name(),
		Target: b.item.Original, Definition: b.item.Raw, Digest: b.item.Digest, Arguments: b.Arguments}
}
