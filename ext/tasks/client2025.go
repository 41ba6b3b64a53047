package tasks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// maxToolSupports limits the number of tools of a server whose taskSupport is remembered.
const maxToolSupports = 10_000

// client2025 is the tasks of revision 2025-11-25: the client decides which calls become tasks, as
// far as the tool allows it.
type client2025 struct{}

// hasNotifications returns false. The server sends the task's progress with tasks/result.
func (client2025) hasNotifications() bool { return false }

// send sends a call as a task if the tool must be called so, or may be and the caller wants a
// handle. If a handle is wanted and the tools cannot be listed now, the call is not sent: without a
// task, its result would be lost with its connection. Spec: basic/utilities/tasks (2025-11-25),
// Tool-Level Negotiation.
func (f client2025) send(
	ctx context.Context, m *clientTasks, in *intent, req *mcp.Request, forward forwardFunc,
) (mcp.Result, bool, error) {
	if capabilityOf(mcp.ClientFrom(ctx)).Requests.Tools.Call == nil {
		res, err := forward(req)
		return res, false, err
	}
	tool := toolOf(req)
	support, known := m.tools.of(tool)
	if !known {
		err := m.fetchTools(ctx, mcp.CallOptions{})
		if support, known = m.tools.of(tool); !known && in != nil && isTransient(err) {
			return nil, false, errNotListed(err)
		}
	}
	if support == supportRequired || support == supportOptional && in != nil {
		return f.sendTask(m, req, forward)
	}
	res, err := forward(req)
	fault, isFault := errors.AsType[*mcp.Error](err)
	if !isFault || fault.Code != mcp.CodeMethodNotFound || !fault.Remote() {
		return res, false, err
	}
	// The tool may have to be called as a task since it was listed. This call did not run.
	_ = m.fetchTools(ctx, mcp.CallOptions{NoCache: true}) // the call failed already
	if support, _ = m.tools.of(tool); support != supportRequired {
		return res, false, err
	}
	return f.sendTask(m, req, forward)
}

// A capability2025 is the capability of a server for tasks. An absent member is not supported.
type capability2025 struct {
	List     *struct{} `json:"list"`
	Requests struct {
		Tools struct {
			Call *struct{} `json:"call"`
		} `json:"tools"`
	} `json:"requests"`
}

// capabilityOf returns the capability of a client's server. A malformed capability is not
// supported.
func capabilityOf(c *mcp.Client) capability2025 {
	var declared capability2025
	if raw := c.Capabilities().Tasks; raw != nil && jsonv2.Unmarshal(raw, &declared) != nil {
		return capability2025{}
	}
	return declared
}

// sendTask sends a call as a task.
func (client2025) sendTask(m *clientTasks, req *mcp.Request, forward forwardFunc) (mcp.Result, bool, error) {
	var task struct {
		TTL int64 `json:"ttl,omitzero"`
	}
	task.TTL = m.opts.TTL.Milliseconds()
	raw, err := jsonv2.Marshal(task)
	if err != nil {
		return nil, true, err
	}
	if req, err = setParam(req, "task", raw); err != nil {
		return nil, true, err
	}
	res, err := forward(req)
	return res, true, err
}

// fetchTools lists the tools. notePage reads the results.
func (m *clientTasks) fetchTools(ctx context.Context, o mcp.CallOptions) error {
	for _, err := range mcp.ClientFrom(ctx).Tools(mcp.WithCallOptions(ctx, o)) {
		if err != nil {
			m.opts.Logger.DebugContext(ctx, "tasks: the tools could not be listed; they are not called as tasks",
				"error", err)
			return err
		}
	}
	m.tools.mu.Lock()
	defer m.tools.mu.Unlock()
	m.tools.isComplete = true
	return nil
}

// errNotListed returns the error of a call that was not sent because the tools could not be listed.
// A list that may have run does not concern the call.
func errNotListed(err error) error {
	if failed, ok := errors.AsType[*mcp.TransportError](err); ok {
		err = failed.Err
	}
	return &mcp.TransportError{Method: methodCall, Err: fmt.Errorf("list the tools: %w", err)}
}

// toolSupport holds the taskSupport of the tools of a server.
type toolSupport struct {
	mu         sync.Mutex        // guards the fields below
	support    map[string]string // by name of the tool; only tools that can be called as tasks
	isComplete bool              // all tools were listed
}

// notePage reads a result of tools/list. A tool with an invalid definition is not called as a task.
func (x *toolSupport) notePage(req *mcp.Request, res mcp.Result) error {
	raw, err := req.EncodeResult(res)
	if err != nil {
		return err
	}
	var page struct {
		Tools []json.RawMessage `json:"tools"`
	}
	_ = jsonv2.Unmarshal(raw, &page) // package mcp refuses an invalid result
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, raw := range page.Tools {
		var tool struct {
			Name      string `json:"name"`
			Execution struct {
				TaskSupport string `json:"taskSupport"`
			} `json:"execution"`
		}
		_ = jsonv2.Unmarshal(raw, &tool)
		delete(x.support, tool.Name)
		if s := tool.Execution.TaskSupport; s == supportRequired || s == supportOptional {
			if x.support == nil || len(x.support) >= maxToolSupports {
				x.support = map[string]string{}
			}
			x.support[tool.Name] = s
		}
	}
	return nil
}

// of returns the taskSupport of a tool, and whether it is known.
func (x *toolSupport) of(tool string) (support string, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	support = x.support[tool]
	return support, x.isComplete || support != ""
}

// Spec: basic/utilities/tasks (2025-11-25), Creating Tasks.
func (f client2025) decodeCreated(raw []byte) (*seenTask, error) {
	var created struct {
		Task json.RawMessage `json:"task"`
	}
	if err := jsonv2.Unmarshal(raw, &created); err != nil {
		return nil, err
	}
	if created.Task == nil {
		return nil, errors.New("the task result has no member task")
	}
	return f.decode(created.Task)
}

// Spec: basic/utilities/tasks (2025-11-25), Getting Tasks.
func (f client2025) decodeTask(raw []byte) (*seenTask, error) {
	t, err := f.decode(raw)
	if err == nil {
		t.isDetailed = true
	}
	return t, err
}

func (client2025) decode(raw []byte) (*seenTask, error) {
	t, members, err := decodeFields(raw)
	if err == nil {
		t.TTL, t.PollInterval = milliseconds(members.TTL2025), milliseconds(members.Poll2025)
	}
	return t, err
}

// fetchOutcome fetches the result or the error of a task that ended. Spec:
// basic/utilities/tasks (2025-11-25), Retrieving Task Results.
func (client2025) fetchOutcome(ctx context.Context, h *Handle, t *seenTask) error {
	if t.Status != StatusCompleted && t.Status != StatusFailed {
		return nil
	}
	raw, err := h.client.Do(ctx, methodResult, taskParams{ID: h.id})
	var fault *mcp.Error
	switch {
	case err == nil:
		t.Result = raw
	case t.Status == StatusFailed && errors.As(err, &fault) && fault.Remote():
		t.Error = fault
	default:
		return err
	}
	return nil
}

// answer returns an error: the server asks with requests of its own, during tasks/result.
func (client2025) answer(_ context.Context, h *Handle, _ json.RawMessage) error {
	return fmt.Errorf("tasks: a server of revision %s asks the client itself while Wait waits for the task",
		h.client.Revision())
}

// Limits for the list of a server.
const (
	maxListedTasks = 10_000
	maxListPages   = 1000
	maxCursor      = 4 << 10 // bytes
)

// Spec: basic/utilities/tasks (2025-11-25), Listing Tasks.
func (f client2025) list(ctx context.Context, c *mcp.Client) iter.Seq2[*Task, error] {
	if capabilityOf(c).List == nil {
		return noList
	}
	return func(yield func(*Task, error) bool) {
		var cursor *string
		seen, count := map[string]bool{}, 0
		for range maxListPages {
			page, err := listPage(ctx, c, cursor)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, raw := range page.Tasks {
				t, err := f.decodeTask(raw)
				if count++; err == nil && count > maxListedTasks {
					err = fmt.Errorf("the list has more than %d tasks", maxListedTasks)
				}
				if err != nil {
					yield(nil, invalid(methodList, err))
					return
				}
				if !yield(&t.Task, nil) {
					return
				}
			}
			switch {
			case page.Next == nil:
				return
			case len(*page.Next) > maxCursor || seen[*page.Next]:
				yield(nil, invalid(methodList, errors.New("a nextCursor is too long or repeated")))
				return
			}
			cursor = page.Next
			seen[*cursor] = true
		}
		yield(nil, invalid(methodList, fmt.Errorf("the list has more than %d pages", maxListPages)))
	}
}

// A taskPage is a result of tasks/list.
type taskPage struct {
	Tasks []json.RawMessage `json:"tasks"`
	Next  *string           `json:"nextCursor"`
}

func listPage(ctx context.Context, c *mcp.Client, cursor *string) (*taskPage, error) {
	params := struct {
		Cursor *string `json:"cursor,omitzero"`
	}{cursor}
	raw, err := c.Do(ctx, methodList, params)
	if err != nil {
		return nil, err
	}
	page := &taskPage{}
	if err := jsonv2.Unmarshal(raw, page); err != nil {
		return nil, invalid(methodList, err)
	}
	return page, nil
}

// resultTimeout is how long tasks/result may take once the task ended, before it is sent again.
const resultTimeout = 10 * time.Second

var errNoResult = fmt.Errorf("tasks: no response to tasks/result: %w", mcp.ErrTimeout)

// follow polls the task, and sends tasks/result when the task ended or requires input. The
// server sends its requests and progress with the response to tasks/result. A call that wants
// progress sends it at once. Spec: basic/utilities/tasks (2025-11-25), Getting Tasks, Retrieving
// Task Results, Input Required Status.
func (client2025) follow(ctx context.Context, w *wait, req *mcp.Request) (mcp.Result, error) {
	for {
		if t := w.poller.last; t != nil && t.Status != StatusCancelled &&
			(t.Status != StatusWorking || w.progress != nil && !w.noResultWhileWorking) {
			res, err := w.fetchResult(ctx, req)
			if res != nil || err != nil {
				return res, err
			}
			w.poller.immediate = false
		}
		t, err := w.poller.next(ctx)
		if err != nil {
			return nil, err
		}
		switch {
		case t.Status == StatusCancelled:
			return nil, cancelledError(&t.Task)
		case t.Status == StatusWorking, t.Status == StatusInputRequired && w.wasOpen:
			w.resultFailures = failures{} // the stream was cut before there was a result
		}
	}
}

// fetchResult sends tasks/result. The request must be repeated if both results are nil.
func (w *wait) fetchResult(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	sent := time.Now()
	res, err := w.sendResultRequest(ctx, req)
	w.wasOpen = time.Since(sent) >= resultTimeout
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err == nil {
		if t := res.ResultType(); t != driver.ResultComplete {
			return nil, invalid(methodResult, fmt.Errorf("the result of the task has the result type %.64q", t))
		}
		return res, nil
	}
	var fault *mcp.Error
	if errors.As(err, &fault) {
		// It is the error of the call if the task ended, and of tasks/result otherwise.
		t, getErr := w.poller.get(mcp.WithCallOptions(ctx, w.poller.options))
		switch {
		case getErr != nil && !isTransient(getErr):
			return nil, err
		case getErr == nil && t.Status == StatusCancelled:
			return nil, cancelledError(&t.Task)
		case getErr == nil && t.Status.Final():
			return nil, err
		case getErr == nil && t.Status == StatusWorking:
			w.noResultWhileWorking = true
			return nil, nil
		}
	} else if !isTransient(err) {
		return nil, err
	}
	if w.resultFailures.lastFor(maxOutage) {
		return nil, fmt.Errorf("tasks: fetch the result of task %q: %w", w.task.id, err)
	}
	return nil, nil
}

// sendResultRequest sends a tasks/result and waits for the response. Meanwhile it polls the task
// now and then, because the stream of a request that waits for hours may be broken without an
// error.
func (w *wait) sendResultRequest(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	type response struct {
		res mcp.Result
		err error
	}
	sendCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan response, 1)
	go func() { // ends at the latest when sendCtx is cancelled
		var r response
		defer func() {
			if p := recover(); p != nil {
				r = response{err: fmt.Errorf("tasks: middleware panicked: %v", p)}
			}
			ended <- r
		}()
		r.res, r.err = w.client.next.ServeMCP(sendCtx, w.progress.wrap(w.resultRequest(req)))
		if r.res == nil && r.err == nil {
			r.err = errors.New("tasks: middleware returned neither result nor error")
		}
	}()
	overdue := false
	for {
		pause := max(w.poller.interval(), subscribedInterval)
		if overdue {
			pause = resultTimeout
		}
		timer := time.NewTimer(pause)
		select {
		case r := <-ended:
			timer.Stop()
			return r.res, r.err
		case <-timer.C:
		}
		if overdue {
			cancel(errNoResult)
			<-ended
			return nil, &mcp.TransportError{Method: methodResult, MayHaveRun: true, Err: errNoResult}
		}
		t, err := w.poller.get(mcp.WithCallOptions(ctx, w.poller.options))
		if err == nil {
			w.poller.last = t
		}
		overdue = err == nil && t.Status.Final() || err != nil && !isTransient(err)
	}
}

// resultRequest returns the tasks/result for a call, with the `_meta` and progressToken of it.
func (w *wait) resultRequest(req *mcp.Request) *mcp.Request {
	raw, err := jsonv2.Marshal(taskParams{ID: w.task.id, Meta: metaOf(req)})
	if err != nil {
		raw = []byte("{}") // a string always encodes
	}
	out := *req
	out.Method, out.HeaderParams, out.Params = methodResult, nil, raw
	return &out
}
