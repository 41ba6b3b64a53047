package tasks

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// ClientOptions configures [Declare]. The zero value, or nil, is right for most programs.
type ClientOptions struct {
	// PollInterval is how long a call waits before it polls a task whose server does not say how
	// long. In any case the interval is 50 milliseconds to 5 minutes. Default: 1 second.
	PollInterval time.Duration
	// Listen makes calls subscribe to their task where the server supports it, so that its end is
	// noticed at once. It takes an open request for each task.
	Listen bool
	// TTL is how long servers of revision 2025-11-25 are asked to keep tasks. In the extension the
	// server decides. Default: the server decides.
	TTL time.Duration
	// Started is called for each call that became a task, concurrently, before the call waits
	// for the task. A program that stores the handle's ID can [Resume] the task in another process.
	// Default: no function is called.
	Started func(ctx context.Context, h *Handle)
	// Logger receives internal errors. Default: slog.Default().
	Logger *slog.Logger
}

// Declare returns a copy of opts, which may be nil, for a client that supports tasks. The client
// declares the extension io.modelcontextprotocol/tasks. A call that becomes a task waits for the
// result, whether made by [mcp.CallTool], [mcp.Client.CallTool] or a Request of tools/call.
//
// The functions in opts, such as [mcp.ClientOptions].Elicit, answer the input requests of a task,
// within the limits for a request. While the server works, the timeouts of the call are
// suspended. Status messages of the task become progress notifications, numbered by integers that
// follow the last number of the server. While the server cannot be reached, calls wait for two
// minutes, and then fail.
//
// A call that ends before its task, because its context ended or an input request was not
// answered, cancels the task, for which it waits three seconds at most. [mcp.Client.Close] cancels
// no task: calls end with [mcp.ErrClosed], and their tasks continue.
//
// A server may only ask what the client declared when the task is created. A client that starts
// tasks for another process to answer needs the same functions as the other process.
//
// With a server of revision 2025-11-25, a tool whose taskSupport is "required" is called as a task,
// after the tools were listed. A tool with "optional" is called as a task by [Start] only. The
// requests that such a server sends as tasks are answered by the same functions, within the same
// limits.
//
// Declare puts a middleware in front of the middleware in opts. Keep it in front.
//
// Spec: tasks extension, Polymorphic Results and Task Polling; basic/utilities/tasks (2025-11-25).
func Declare(opts *mcp.ClientOptions, o *ClientOptions) *mcp.ClientOptions {
	var full mcp.ClientOptions
	if opts != nil {
		full = *opts
	}
	full.Extensions = maps.Clone(full.Extensions)
	if full.Extensions == nil {
		full.Extensions = map[string]json.RawMessage{}
	}
	full.Extensions[ID] = json.RawMessage("{}")
	var own ClientOptions
	if o != nil {
		own = *o
	}
	own.PollInterval = cmp.Or(own.PollInterval, defaultPollInterval)
	own.Logger = cmp.Or(own.Logger, full.Logger, slog.Default())
	full.Middleware = slices.Concat([]mcp.Middleware{func(next mcp.Handler) mcp.Handler {
		return &clientTasks{opts: own, next: next, suspended: map[string]*wait{}}
	}}, full.Middleware)
	return &full
}

// Methods of tasks, and methods of tools that tasks extend.
const (
	methodCall   = "tools/call"
	methodTools  = "tools/list"
	methodGet    = "tasks/get"
	methodUpdate = "tasks/update"
	methodCancel = "tasks/cancel"
	methodResult = "tasks/result"
	methodList   = "tasks/list"
)

// resultTask is the resultType of a call that became a task. Spec: tasks extension, Polymorphic
// Results.
const resultTask = "task"

type clientTasks struct {
	opts  ClientOptions
	next  mcp.Handler
	tools toolSupport // of a server of revision 2025-11-25

	mu        sync.Mutex       // guards the field below
	suspended map[string]*wait // calls whose input requests the client is answering, by their request state
}

// ServeMCP sends a request. If the result of a call is a task, it waits for the task.
func (m *clientTasks) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	switch req.Method {
	case methodCall:
		return m.call(ctx, req)
	case methodTools:
		res, err := m.next.ServeMCP(ctx, req)
		if _, ok := clientFormOf(req.Revision()).(client2025); ok && err == nil && res != nil {
			err = m.tools.notePage(req, res)
		}
		if err != nil {
			return nil, err
		}
		return res, nil
	case methodGet, methodUpdate, methodCancel:
		takeIntent(ctx, intentProbe)
		res, err := m.next.ServeMCP(ctx, req)
		if err == nil && res != nil && res.ResultType() != driver.ResultComplete {
			return nil, invalid(req.Method, fmt.Errorf("unexpected result type %.64q", res.ResultType()))
		}
		return res, err
	}
	return m.next.ServeMCP(ctx, req)
}

// call sends a call, continues a suspended call, or waits for a task that exists already.
func (m *clientTasks) call(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	w, responses := m.continued(req)
	if w != nil && w.task != nil {
		return w.resume(ctx, req, responses)
	}
	if w == nil {
		in := takeIntent(ctx, intentStart)
		if in != nil && in.resumed != nil {
			w = m.newWait(ctx, in.resumed, in.first, req)
			w.keepsTask = true
			return w.run(ctx, req)
		}
		w = &wait{client: m, intent: in}
	}
	return m.send(ctx, w, req)
}

func (m *clientTasks) send(ctx context.Context, w *wait, req *mcp.Request) (mcp.Result, error) {
	if w.intent != nil && w.asked {
		var err error
		if req, err = setParam(req, "requestState", w.state); err != nil {
			return nil, err
		}
	}
	form, progress := clientFormOf(req.Revision()), newProgressSender(req)
	res, canBeTask, err := form.send(ctx, m, w.intent, req, func(req *mcp.Request) (mcp.Result, error) {
		return m.next.ServeMCP(ctx, progress.wrap(req))
	})
	if err != nil || res == nil {
		return res, err
	}
	switch res.ResultType() {
	case resultTask:
		if !canBeTask {
			return nil, invalid(methodCall, errors.New("the result is a task, which was not asked for"))
		}
		return m.waitFor(ctx, w.intent, req, res, progress)
	case driver.ResultInputRequired:
		return m.suspendCall(ctx, w, req, res)
	}
	if w.intent != nil {
		if w.intent.direct, err = req.EncodeResult(res); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func (m *clientTasks) waitFor(
	ctx context.Context, in *intent, req *mcp.Request, res mcp.Result, progress *progressSender,
) (mcp.Result, error) {
	raw, err := req.EncodeResult(res)
	if err != nil {
		return nil, err
	}
	first, err := clientFormOf(req.Revision()).decodeCreated(raw)
	if err != nil {
		return nil, invalid(methodCall, err)
	}
	h := &Handle{client: mcp.ClientFrom(ctx), id: first.ID, tool: toolOf(req), answered: newAnsweredKeys()}
	if in != nil {
		in.handle = h
		return mcp.RawResult(`{"resultType":"complete","content":[]}`), nil // not returned by Start
	}
	if m.opts.Started != nil {
		m.opts.Started(ctx, h)
	}
	w := m.newWait(ctx, h, first, req)
	w.progress = progress
	return w.run(ctx, req)
}

// suspendCall keeps the intent, if any, of a call that asks before it becomes a task.
func (m *clientTasks) suspendCall(ctx context.Context, w *wait, req *mcp.Request, res mcp.Result) (mcp.Result, error) {
	if w.intent == nil {
		return res, nil
	}
	raw, err := req.EncodeResult(res)
	if err != nil {
		return nil, err
	}
	var members map[string]json.RawMessage
	if err := jsonv2.Unmarshal(raw, &members); err != nil {
		return nil, invalid(methodCall, err)
	}
	w.asked, w.state = true, members["requestState"]
	if w.state != nil && w.state[0] != '"' {
		return nil, invalid(methodCall, errors.New("requestState is not a string"))
	}
	if members["requestState"], err = jsonv2.Marshal(m.suspend(ctx, w)); err != nil {
		return nil, err
	}
	if raw, err = jsonv2.Marshal(members); err != nil {
		return nil, err
	}
	return mcp.RawResult(raw), nil
}

// suspend keeps a wait until the client answered its input requests, or the request is over. It
// returns the request state that identifies it.
func (m *clientTasks) suspend(ctx context.Context, w *wait) string {
	key := rand.Text()
	driver.OnRequestDone(ctx, func() {
		if m.removeSuspended(key) == w {
			w.abort(ctx)
		}
	})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.suspended[key] = w
	return key
}

func (m *clientTasks) removeSuspended(key string) *wait {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.suspended[key]
	delete(m.suspended, key)
	return w
}

// continued returns the wait that a request continues, with the responses; nil for a new call.
func (m *clientTasks) continued(req *mcp.Request) (*wait, json.RawMessage) {
	var p struct {
		RequestState   string          `json:"requestState"`
		InputResponses json.RawMessage `json:"inputResponses"`
	}
	if jsonv2.Unmarshal(req.Params, &p) != nil || p.RequestState == "" {
		return nil, nil
	}
	return m.removeSuspended(p.RequestState), p.InputResponses
}

// An intent tells the middleware the purpose for which [Start] and [Handle.Wait] make a request.
// The context carries it to the first request of its kind, and no further: the client's functions
// may make requests with the same context.
type intent struct {
	kind    intentKind
	taken   atomic.Bool
	resumed *Handle         // the task to wait for; no call is sent
	first   *seenTask       // of resumed; may be nil
	handle  *Handle         // set for a call that became a task
	direct  json.RawMessage // set to the result of a call that did not
}

type intentKind uint8

const (
	intentProbe intentKind = iota + 1 // find out whether the client uses the middleware
	intentStart                       // return a handle instead of a result, or wait for a handle
)

type intentKey struct{}

func withIntent(ctx context.Context, in *intent) context.Context {
	return context.WithValue(ctx, intentKey{}, in)
}

// takeIntent returns the intent of that kind if no request took it yet.
func takeIntent(ctx context.Context, kind intentKind) *intent {
	in, ok := ctx.Value(intentKey{}).(*intent)
	if !ok || in.kind != kind || in.taken.Swap(true) {
		return nil
	}
	return in
}
