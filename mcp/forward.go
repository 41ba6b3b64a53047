package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/forward"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Forward returns a Handler that forwards requests to the server of c, and the server's
// notifications to the client, between any revisions. It passes on the members of params that the
// protocol defines and, of `_meta`, the trace context and the keys of extensions that the client
// declares. Results, errors and capabilities come from the server, without the tasks of 2025-11-25.
// Input requests of the server go to the functions of [ClientOptions], or to the client if
// [ClientOptions.ForwardInput] is set. A member whose name resembles a defined name fails with
// [CodeInvalidParams]; a request without a valid response fails with [CodeInternalError], and the
// reason is logged. The Handler is safe for concurrent use.
//
// To the server, all callers are the principal of c. Therefore events/subscribe and events/unsubscribe
// fail with [CodeMethodNotFound]: a caller could end or change the webhook of another caller. Events
// reach the callers by events/poll and events/stream.
func Forward(c *Client) driver.Forwarder[*Request, Result] { return forwarder{c} }

type forwarder struct{ client *Client }

func (f forwarder) ServeMCP(ctx context.Context, req *Request) (res Result, err error) {
	if params, invalid := forward.Params(req.Method, req.Params); invalid != nil {
		return nil, invalid
	} else if params != nil {
		inner := *req
		inner.Params, req = params, &inner
	}
	switch req.Method {
	case wire.MethodDiscover:
		res, err = f.discover(ctx)
	case wire.MethodSubscriptionsListen:
		res, err = f.listen(ctx, req)
	default:
		res, err = f.ForwardAs(ctx, req, &driver.ForwardOptions{})
	}
	failed, ok := errors.AsType[*TransportError](err)
	if !ok || asError(err) != nil || ctx.Err() != nil {
		return res, err
	}
	f.client.opts.Logger.WarnContext(ctx, "mcp: forwarded request failed", "method", req.Method, "error", err)
	_, answers := req.Param("inputResponses")
	_, continues := req.Param("requestState")
	if failed.MayHaveRun || answers || continues { // it ran up to its question
		return nil, Errorf(CodeInternalError, "no valid response of the server, the request may have run")
	}
	return nil, Errorf(CodeInternalError, "server not reached, the request did not run")
}

func (f forwarder) discover(ctx context.Context) (Result, error) {
	conn, err := f.client.connector.live(ctx)
	if err != nil {
		return nil, notSent(ctx, wire.MethodDiscover, err)
	}
	d := *conn.discovered
	d.SupportedVersions, d.Capabilities.Tasks = newestFirst(wire.Revisions()), nil
	if conn.server.Name != "" {
		d.Meta = Meta{wire.MetaServerInfo: conn.server}
	}
	return &d, nil
}

// ForwardAs implements [driver.Forwarder].
func (f forwarder) ForwardAs(ctx context.Context, req *Request, o *driver.ForwardOptions) (Result, error) {
	switch req.Method {
	case wire.MethodEventsStream:
		return f.stream(ctx, req)
	case wire.MethodEventsSubscribe, wire.MethodEventsUnsubscribe:
		return nil, Errorf(CodeMethodNotFound, "method not found: %s", req.Method)
	}
	conn, err := f.client.connector.live(ctx)
	if err != nil {
		return nil, notSent(ctx, req.Method, err)
	}
	subject := req.env.Subject(req.Params)
	r := &forward.Request{
		Method: req.Method, Token: req.env.ProgressToken, Notify: req.Notify,
		Principal: o.Principal, Caller: o.Caller,
		Lasts: !req.env.Revision.Modern(), Timeout: f.client.opts.InputTimeout,
		Capabilities: req.env.Capabilities, Level: req.env.LogLevel,
		State: subject.RequestState, Answers: subject.InputResponses, Asks: conn.session != nil,
	}
	if r.Principal == "" {
		r.Principal = req.Principal.Key()
	}
	if o.Capabilities != nil {
		r.Capabilities = o.Capabilities
	}
	if m, ok := wire.Latest().Method(req.Method); ok {
		r.MayAsk = m.MayAskInput
	} else if req.Method == wire.MethodTasksResult { // asks the questions of the task
		r.Task = jsonscan.GetString(req.Params, "taskId")
		r.MayAsk = true
	}
	waits := r.MayWait()
	if r.Caller == "" && (waits || r.Principal == "") { // else no later request continues this one
		id := strings.Join(req.Header["Mcp-Session-Id"], "")
		r.Caller = r.Principal + "\n" + string(req.env.ClientInfo) + "\n" + id
	}
	if r.Principal == "" { // the callers are not authenticated: they may be several people
		r.Principal = r.Caller
	}
	if waits {
		r.Subject = forward.Subject(req.Params, req.Method)
		raw, err := f.client.forwards.Serve(ctx, r, func() *forward.Call {
			return &f.newCall(req, o, bytes.Clone(req.Params), bytes.Clone(r.Capabilities)).call
		})
		return RawResult(raw), err
	}
	c := f.newCall(req, o, req.Params, r.Capabilities)
	raw, err := f.client.forwards.Run(ctx, r, &c.call)
	req.env.Valid = json.RawMessage(c.request.checked)
	return RawResult(raw), err
}

// A forwardedCall is a call with its request, in one allocation. Of the caller's request it retains
// only the params and the capabilities.
type forwardedCall struct {
	call    forward.Call
	client  *Client
	name    string // of a tool
	inbox   peer.Inbox
	options CallOptions
	request clientRequest
}

func (f forwarder) newCall(
	req *Request, o *driver.ForwardOptions, params, capabilities json.RawMessage,
) *forwardedCall {
	c := &forwardedCall{client: f.client, name: o.Subject}
	c.call.Queue, c.call.Sender = &c.inbox, c
	c.inbox.Log, c.inbox.Receiver = f.client.opts.Logger, c
	c.request = clientRequest{method: req.Method, params: params, subject: o.Subject, capabilities: capabilities,
		mirror: req.HeaderParams, forward: &c.inbox, call: &c.call, options: &c.options}
	if c.name == "" {
		raw, _ := req.Param("name")
		c.name, _ = jsonscan.Unquote(raw)
	}
	meta := forward.Meta(req.env.Meta, req.env.Capabilities, o.WithoutMeta)
	c.options = CallOptions{NoCache: true, LogLevel: req.LogLevel(), Meta: meta}
	if req.takesProgress() {
		c.options.Progress = func(ProgressUpdate) {} // requests a token
	}
	return c
}

// Send implements [forward.Sender].
func (c *forwardedCall) Send(ctx context.Context) (_ json.RawMessage, err error) {
	defer recovered(ctx, c.client.opts.Logger, c.request.method, &err)
	defer c.inbox.Close()
	if c.request.method == wire.MethodToolsCall {
		raw, err := c.client.callTool(ctx, c.name, &c.request)
		return json.RawMessage(raw), err
	}
	raw, err := c.client.do(ctx, &c.request)
	return json.RawMessage(raw), err
}

// Receive implements [peer.Receiver].
func (c *forwardedCall) Receive(method string, params json.RawMessage) {
	var err error
	defer recovered(c.client.ctx, c.client.opts.Logger, method, &err)
	c.call.Receive(method, params)
}

// Usage implements [driver.Forwarder].
func (f forwarder) Usage() (u driver.ForwardUsage) {
	u.InProgress, u.Suspended, u.Serial = f.client.forwards.Usage()
	return u
}

// Abandon implements [driver.Forwarder].
func (f forwarder) Abandon(caller string) { f.client.forwards.Abandon(caller) }

// Done implements [driver.Forwarder].
func (f forwarder) Done() <-chan struct{} {
	if conn := f.client.connector.connection.Load(); conn != nil && conn.session != nil {
		return conn.done
	}
	if l, ok := f.client.connector.transport.(driver.Lifetime); ok {
		return l.Done()
	}
	return nil
}

// listen forwards the changes of a subscription that [Client.Listen] renews. After a gap, everything
// counts as changed.
func (f forwarder) listen(ctx context.Context, req *Request) (Result, error) {
	filter, err := parseFilter(req)
	if err != nil {
		return nil, err
	}
	s := newSubscription(req.ID, filter)
	for e, err := range f.client.Listen(ctx, filter) {
		if err == nil {
			err = s.forward(ctx, req, e)
		}
		if err != nil {
			return nil, err
		}
	}
	return s.result(ctx)
}

var errSlowReader = Errorf(CodeInternalError,
	"the client does not read notifications in time: continue from the last cursor")

// stream forwards a stream of events. It ends with an error when a notification cannot reach the client,
// because the cursor of a later notification would hide the loss.
func (f forwarder) stream(ctx context.Context, req *Request) (Result, error) {
	if req.Notify == nil {
		return nil, Errorf(CodeInvalidRequest, "%s needs a stream for notifications", req.Method)
	}
	inner, end := context.WithCancelCause(ctx)
	defer end(nil)
	s := &subscription{id: json.RawMessage(req.ID.String())}
	box := &peer.Inbox{Log: f.client.opts.Logger}
	defer box.Close()
	lose := func(err error) {
		box.Close()
		end(err)
	}
	box.Receiver = peer.ReceiverFunc(func(method string, params json.RawMessage) {
		if err := req.Notify(inner, method, s.tag(params)); err != nil {
			lose(err)
		}
	})
	options := &CallOptions{Notify: func(method string, params json.RawMessage) {
		if !box.Offer(method, params) {
			lose(errSlowReader)
		}
	}}
	_, err := f.client.do(inner, &clientRequest{
		method: req.Method, members: forward.Members(req.Params, "_meta"), options: options})
	box.Drain(inner)
	if lost := context.Cause(inner); lost != nil && ctx.Err() == nil {
		return nil, lost
	}
	if err != nil {
		return nil, err
	}
	return EmptyResult{Meta: Meta{wire.MetaSubscriptionID: s.id}}, nil
}

func (s *subscription) forward(ctx context.Context, req *Request, e Event) error {
	switch e.Kind {
	case EventListening:
		s.lists = e.Filter.lists()
		return s.acknowledge(ctx, req, *e.Filter)
	case EventChangesMissed:
		s.record(s.lists, slices.Collect(maps.Keys(s.uris))...)
	case EventToolsChanged, EventPromptsChanged, EventResourcesChanged:
		s.record(e.Kind.list())
	case EventResourceUpdated:
		s.record(0, e.URI)
	case EventTopic:
		members := append(forward.Members(e.Params, "_meta"), ',')
		return req.Notify(ctx, e.Method, s.params(members[1:]))
	}
	return s.send(ctx, req)
}
