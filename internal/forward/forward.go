// Package forward relates the questions of a server of the session era to the requests that are
// forwarded to it. A request waits for its server while the question is with the client, and
// continues when the client sends the request again with the answer.
package forward

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

const (
	// maxSuspended bounds the calls that wait for the answers of clients, maxSuspendedPerCaller those
	// of one caller. Each holds a request at the server.
	maxSuspended          = 1000
	maxSuspendedPerCaller = 64
)

var errNotAnswered = errors.New("the client did not answer in time")

// A Table has the calls to one server of the session era. The zero value is empty. It is safe for
// concurrent use.
type Table struct {
	mu        sync.Mutex       // guards the fields below
	calls     []*Call          // in progress, the oldest first
	suspended map[string]*Call // by the state of their questions
}

// A Request is a request of a client, as it is sent each time.
type Request struct {
	Method string
	Params json.RawMessage
	Caller string // identifies the client
	// Lasts reports whether the context of the request is that of all its rounds, and does not end
	// when the client is asked.
	Lasts   bool
	Timeout time.Duration // for the answer to a question
	// MayAsk reports whether the server may ask during the request. Capabilities are those of the
	// client, and Level is the lowest level of the log messages that it has asked for, or "".
	MayAsk       bool
	Capabilities json.RawMessage
	Level        string
	// Token is the progress token, nil for none. Notify sends the client a notification; it may be
	// nil.
	Token  json.RawMessage
	Notify func(ctx context.Context, method string, params json.RawMessage) error
}

// A Call is one request at the server. Its client may send it several times, with answers.
type Call struct {
	// Queue queues a log message for Receive, and Drain waits until the queue is empty.
	Queue func(ctx context.Context, method string, params json.RawMessage) error
	Drain func(ctx context.Context)
	// Run sends the request to the server. Its context has the values of that of the first Serve.
	Run func(ctx context.Context) (json.RawMessage, error)

	method, caller, level string
	mayAsk                bool
	capabilities          json.RawMessage
	cancel                context.CancelCauseFunc
	asked                 chan *question
	done                  chan struct{} // closed when result and err are set
	result                json.RawMessage
	err                   error

	open   *question   // of a suspended call; guarded by the lock of the table
	expiry *time.Timer // of open

	mu  sync.Mutex      // guards the fields below
	req *Request        // receives notifications; nil while the call is suspended
	ctx context.Context // of req
}

type question struct {
	method string
	params json.RawMessage
	state  string               // identifies the suspended call
	answer chan json.RawMessage // has room for one element
}

// Serve serves a request that belongs to no suspended call with the call that open returns.
// Otherwise it continues the call. The result is that of the server, or requires input.
func (t *Table) Serve(ctx context.Context, r *Request, open func() *Call) (json.RawMessage, error) {
	raw, hasState := jsonscan.Get(r.Params, "requestState")
	state, _ := jsonscan.Unquote(raw)
	c := t.resume(state, r)
	switch {
	case c != nil:
		answers, _ := jsonscan.Get(r.Params, "inputResponses")
		answer, _ := jsonscan.Get(answers, "input")
		c.attach(ctx, r)
		c.open.answer <- bytes.Clone(answer)
	case hasState:
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "invalid requestState: unknown or expired"}
	default:
		c = open()
		c.attach(ctx, r)
		t.start(ctx, c, r)
	}
	return t.wait(ctx, c, r)
}

// Run serves a request with a call to a server that asks no questions of its own.
func (t *Table) Run(ctx context.Context, r *Request, c *Call) (json.RawMessage, error) {
	c.caller, c.level = r.Caller, r.Level
	c.attach(ctx, r)
	defer c.attach(nil, nil) //nolint:staticcheck // there is no context without a request
	t.add(c)
	defer t.remove(c, false)
	return c.Run(ctx)
}

func (t *Table) add(c *Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = append(t.calls, c)
}

func (t *Table) start(ctx context.Context, c *Call, r *Request) {
	c.method, c.caller, c.level = r.Method, r.Caller, r.Level
	c.mayAsk, c.capabilities = r.MayAsk, bytes.Clone(r.Capabilities)
	c.asked, c.done = make(chan *question), make(chan struct{})
	ctx, c.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	t.add(c)
	go func() { // ends with the request, which its client bounds
		defer c.cancel(nil)
		defer close(c.done)
		defer func() { t.remove(c, ctx.Err() != nil) }()
		c.result, c.err = c.Run(ctx)
	}()
}

func (t *Table) remove(c *Call, cancelled bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls = slices.DeleteFunc(t.calls, func(other *Call) bool { return other == c })
	if cancelled && c.open != nil {
		c.expiry.Stop()
		delete(t.suspended, c.open.state)
	}
}

// wait waits for the result or a question. When ctx ends, it cancels the call.
func (t *Table) wait(ctx context.Context, c *Call, r *Request) (json.RawMessage, error) {
	defer c.attach(nil, nil) //nolint:staticcheck // there is no context without a request
	defer c.Drain(ctx)
	stop := context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	select {
	case <-c.done:
		stop()
		return c.result, c.err
	case q := <-c.asked:
		if !r.Lasts {
			stop()
		}
		if err := t.suspend(c, q, r.Timeout); err != nil {
			c.cancel(err)
			return nil, err
		}
		return q.result(), nil
	}
}

// result returns the result that asks the client.
func (q *question) result() json.RawMessage {
	b := []byte(`{"resultType":"input_required","inputRequests":{"input":{"method":`)
	b = jsonscan.AppendQuote(b, q.method)
	if q.params != nil {
		b = append(append(b, `,"params":{`...), bytes.TrimPrefix(Members(q.params, "elicitationId"), []byte{','})...)
		b = append(b, '}')
	}
	return append(jsonscan.AppendQuote(append(b, `}},"requestState":`...), q.state), '}')
}

func (t *Table) suspend(c *Call, q *question, timeout time.Duration) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	own := 0
	for _, other := range t.suspended {
		if other.caller == c.caller {
			own++
		}
	}
	if own >= maxSuspendedPerCaller || len(t.suspended) >= maxSuspended {
		return wire.Busy("too many requests wait for the answers of clients")
	}
	if t.suspended == nil {
		t.suspended = map[string]*Call{}
	}
	q.state = rand.Text()
	c.open, t.suspended[q.state] = q, c
	c.expiry = time.AfterFunc(timeout, func() {
		t.mu.Lock()
		delete(t.suspended, q.state)
		t.mu.Unlock()
		c.cancel(errNotAnswered)
	})
	return nil
}

// resume returns the suspended call of a state, if it belongs to the caller and the method of r.
func (t *Table) resume(state string, r *Request) *Call {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.suspended[state]
	if c == nil || c.caller != r.Caller || c.method != r.Method || !c.expiry.Stop() {
		return nil
	}
	delete(t.suspended, state)
	return c
}

// find returns the oldest call that matches. It returns nil if there is none, and if calls of several
// callers are in progress, since nothing relates a message of the server to one of them.
func (t *Table) find(matches func(*Call) bool) (found *Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.calls {
		if c.caller != t.calls[0].caller {
			return nil
		}
		if found == nil && matches(c) {
			found = c
		}
	}
	return found
}

// Log passes a log message of the server to the client, and reports whether it did.
func (t *Table) Log(ctx context.Context, params json.RawMessage) bool {
	raw, _ := jsonscan.Get(params, "level")
	text, _ := jsonscan.Unquote(raw)
	severity, _ := wire.LogSeverity(text)
	c := t.find(func(c *Call) bool {
		least, wanted := wire.LogSeverity(c.level)
		return wanted && severity >= least
	})
	return c != nil && c.Queue(ctx, wire.NotificationMessage, params) == nil
}

// Ask asks the client of a call that accepts the question, and returns the answer.
func (t *Table) Ask(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error) {
	c := t.find(func(c *Call) bool { return c.mayAsk && accepts(c.capabilities, method, params) })
	if c == nil {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeMethodNotFound,
			Message: method + ": requires a request in progress, of one client only, which supports it"}
	}
	q := &question{method: method, params: params, answer: make(chan json.RawMessage, 1)}
	select {
	case c.asked <- q:
	case <-c.done:
	case <-ctx.Done():
	}
	select {
	case answer := <-q.answer:
		if answer != nil {
			return answer, nil
		}
	case <-c.done:
	case <-ctx.Done():
	}
	return nil, &jsonrpc.Error{Code: jsonrpc.CodeInternalError, Message: method + ": the client did not answer"}
}

// accepts reports whether a client with these capabilities can answer a question.
func accepts(capabilities []byte, method string, params []byte) bool {
	switch method {
	case wire.MethodRootsList:
		return has(capabilities, "roots")
	case wire.MethodSamplingCreateMessage:
		return has(capabilities, "sampling") && (!has(params, "tools") || has(capabilities, "sampling", "tools"))
	case wire.MethodElicitationCreate:
		if mode, _ := jsonscan.Get(params, "mode"); string(mode) == `"url"` {
			return has(capabilities, "elicitation", "url")
		}
		return has(capabilities, "elicitation", "form") ||
			has(capabilities, "elicitation") && !has(capabilities, "elicitation", "url")
	}
	return false
}

func has(object []byte, path ...string) bool {
	for _, key := range path {
		value, ok := jsonscan.Get(object, key)
		if !ok || jsonscan.Kind(value) == 'n' {
			return false
		}
		object = value
	}
	return true
}

// attach sets the request of the client that receives the notifications of the call, or none.
func (c *Call) attach(ctx context.Context, r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ctx, c.req = ctx, r
}

// Receive sends the client a notification of the server, under the progress token of the client. It
// drops notifications while the call is suspended, and those that the client has not asked for.
func (c *Call) Receive(method string, params json.RawMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.req == nil || c.req.Notify == nil {
		return
	}
	if method == wire.NotificationProgress {
		if c.req.Token == nil {
			return
		}
		b := append([]byte(`{"progressToken":`), c.req.Token...)
		params = append(append(b, Members(params, "progressToken")...), '}')
	}
	_ = c.req.Notify(c.ctx, method, params) // fails if the client is gone, which ends the context
}

// Members returns the members of an object except one, each after a comma.
func Members(object []byte, without string) (members []byte) {
	for key, value := range jsonscan.Members(object) {
		if string(key) != without {
			members = append(append(jsonscan.AppendQuote(append(members, ','), string(key)), ':'), value...)
		}
	}
	return members
}

// Meta returns the members of the `_meta` of a request that are not of its envelope.
func Meta(meta []byte) map[string]any {
	kept := map[string]any{}
	for key, value := range jsonscan.Members(meta) {
		if s := string(key); s != wire.MetaProgressToken && !wire.Latest().ReservesMeta(s) && wire.ValidMetaKey(s) {
			kept[s] = json.RawMessage(bytes.Clone(value))
		}
	}
	return kept
}
