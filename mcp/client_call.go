package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/forward"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// CallOptions configures single requests of a [Client]; see [WithCallOptions]. The zero value means
// the options of the client.
type CallOptions struct {
	// Progress receives the progress of the request in sequence, on a goroutine of the client. It
	// is not called after the request returned. Setting it requests progress notifications.
	Progress func(ProgressUpdate)
	// Timeout is how long the client waits for the response or, if Progress is set, for the next
	// progress notification. Default: [ClientOptions.Timeout].
	Timeout time.Duration
	// MaxTimeout limits the total time of the request, even with progress. Default: the client's.
	MaxTimeout time.Duration
	// LogLevel requests log messages of this level and above. Default: [ClientOptions.LogLevel].
	LogLevel LoggingLevel
	// Meta is added to the `_meta` of the request. Keys that the protocol defines are refused,
	// except the trace context: traceparent, tracestate and baggage. A value of the trace context
	// that violates the W3C format is logged and not sent.
	Meta Meta
	// NoCache sends the request even if a fresh result is cached.
	NoCache bool
	// Notify receives the notifications of a request of an extension that lasts, in sequence and in
	// place of Progress and ClientOptions.Log. It must not block. From the first notification on, the
	// request has no time limit but its context.
	Notify func(method string, params json.RawMessage)
}

// A ProgressUpdate is the content of a progress notification.
//
// Spec: basic/utilities/progress; schema ProgressNotificationParams.
type ProgressUpdate struct {
	Progress float64  `json:"progress"`         // completed so far, in any unit; it only increases
	Total    *float64 `json:"total,omitzero"`   // total amount; nil if unknown
	Message  string   `json:"message,omitzero"` // human-readable
}

type callOptionsKey struct{}

// WithCallOptions returns a context whose requests use the options o instead of all options of ctx.
func WithCallOptions(ctx context.Context, o CallOptions) context.Context {
	return context.WithValue(ctx, callOptionsKey{}, &o)
}

var noCallOptions CallOptions

func callOptionsFrom(ctx context.Context) *CallOptions {
	if o, ok := ctx.Value(callOptionsKey{}).(*CallOptions); ok {
		return o
	}
	return &noCallOptions
}

func (o *CallOptions) limits(client *ClientOptions) peer.TimeLimits {
	return peer.TimeLimits{
		Idle:  cmp.Or(o.Timeout, client.Timeout),
		Total: cmp.Or(o.MaxTimeout, max(client.MaxTimeout, o.Timeout)),
		Grace: client.InputTimeout,
	}
}

// checkMeta refuses keys that would contradict the envelope.
func (o *CallOptions) checkMeta() error {
	for key := range o.Meta {
		if err := checkMetaKey(key); err != nil {
			return err
		}
	}
	return nil
}

func checkMetaKey(key string) error {
	switch {
	case key == wire.MetaProgressToken, wire.Latest().ReservesMeta(key):
		return fmt.Errorf("mcp: invalid CallOptions.Meta: the key %q is reserved for the protocol", key)
	case !wire.ValidMetaKey(key):
		return fmt.Errorf("mcp: invalid CallOptions.Meta: %q is not a valid key of _meta", key)
	}
	return nil
}

// withValidTrace returns o without the members of the trace context in Meta that violate the W3C
// format. Spec: basic (2026-07-28), _meta.
func (o *CallOptions) withValidTrace(ctx context.Context, log *slog.Logger) *CallOptions {
	for _, key := range []string{wire.MetaTraceParent, wire.MetaTraceState, wire.MetaBaggage} {
		value, ok := o.Meta[key]
		raw, err := jsonv2.Marshal(value, deterministic)
		if !ok || err == nil && wire.ValidTraceContext(key, raw) {
			continue
		}
		log.WarnContext(ctx, "mcp: an invalid trace context in _meta is not sent", "key", key)
		valid := *o
		valid.Meta = maps.Clone(o.Meta)
		delete(valid.Meta, key)
		o = &valid
	}
	return o
}

// A LoggingMessage is a log message of a server.
//
// Spec: server/utilities/logging; schema LoggingMessageNotificationParams.
type LoggingMessage struct {
	Level  LoggingLevel    `json:"level"`
	Logger string          `json:"logger,omitzero"` // the part of the server that sent it
	Data   json.RawMessage `json:"data"`            // any JSON value, such as a string or an object
}

// Text returns the data as text: a string, the member msg or message of an object, or the JSON.
func (m *LoggingMessage) Text() string {
	var text string
	if jsonv2.Unmarshal(m.Data, &text) == nil {
		return text
	}
	var object struct {
		Msg     string `json:"msg"`
		Message string `json:"message"`
	}
	if jsonv2.Unmarshal(m.Data, &object) == nil && object.Msg+object.Message != "" {
		return strings.TrimSpace(object.Msg + object.Message)
	}
	return string(m.Data)
}

// A notifyFunc receives the notifications of a request; see [Request.Notify].
type notifyFunc = func(ctx context.Context, method string, params json.RawMessage) error

// A clientRequest is a request of a client method, without its envelope.
type clientRequest struct {
	method  string
	members []byte // of the params, each after a comma
	input   []byte // members that respond to the input requests of the previous round
	mirror  []driver.HeaderParam
	// forward receives the notifications of a request of [Forward], for which capabilities contains
	// the declaration of the forwarded client; nil for other requests. The request consists of the
	// members of params except `_meta`, with another name or URI if subject is not empty. call
	// identifies the call that it is sent for.
	forward      *peer.Inbox
	capabilities json.RawMessage
	params       json.RawMessage
	subject      string
	call         *forward.Call
	token        json.RawMessage // of the progress of the round; set before it is sent
	checked      RawResult       // the result, if a transport has checked it
	options      *CallOptions    // nil means the options of the context
	// notify receives notifications; nil means progress and log messages. It may pause the timeout.
	notify func(w *requestContext, method string, params json.RawMessage)
}

// do sends a request, responds to the input requests of the server, and returns the result.
func (c *Client) do(ctx context.Context, k *clientRequest) (RawResult, error) {
	o := cmp.Or(k.options, callOptionsFrom(ctx))
	if err := o.checkMeta(); err != nil {
		return nil, err
	}
	if len(o.Meta) > 0 {
		o = o.withValidTrace(ctx, c.opts.Logger)
	}
	if ctx.Err() != nil {
		return nil, &TransportError{Method: k.method, Err: context.Cause(ctx)}
	}
	m, _ := wire.Latest().Method(k.method)
	if m.Cacheable && !o.NoCache {
		if raw, ok := c.cache.get(ctx, k); ok {
			return raw, nil
		}
	}
	generation := c.cache.currentGeneration()
	w := c.requests.start(ctx, c, o.limits(&c.opts))
	defer w.stop()
	if k.call != nil {
		c.forwards.Started(k.call, w)
	}
	raw, err := c.rounds(w, o, k)
	if err != nil {
		return nil, endError(w, k.method, err)
	}
	if m.Cacheable && k.input == nil && k.forward == nil {
		c.cache.put(ctx, k, raw, generation)
	}
	return raw, nil
}

// endError converts the end of the request's context to a TransportError.
func endError(ctx context.Context, method string, err error) error {
	var failed *TransportError
	switch {
	case ctx.Err() == nil:
		return err
	case errors.Is(context.Cause(ctx), ErrClosed) && asError(err) != nil:
		// The server's response to the cancellation is of no interest.
		return &TransportError{Method: method, MayHaveRun: true, Err: context.Cause(ctx)}
	case asError(err) != nil || errors.As(err, &failed):
		return err
	}
	if errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err()) {
		return &TransportError{Method: method, MayHaveRun: true, Err: err}
	}
	return err
}

// notSent returns the error of a request that could not be sent because there is no connection.
func notSent(ctx context.Context, method string, err error) error {
	var failed *TransportError
	switch {
	case errors.As(err, &failed):
		ran := failed.MayHaveRun && failed.Method == method
		return &TransportError{Method: method, MayHaveRun: ran, Err: failed.Err}
	case ctx.Err() != nil && (errors.Is(err, context.Cause(ctx)) || errors.Is(err, ctx.Err())):
		return &TransportError{Method: method, Err: err}
	}
	return err
}

// rounds sends a request, and sends it again with input responses while the server requests input.
// Spec: basic/patterns/mrtr (2026-07-28).
func (c *Client) rounds(w *requestContext, o *CallOptions, k *clientRequest) (RawResult, error) {
	var in inputRounds
	for round := 0; ; round++ {
		raw, err := c.round(w, o, k)
		if err != nil && round > 0 {
			err = failedLater(k.method, err)
		}
		if err != nil {
			return nil, err
		}
		switch resultType := raw.ResultType(); {
		case resultType == driver.ResultComplete,
			k.forward != nil && (c.opts.ForwardInput || resultType != driver.ResultInputRequired):
			return raw, nil
		case resultType == driver.ResultInputRequired:
			if round >= c.opts.MaxRounds {
				err := fmt.Errorf("the server requests input for the %dth time, at most %d are allowed",
					round+1, max(0, c.opts.MaxRounds))
				return nil, &TransportError{Method: k.method, MayHaveRun: true, Err: err}
			}
			w.Pause()
			k.input, err = c.questions.answerInput(w, &in, k.method, raw)
			w.Resume()
			if err != nil {
				return nil, err
			}
		default:
			return nil, invalidResult(k.method, fmt.Errorf("unknown resultType %.64q", resultType))
		}
	}
}

// failedLater returns the error of a call whose later round failed. Even if that round did not run,
// an earlier round did, so repeating the call is not safe.
func failedLater(method string, err error) error {
	failed, ok := errors.AsType[*TransportError](err)
	switch e := asError(err); {
	case ok && !failed.MayHaveRun:
		return &TransportError{Method: method, MayHaveRun: true, Err: failed.Err}
	case !ok && e != nil && e.Code == CodeBusy:
		return &TransportError{Method: method, MayHaveRun: true, Err: err}
	}
	return err
}

func (c *Client) round(w *requestContext, o *CallOptions, k *clientRequest) (RawResult, error) {
	conn, err := c.connector.live(w)
	if err != nil {
		return nil, notSent(w, k.method, err)
	}
	var box *peer.Inbox
	var notify notifyFunc
	receive := k.notify
	if receive == nil && o.Notify != nil {
		receive = o.notified
	}
	if receive != nil {
		notify = func(_ context.Context, method string, params json.RawMessage) error {
			receive(w, method, params)
			return nil
		}
	} else if o.Progress != nil || c.opts.Log != nil || k.forward != nil {
		logs := &c.logs
		if box = k.forward; box != nil {
			logs = box
		} else {
			box = c.progressInbox(o)
		}
		notify = func(ctx context.Context, method string, params json.RawMessage) error {
			if method == wire.NotificationProgress {
				// A server may send another request's progress on this request's stream.
				if of, _ := jsonscan.Get(params, "progressToken"); k.token == nil || !bytes.Equal(of, k.token) {
					return nil
				}
			}
			w.Touch()
			switch method {
			case wire.NotificationProgress:
				return box.Put(ctx, method, params)
			case wire.NotificationMessage:
				return logs.Put(ctx, method, params)
			}
			return nil
		}
	}
	req, err := c.identity.newRequest(conn, o, k, notify)
	if err != nil {
		return nil, err
	}
	k.token = req.env.ProgressToken
	var res Result
	if ob := c.opts.Observer; ob != nil {
		res, err = observe(w, ob, c.handler, req, acceptedTarget)
	} else {
		res, err = c.handler.ServeMCP(w, req)
	}
	if box != nil {
		box.Drain(w)
		if k.forward == nil { // which lasts until the last round
			box.Close()
		}
	}
	if err != nil {
		return nil, err
	}
	raw, err := rawResult(res)
	if k.forward != nil && req.isChecked(raw) {
		k.checked = raw
	}
	return raw, err
}

// progressInbox returns the queue of progress notifications of a request.
func (c *Client) progressInbox(o *CallOptions) *peer.Inbox {
	last := math.Inf(-1) // progress
	return &peer.Inbox{Log: c.opts.Logger, Receiver: c.guarded(func(_ string, params json.RawMessage) {
		o.progressed(&last, params)
	})}
}

// rawResult returns an encoded result. Only middleware returns others.
func rawResult(res Result) (RawResult, error) {
	switch res := res.(type) {
	case RawResult:
		return res, nil
	case nil:
		return nil, errors.New("mcp: middleware returned neither result nor error")
	}
	raw, err := encodeResult(nil, res, nil, 0, nil)
	return RawResult(raw), err
}

// progressed calls the caller's function. Updates that do not increase the progress are ignored.
// Spec: basic/utilities/progress#behavior-requirements.
func (o *CallOptions) progressed(last *float64, params json.RawMessage) {
	var update ProgressUpdate
	if o.Progress != nil && jsonv2.Unmarshal(params, &update) == nil && update.Progress > *last {
		*last = update.Progress
		o.Progress(update)
	}
}

// notified passes on a notification of a request that lasts. It recovers from panics of the caller.
func (o *CallOptions) notified(w *requestContext, method string, params json.RawMessage) {
	var err error
	defer recovered(w, w.client.opts.Logger, method, &err)
	w.Pause()
	o.Notify(method, params)
}

// guarded returns a receiver of notifications that recovers from panics of f.
func (c *Client) guarded(f peer.ReceiverFunc) peer.ReceiverFunc {
	return func(method string, params json.RawMessage) {
		var err error
		defer recovered(c.ctx, c.opts.Logger, method, &err)
		f(method, params)
	}
}

// unrouted handles a notification that belongs to no request.
func (c *Client) unrouted(ctx context.Context, method string, params json.RawMessage) {
	if method != wire.NotificationMessage || !c.forwards.Log(ctx, params) {
		_ = c.logs.Put(ctx, method, params)
	}
}

func (c *Client) logged(method string, params json.RawMessage) {
	if method == wire.NotificationElicitationComplete {
		c.questions.elicitationCompleted(c.ctx, params)
		return
	}
	var m LoggingMessage
	if c.opts.Log == nil || method != wire.NotificationMessage {
		return
	}
	if err := jsonv2.Unmarshal(params, &m); err != nil {
		c.opts.Logger.Debug("mcp: invalid log message from the server", "error", err)
		return
	}
	c.questions.warnDeprecated(c.ctx, wire.Logging, "log messages")
	c.opts.Log(c.ctx, &m)
}

// invalidResult returns the error for an invalid result. The server executed the request.
func invalidResult(method string, err error) error {
	return &TransportError{Method: method, MayHaveRun: true, Err: fmt.Errorf("%w: %w", ErrInvalidResult, err)}
}

// An identity makes the requests of a client. It holds the members of `_meta` that are equal in all of
// them.
type identity struct {
	opts     *ClientOptions
	info     json.RawMessage // ClientOptions.Info, encoded
	declared json.RawMessage // the capabilities, encoded
	via      driver.Carrier  // of the transport
	tokens   atomic.Int64    // of progress
}

func (i *identity) newRequest(conn *connection, o *CallOptions, k *clientRequest, notify notifyFunc) (*Request, error) {
	req := &Request{Method: k.method, Notify: notify, HeaderParams: k.mirror}
	level, declared := string(cmp.Or(o.LogLevel, i.opts.LogLevel)), i.declared
	if k.forward != nil && i.opts.ForwardInput && conn.session == nil {
		declared = k.capabilities
	}
	req.env.Carrier = i.via
	req.env.Envelope = driver.Envelope{
		VersionText: conn.revision.String(), HasVersion: true, Revision: conn.revision,
		ClientInfo: i.info, Capabilities: declared, LogLevel: level,
	}
	const metaSize = 64 // of typical optional members of _meta
	size := len(declared) + len(k.members) + len(k.params) + len(k.subject) + len(k.input) + metaSize
	if k.forward == nil { // else params have a _meta of the same size, which is left out
		size += len(conn.prefix)
	}
	b := make([]byte, 0, size)
	if k.forward == nil {
		b = append(b, conn.prefix...)
	} else {
		b = i.appendPrefix(b, conn.revision, declared)
	}
	if level != "" {
		b = jsonscan.AppendQuote(append(b, `,"`+wire.MetaLogLevel+`":`...), level)
	}
	if o.Progress != nil {
		b = append(b, `,"`+wire.MetaProgressToken+`":`...)
		mark := len(b)
		b = strconv.AppendInt(b, i.tokens.Add(1), 10)
		req.env.ProgressToken = json.RawMessage(b[mark:len(b):len(b)])
	}
	if len(o.Meta) > 0 {
		var err error
		if b, err = appendMembers(append(b, ','), o.Meta); err != nil {
			return nil, fmt.Errorf("mcp: invalid CallOptions.Meta: %w", err)
		}
	}
	b = append(b, '}')
	req.env.Meta = json.RawMessage(b[len(`{"_meta":`):])
	b = forward.AppendParams(append(b, k.members...), k.params, k.method, k.subject, conn.revision)
	req.Params = append(append(b, k.input...), '}')
	return req, nil
}

// appendPrefix appends the beginning of params up to the constant part of `_meta`.
func (i *identity) appendPrefix(b []byte, r wire.Revision, capabilities []byte) []byte {
	b = append(append(b, `{"_meta":{"`+wire.MetaProtocolVersion+`":"`...), r.String()...)
	b = append(b, `","`+wire.MetaClientInfo+`":`...)
	b = append(b, i.info...)
	b = append(b, `,"`+wire.MetaClientCapabilities+`":`...)
	return append(b, capabilities...)
}
