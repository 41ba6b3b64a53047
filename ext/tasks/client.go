package tasks

import (
	"cmp"
	"context"
	"crypto/rand"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// ClientOptions configures [WithTasks]. The zero value, or nil, is what most programs want.
type ClientOptions struct {
	// PollInterval is how long a call waits before it asks again after a task whose server does not say how long. Whatever
	// the server says, it is never less than 50 milliseconds nor more than 5 minutes. Default: one second.
	PollInterval time.Duration
	// Listen has calls that wait for a task listen to its changes, where the server agrees, and ask only now and then. It
	// costs one open request for each task, and tells at once when a task ends.
	Listen bool
	// TTL is for how long servers of revision 2025-11-25 are asked to keep tasks. In the extension it is the server that
	// decides. Default: for as long as the server likes.
	TTL time.Duration
	// Started is told of each call that has become a task, before the call waits for it. Whoever keeps the handle's ID can
	// wait for the task in another process, see [Resume]. It is called for several calls at the same time, and each of them
	// waits until it returns. Default: nobody is told.
	Started func(ctx context.Context, h *Handle)
	// Logger takes what goes wrong. Default: slog.Default().
	Logger *slog.Logger
}

// WithTasks returns a copy of opts, which may be nil, for a client that takes tasks: it declares the extension, and a call
// whose server makes a task of it waits for the result, as every call does. That is [mcp.Call], [mcp.Client.CallTool] and
// a Request of tools/call. Questions of a task are answered by the client's own functions, under the limits of
// [mcp.ClientOptions] for the questions of one request. While the server works, the time limits of the call stand still: a
// task takes as long as it takes, at most as long as its server says that it keeps it.
//
// A call that ends before its task, because its context has ended or a question was not answered, calls the task off at the
// server before it returns, as far as that can be done within three seconds. [mcp.Client.Close] does not: it is like a
// connection that is lost, the calls end with [mcp.ErrClosed] at once, and their tasks go on, for whoever was told of them by
// [ClientOptions.Started]. A program that wants none of that ends the contexts of its calls, and closes the client when they
// have returned.
//
// Status messages of the task become notes of progress, for a caller that wants progress. They are numbered by a count that
// goes on from the last number of the server's own, and has no total.
//
// What the questions of a task need is declared when the task is made: a client that only starts tasks, which another process
// will answer, has to have the functions for it all the same (such as [mcp.ClientOptions].Elicit), or the server cannot ask.
//
// While the server is away, calls wait on, for two minutes; then they end with an error.
//
// With a server of revision 2025-11-25 a tool that must be called as a task is called so; which tools these are is known
// from their list, which is fetched if nobody has yet. One that may be called so is called as an ordinary tool, under the
// ordinary time limits; [Start] makes a task of it. Such a server may also make tasks of the questions that it asks this
// client: they are answered by the same functions, under the same limits, and kept for the session at most.
//
// The middleware of WithTasks is put in front of all that opts has, so that these see what travels. It belongs there.
//
// Spec: tasks extension, Polymorphic Results and Task Polling; basic/utilities/tasks (2025-11-25).
func WithTasks(opts *mcp.ClientOptions, o *ClientOptions) *mcp.ClientOptions {
	var full mcp.ClientOptions
	if opts != nil {
		full = *opts
	}
	full.Extensions = maps.Clone(full.Extensions)
	if full.Extensions == nil {
		full.Extensions = map[string]stdjson.RawMessage{}
	}
	full.Extensions[ID] = stdjson.RawMessage("{}")
	var own ClientOptions
	if o != nil {
		own = *o
	}
	own.PollInterval = cmp.Or(own.PollInterval, defaultPollInterval)
	own.Logger = cmp.Or(own.Logger, full.Logger, slog.Default())
	full.Middleware = slices.Concat([]mcp.Middleware{func(next mcp.Handler) mcp.Handler {
		return &taker{opts: own, next: next, parked: map[string]*wait{}}
	}}, full.Middleware)
	return &full
}

// Methods of tasks, and the one whose calls may become tasks.
const (
	methodCall   = "tools/call"
	methodTools  = "tools/list"
	methodGet    = "tasks/get"
	methodUpdate = "tasks/update"
	methodCancel = "tasks/cancel"
)

// resultTask is the type of the result that says that a call has become a task.
//
// Spec: tasks extension, Polymorphic Results.
const resultTask = "task"

// A taker is what one client has in front of its server.
type taker struct {
	opts  ClientOptions
	next  mcp.Handler
	tools supportIndex // of a server of 2025-11-25

	mu     sync.Mutex
	parked map[string]*wait // calls whose questions are being answered, by the state that comes back with the answers
}

// ServeMCP sends a request, and waits if what comes back is a task.
func (k *taker) ServeMCP(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	switch req.Method {
	case methodCall:
		return k.call(ctx, req)
	case methodTools:
		return k.list(ctx, req)
	case methodGet, methodUpdate, methodCancel:
		intentFrom(ctx, intentProbe)
		res, err := k.next.ServeMCP(ctx, req)
		if err == nil && res != nil && res.ResultType() != mcp.ResultComplete {
			// What a task asks stands in the task.
			return nil, invalid(req.Method, fmt.Errorf("it has the result type %.64q", res.ResultType()))
		}
		return res, err
	}
	return k.next.ServeMCP(ctx, req)
}

// call sends a call, goes on with one that had to ask, or takes up a task that is there already.
func (k *taker) call(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	w, answers := k.unpark(req)
	if w != nil && w.task != nil {
		return w.goOn(ctx, req, answers)
	}
	if w == nil {
		in := intentFrom(ctx, intentStart)
		if in != nil && in.resumed != nil {
			w = k.newWait(ctx, in.resumed, in.first, req)
			w.kept = true
			return w.run(ctx, req)
		}
		w = &wait{taker: k, intent: in}
	}
	return k.send(ctx, w, req)
}

// send sends a call to the server.
func (k *taker) send(ctx context.Context, w *wait, req *mcp.Request) (mcp.Result, error) {
	if w.intent != nil && w.asked {
		var err error
		if req, err = withState(req, w.state); err != nil {
			return nil, err
		}
	}
	heard := newsOf(req)
	sent, how := k.augment(ctx, w.intent, req)
	res, err := k.next.ServeMCP(ctx, heard.through(sent))
	if how == asCall && isMethodNotFound(err) {
		// The tool may have to be called as a task since it was listed. This call has not run.
		if sent, how = k.augmentAnew(ctx, req); how == asTask {
			res, err = k.next.ServeMCP(ctx, heard.through(sent))
		}
	}
	if err != nil || res == nil {
		return res, err
	}
	switch res.ResultType() {
	case resultTask:
		return k.created(ctx, w.intent, req, res, how, heard)
	case mcp.ResultInputRequired:
		return k.parkCall(ctx, w, req, res)
	}
	return w.intent.finished(req, res)
}

// created takes the task that a call has become.
func (k *taker) created(
	ctx context.Context, in *intent, req *mcp.Request, res mcp.Result, how manner, heard *news,
) (mcp.Result, error) {
	if how == asCall {
		return nil, invalid(methodCall, errors.New("it is a task, and nobody asked for one"))
	}
	raw, err := req.EncodeResult(res)
	if err != nil {
		return nil, err
	}
	first, err := formOf(req).created(raw)
	if err != nil {
		return nil, invalid(methodCall, err)
	}
	h := &Handle{client: mcp.ClientFrom(ctx), id: first.ID, tool: toolOf(req), answered: &answered{}}
	if in != nil {
		return in.became(h)
	}
	if k.opts.Started != nil {
		k.opts.Started(ctx, h)
	}
	w := k.newWait(ctx, h, first, req)
	w.news = heard
	return w.run(ctx, req)
}

// parkCall remembers what a call was made for while its questions are answered. One that nobody has plans for passes as it
// is.
func (k *taker) parkCall(ctx context.Context, w *wait, req *mcp.Request, res mcp.Result) (mcp.Result, error) {
	if w.intent == nil {
		return res, nil
	}
	raw, err := req.EncodeResult(res)
	if err != nil {
		return nil, err
	}
	var members map[string]stdjson.RawMessage
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, invalid(methodCall, err)
	}
	w.asked, w.state = true, members["requestState"]
	if w.state != nil && w.state[0] != '"' {
		return nil, invalid(methodCall, errors.New("its requestState is no string"))
	}
	if members["requestState"], err = json.Marshal(k.park(ctx, w)); err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(members); err != nil {
		return nil, err
	}
	return mcp.RawResult(raw), nil
}

// park keeps a call until its answers come, or the call is over. It gives the state that comes back with the answers.
func (k *taker) park(ctx context.Context, w *wait) string {
	key := rand.Text()
	mcp.AfterRequest(ctx, func() {
		if k.take(key) == w {
			w.giveUp(ctx)
		}
	})
	k.mu.Lock()
	defer k.mu.Unlock()
	k.parked[key] = w
	return key
}

func (k *taker) take(key string) *wait {
	k.mu.Lock()
	defer k.mu.Unlock()
	w := k.parked[key]
	delete(k.parked, key)
	return w
}

// unpark returns the call that comes back with its answers; nil for a new one.
func (k *taker) unpark(req *mcp.Request) (*wait, stdjson.RawMessage) {
	k.mu.Lock()
	none := len(k.parked) == 0
	k.mu.Unlock()
	if none {
		return nil, nil // most calls are not looked into
	}
	var p struct {
		RequestState   string             `json:"requestState"`
		InputResponses stdjson.RawMessage `json:"inputResponses"`
	}
	if json.Unmarshal(req.Params, &p) != nil || p.RequestState == "" {
		return nil, nil
	}
	return k.take(p.RequestState), p.InputResponses
}

// An intent is what this package wants of a request of its own, whose client has the middleware. It goes along in the
// context, and is taken by the first request that it was meant for: what the client's functions do with the context is
// theirs.
type intent struct {
	kind    intentKind
	mu      sync.Mutex
	taken   bool
	resumed *Handle            // the task to wait for, in place of a call
	first   *sighting          // of that, nil for none
	handle  *Handle            // of the task that the call has become
	direct  stdjson.RawMessage // the result of a call that has become none
}

type intentKind uint8

const (
	intentProbe intentKind = iota + 1 // to see that the middleware is there
	intentStart                       // to have a handle in place of a result, or a result for a handle
)

type intentKey struct{}

func withIntent(ctx context.Context, in *intent) context.Context {
	return context.WithValue(ctx, intentKey{}, in)
}

func intentFrom(ctx context.Context, kind intentKind) *intent {
	in, ok := ctx.Value(intentKey{}).(*intent)
	if !ok || in.kind != kind {
		return nil
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.taken {
		return nil
	}
	in.taken = true
	return in
}

// became notes the task, and gives the call the result that ends it.
func (in *intent) became(h *Handle) (mcp.Result, error) {
	in.handle = h
	return mcp.RawResult(`{"resultType":"complete","content":[]}`), nil
}

// finished notes the result of a call that became no task, for whoever started it.
func (in *intent) finished(req *mcp.Request, res mcp.Result) (mcp.Result, error) {
	if in == nil {
		return res, nil
	}
	raw, err := req.EncodeResult(res)
	if err != nil {
		return nil, err
	}
	in.direct = raw
	return mcp.RawResult(raw), nil
}
