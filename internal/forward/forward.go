// Package forward relates the questions of a server of the session era to the requests that are
// forwarded to it. A request waits for its server while the question is with the client, and
// continues when the client sends the request again with the answer.
package forward

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/peer"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// maxQueued limits the calls that wait for their turn in a serial table; all belong to one
// principal. Further calls are refused.
const maxQueued = 32

// serialTime is how long a table stays serial after a question was attributed to one of several
// calls. A server that asks again probably does so soon; a server that does not must not stay slow.
const serialTime = time.Minute

// A Table contains the calls to a server. The zero value is empty. It is safe for concurrent use;
// its exported fields must not change after the first use.
type Table struct {
	// Default answers questions that belong to no call. It reports false for questions that it
	// cannot answer, which are refused. It may be nil.
	Default func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, *jsonrpc.Error, bool)
	// Observe calls answer and returns what it does. Its context contains the values of the request
	// that the question belongs to. Default: that is all.
	Observe func(ctx context.Context, method string, params json.RawMessage, answer answerFunc) (json.RawMessage, error)
	// Logger logs questions and log messages of the server that reach no client. It may be nil.
	Logger *slog.Logger

	lines peer.MinuteLimit // limits the lines of Logger

	mu        sync.Mutex       // guards the fields below
	calls     []*Call          // at the server, the oldest first
	suspended map[string]*Call // by state
	running   int              // calls that may be asked, are at the server, and are not suspended
	// principal made the first call. several is set with the first call of another principal and
	// never cleared, because the server may retain data of any principal.
	used, several bool
	principal     string
	// serial is set for serialTime after a question was attributed to one of several calls. During
	// that time, calls that may be asked run one at a time; queue holds the calls that wait for
	// their turn.
	serial bool
	calm   *time.Timer // ends serial
	queue  []*Call
}

type answerFunc = func(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error)

// A Request is a request of a client, as it is sent each time.
type Request struct {
	Method string
	// Subject names what the request uses, such as a tool. All rounds use the same subject.
	Subject string
	// Principal and Caller identify for whom the request is made. Once several principals made
	// calls to a server, its messages that name no call reach no principal. A caller is a client
	// of a principal.
	Principal, Caller string
	// Asks means that the server may send requests of its own.
	Asks bool
	// Task is the id of the task whose result is requested, else "". Questions of the task belong
	// to the request, and no others do.
	Task string
	// State and Answers come from a request that is sent again, else they are nil.
	State, Answers json.RawMessage
	// Lasts reports whether the context of the request is that of all its rounds, and does not end
	// when the client is asked.
	Lasts   bool
	Timeout time.Duration // for the answer to a question
	// MayAsk reports whether the server may ask during the request. Capabilities are the
	// capabilities of the client, and Level is the lowest level of the log messages that it asked
	// for, or "".
	MayAsk       bool
	Capabilities json.RawMessage
	Level        string
	// Token is the progress token, may be nil. Notify sends the client a notification; it may be
	// nil.
	Token  json.RawMessage
	Notify func(ctx context.Context, method string, params json.RawMessage) error
}

// A Queue is a [peer.Inbox].
type Queue interface {
	Put(ctx context.Context, method string, params json.RawMessage) error
	Drain(ctx context.Context)
}

// A Sender sends the request of a call, and returns the result.
type Sender interface {
	Send(ctx context.Context) (json.RawMessage, error)
}

// A Call is a request at the server. Its client may send it several times, with answers.
type Call struct {
	// Queue queues the notifications of the server for Receive.
	Queue Queue
	// Sender sends the request to the server. Its context contains the values of the context of the
	// first Serve.
	Sender Sender

	principal, caller, level string
	*asking

	mu   sync.Mutex      // guards the fields below
	req  *Request        // receives notifications; nil while the call is suspended
	ctx  context.Context // of req
	kept kept
}

// An asking is the part of a call that only its server's questions need. All calls of [Table.Run]
// share one of two values, to which no goroutine writes.
type asking struct {
	method, subject, task string
	capabilities          json.RawMessage
	mayAsk                bool            // the server may ask during the request
	askable               bool            // and the client accepts some questions
	sent                  context.Context // of the request at the server
	cancel                context.CancelCauseFunc
	asked                 chan struct{} // holds an element if there may be open questions
	done                  chan struct{} // closed when result and err are set
	result                json.RawMessage
	err                   error

	// Guarded by the lock of the table.
	began     time.Time     // when it was sent
	limits    Pauser        // of the request; nil before it is sent
	turn      chan struct{} // closed when it is the turn of a queued call
	running   bool          // counts in Table.running
	mixed     bool          // its answers may be for the question of another call, which it must not wait for
	ended     bool          // the server responded
	open      []*question   // without an answer, the oldest first
	questions int           // so far, that its client was asked
	openBytes int           // of the params of open
	state     string        // of a suspended call, else ""
	used      []string      // its earlier states
	abandoned bool          // its client did not come back
	expiry    *time.Timer   // of state
}

var asksNothing, acceptsNothing = asking{}, asking{mayAsk: true}

type callKey struct{}

// callOf returns the call on whose stream a message arrived. If exact is set and there is no such
// call, the message belongs to no call.
func callOf(ctx context.Context) (c *Call, exact bool) {
	of := peer.ArrivalFrom(ctx).Of
	if of == nil {
		return nil, false
	}
	c, _ = of.Value(callKey{}).(*Call)
	return c, true
}

// MayWait reports whether [Table.Serve] must serve the request, because it may wait for its client: it
// continues a call, its client may be asked, or messages may name its task.
func (r *Request) MayWait() bool {
	return r.Asks && (r.State != nil || r.Task != "" || r.MayAsk && isAskable(r.Capabilities))
}

// Serve serves a request that belongs to no suspended call with the call that open returns.
// Otherwise it continues the call. The result is that of the server, or requires input.
func (t *Table) Serve(ctx context.Context, r *Request, open func() *Call) (json.RawMessage, error) {
	var c *Call
	var err error
	if r.State != nil {
		c, err = t.resume(ctx, r)
	} else {
		c = open()
		err = t.start(ctx, c, r)
	}
	if err != nil {
		return nil, err
	}
	return t.wait(ctx, c, r)
}

// Run serves a request with a call that never waits for its client.
func (t *Table) Run(ctx context.Context, r *Request, c *Call) (json.RawMessage, error) {
	c.asking = &asksNothing
	if r.MayAsk {
		c.asking = &acceptsNothing
	}
	c.principal, c.caller, c.level = r.Principal, r.Caller, r.Level
	c.attach(ctx, r)
	defer c.detach()
	t.mu.Lock()
	t.note(c.principal)
	t.calls = append(t.calls, c)
	t.mu.Unlock()
	defer t.remove(c)
	if !r.Asks {
		return c.Sender.Send(ctx)
	}
	raw, err := c.Sender.Send(context.WithValue(ctx, callKey{}, c))
	if err != nil {
		return nil, err
	}
	return requiredOf(r.Capabilities, raw)
}

// note records a call of a principal. The caller must hold t.mu.
func (t *Table) note(principal string) {
	switch {
	case !t.used:
		t.used, t.principal = true, principal
	case !t.several && principal != t.principal:
		t.several = true
		t.endSerial() // from now on, no question is attributed to one of several calls
	}
}

// makeSerial makes the table serial for serialTime. The caller must hold t.mu.
func (t *Table) makeSerial() {
	t.serial = true
	for _, c := range t.calls {
		if c.askable {
			c.mixed = true
		}
	}
	if t.calm != nil {
		t.calm.Reset(serialTime)
		return
	}
	t.calm = time.AfterFunc(serialTime, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.endSerial()
	})
}

// endSerial makes the table concurrent and runs the queued calls. The caller must hold t.mu.
func (t *Table) endSerial() {
	t.serial = false
	for _, c := range t.queue {
		t.admit(c)
		close(c.turn)
	}
	t.queue = nil
}

// start sends the request of a call to the server, when it is its turn.
func (t *Table) start(ctx context.Context, c *Call, r *Request) error {
	c.asking = &asking{method: r.Method, subject: r.Subject, task: r.Task}
	c.principal, c.caller, c.level = r.Principal, r.Caller, r.Level
	c.mayAsk, c.capabilities = r.MayAsk, bytes.Clone(r.Capabilities)
	c.askable = c.mayAsk && c.task == "" && isAskable(c.capabilities) // a task takes no turn
	c.asked, c.done = make(chan struct{}, 1), make(chan struct{})
	running := context.WithValue(context.WithoutCancel(ctx), callKey{}, c)
	running, c.cancel = context.WithCancelCause(running)
	c.sent = running
	c.attach(ctx, r)
	if err := t.enter(ctx, c, false); err != nil {
		c.cancel(err)
		c.detach()
		return err
	}
	go func() { // ends with the request, which its client bounds
		defer c.cancel(nil)
		defer close(c.done)
		c.result, c.err = c.Sender.Send(running)
		t.end(c, running.Err() != nil)
	}()
	return nil
}

// A Pauser can pause the time limits of a request.
type Pauser interface {
	Pause()
	Resume()
}

// Started records that the request of a call is about to be sent. Its time limits are paused while
// its client is asked.
func (t *Table) Started(c *Call, limits Pauser) {
	if c.done == nil {
		return // it is never asked
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	c.limits = limits
}

// enter adds a call, or continues a suspended call. In a serial table, it waits for its turn.
func (t *Table) enter(ctx context.Context, c *Call, again bool) error {
	t.mu.Lock()
	t.note(c.principal)
	if !c.askable || !t.serial || t.running == 0 || c.ended || again && c.mixed {
		t.admit(c)
		t.mu.Unlock()
		return nil
	}
	if !again && len(t.queue) >= maxQueued {
		t.mu.Unlock()
		return wire.Busy("too many requests wait for this server")
	}
	c.turn = make(chan struct{})
	if again { // the call waited before, and its server waits for it
		t.queue = slices.Insert(t.queue, 0, c)
	} else {
		t.queue = append(t.queue, c)
	}
	t.mu.Unlock()
	select {
	case <-c.turn:
		return nil
	case <-ctx.Done():
	case <-c.done: // without a turn
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.queue); n > 0 {
		t.queue = slices.DeleteFunc(t.queue, func(other *Call) bool { return other == c })
		if len(t.queue) < n {
			return context.Cause(ctx)
		}
	}
	if !again && ctx.Err() != nil { // it was admitted just now, and is not sent
		t.drop(c)
		return context.Cause(ctx)
	}
	return nil
}

// admit makes a call run. The lock is held.
func (t *Table) admit(c *Call) {
	if c.ended {
		return
	}
	if c.began.IsZero() {
		c.began = time.Now()
	}
	if c.askable && !c.running {
		c.running = true
		t.running++
	}
	if !slices.Contains(t.calls, c) {
		t.calls = append(t.calls, c)
	}
}

// yield ends the turn of a call. The lock is held.
func (t *Table) yield(c *Call) {
	if !c.running {
		return
	}
	c.running = false
	t.running--
	for t.running == 0 && len(t.queue) > 0 {
		next := t.queue[0]
		t.queue = slices.Delete(t.queue, 0, 1)
		t.admit(next)
		close(next.turn)
	}
}

func (t *Table) remove(c *Call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.drop(c)
}

// drop removes a call that ended. The lock is held.
func (t *Table) drop(c *Call) {
	if i := slices.Index(t.calls, c); i >= 0 {
		t.calls = slices.Delete(t.calls, i, i+1)
	}
	t.yield(c)
}

// end records that the server responded. The outcome of a suspended call is kept for its client,
// unless the call was cancelled.
func (t *Table) end(c *Call, cancelled bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c.ended = true
	t.drop(c)
	switch {
	case c.state == "":
	case cancelled:
		t.forget(c)
	case len(c.result) > maxKeptResult:
		c.result, c.err = nil, errResultTooLarge
	}
}

// Usage returns the number of calls at the server, of suspended calls, and whether the table is
// serial.
func (t *Table) Usage() (calls, suspended int, serial bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.calls) + len(t.queue), len(t.suspended), t.serial
}
