package task

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// maxTaskWaits limits the tasks that callers wait for, and maxTaskWaitsPerCaller the tasks of a
	// principal. Each wait holds a request at a server.
	maxTaskWaits          = 1000
	maxTaskWaitsPerCaller = 64
	// waitKept is how long a wait continues without a request of the caller. It is longer than the
	// longest interval at which clients poll.
	waitKept = 10 * time.Minute
	// refusalTime is how long a response to questions waits for the refusal of its form.
	refusalTime = 100 * time.Millisecond
	// maxWaitFailures bounds how often in sequence a wait is sent again after a failure, after
	// waitRetry each time.
	maxWaitFailures = 5
	waitRetry       = time.Second
)

// A taskWait waits for the result of a task at a server of revision 2025-11-25, which asks its client
// only while that waits. Questions are kept for the requests of the caller, which come and go.
type taskWait struct {
	table          *Table
	key, principal string
	handle         string // of the task
	prefix         string // of the keys of questions, so that the keys of another wait differ
	ctx            context.Context
	stop           context.CancelFunc
	answers        chan waitAnswer // buffered(1)

	// The lock of the table guards the fields below.
	changed  chan struct{}
	version  int             // increases with each change
	open     json.RawMessage // the questions without an answer, or nil
	ended    bool
	result   mcp.RawResult
	err      error
	attached map[*mcp.Request]int // requests in progress that receive progress
	until    time.Time            // when the wait ends without further requests
	timer    *time.Timer
}

type waitAnswer struct {
	responses json.RawMessage
	refused   chan error // buffered(1)
}

// A waitSender sends tasks/result with further members of its params, and returns the result and
// the place of the next request.
type waitSender func(ctx context.Context, members []byte, at Place) (mcp.RawResult, Place, error)

// waitFor returns the wait for a task. It starts the wait if necessary.
func (c *Caller) waitFor(req *mcp.Request, k *Task) (*taskWait, error) {
	key := c.waitKey(k)
	c.mu.Lock()
	defer c.mu.Unlock()
	if w := c.waits[key]; w != nil {
		return w, nil
	}
	if c.Ctx.Err() != nil {
		return nil, context.Cause(c.Ctx)
	}
	own := 0
	for _, w := range c.waits {
		if w.principal == c.Principal {
			own++
		}
	}
	if own >= maxTaskWaitsPerCaller || len(c.waits) >= maxTaskWaits {
		return nil, mcp.Errorf(mcp.CodeBusy, "too many tasks are waited for")
	}
	w := &taskWait{table: c.Table, key: key, principal: c.Principal, handle: k.Handle,
		prefix: rand.Text()[:8] + "-", answers: make(chan waitAnswer, 1),
		changed: make(chan struct{}), attached: map[*mcp.Request]int{}}
	w.ctx, w.stop = context.WithCancel(c.Ctx)
	w.until = time.Now().Add(waitKept)
	w.timer = time.AfterFunc(waitKept, w.expire)
	if c.waits == nil {
		c.waits = map[string]*taskWait{}
	}
	c.waits[key] = w
	send := waitSenderFor(req, k, w)
	c.Run(func() { w.run(send) })
	return w, nil
}

func (c *Caller) waitKey(k *Task) string { return c.Principal + "\n" + k.Handle }

func waitSenderFor(req *mcp.Request, t *Task, w *taskWait) waitSender {
	inner := *req
	inner.Method, inner.HeaderParams, inner.Notify = MethodResult, nil, w.notify
	return func(ctx context.Context, members []byte, at Place) (mcp.RawResult, Place, error) {
		inner := inner
		inner.Params = append(append(jsonscan.AppendQuote([]byte(`{"taskId":`), t.ID), members...), '}')
		at.Instance = cmp.Or(at.Instance, t.Instance)
		at.Class, at.Waiter = t.Class, "task "+t.Handle
		res, used, err := t.Send(ctx, &inner, at)
		raw, ok := res.(mcp.RawResult)
		if err == nil && (!ok || !jsonscan.IsObject(raw)) {
			err = invalidTask(t.Server, "tasks/result: the result is not an object")
		}
		return raw, used, err
	}
}

// existingWait returns the wait for a task, or nil.
func (c *Caller) existingWait(k *Task) *taskWait {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.waits[c.waitKey(k)]
}

// run waits for the result. It sends the request again after a timeout, since a task may take long.
func (w *taskWait) run(send waitSender) {
	var asked mcp.RawResult // the last result that asks for input
	var answer *waitAnswer
	var at Place // of asked
	for failures := 0; ; {
		raw, next, err := send(w.ctx, answer.members(asked), at)
		if answer != nil {
			refusal := refusedAnswer(err)
			if answer.refused <- refusal; refusal != nil {
				raw, next, err = asked, at, nil // ask again
			}
			answer = nil
		}
		failed, isFailure := errors.AsType[*hosterr.Error](err)
		switch {
		case w.ctx.Err() != nil:
		case err == nil && raw.ResultType() == driver.ResultInputRequired:
			failures, asked, at = 0, raw, next
			answer = w.ask(raw)
		case isFailure && failures < maxWaitFailures:
			if failures++; failed.Code == hosterr.CodeTimeout {
				failures = 0
			}
			at = Place{}
			w.pause()
		default:
			w.end(raw, err)
			return
		}
		if w.ctx.Err() != nil {
			w.end(nil, context.Cause(w.ctx))
			return
		}
	}
}

// members returns the members of a request that answers a result, each after a comma.
func (a *waitAnswer) members(asked mcp.RawResult) (members []byte) {
	if a == nil {
		return nil
	}
	if state, ok := jsonscan.Get(asked, "requestState"); ok {
		members = append(append(members, `,"requestState":`...), state...)
	}
	return append(append(members, `,"inputResponses":`...), a.responses...)
}

// refusedAnswer returns the error of a request whose answers do not match the form of the
// questions. The questions stay open.
func refusedAnswer(err error) error {
	fault, ok := errors.AsType[*mcp.Error](err)
	if ok && !fault.Remote() && fault.Code == mcp.CodeInvalidParams &&
		strings.Contains(fault.Message, "inputResponses") {
		return fault
	}
	return nil
}

func (w *taskWait) pause() {
	timer := time.NewTimer(waitRetry)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
	}
}

// ask publishes the questions of a result and waits for answers. It returns nil if the wait ends.
func (w *taskWait) ask(raw mcp.RawResult) *waitAnswer {
	requests, _ := jsonscan.Get(raw, "inputRequests")
	open := []byte{'{'}
	for key, request := range jsonscan.Members(requests) {
		if len(open) > 1 {
			open = append(open, ',')
		}
		open = append(append(jsonscan.AppendQuote(open, w.prefix+string(key)), ':'), request...)
	}
	w.table.mu.Lock()
	open = append(open, '}')
	w.open = open
	w.wakeLocked()
	w.table.mu.Unlock()
	select {
	case a := <-w.answers:
		return &a
	case <-w.ctx.Done():
		return nil
	}
}

// wakeLocked wakes the requests that wait for a change.
func (w *taskWait) wakeLocked() {
	w.version++
	close(w.changed)
	w.changed = make(chan struct{})
}

// deliver passes responses to open questions and ignores other responses. It returns an error if
// the responses do not match the form of the questions.
func (w *taskWait) deliver(ctx context.Context, responses []byte) error {
	w.table.mu.Lock()
	open := w.open
	w.table.mu.Unlock()
	own := []byte{'{'} // made without the lock: the responses may be many, and other callers wait for it
	for key := range jsonscan.Members(open) {
		response, ok := jsonscan.Get(responses, string(key))
		if !ok {
			continue
		}
		if len(own) > 1 {
			own = append(own, ',')
		}
		own = append(append(jsonscan.AppendQuote(own, strings.TrimPrefix(string(key), w.prefix)), ':'), response...)
	}
	w.table.mu.Lock()
	if len(own) == 1 || len(w.open) == 0 || &w.open[0] != &open[0] { // another request was faster
		w.table.mu.Unlock()
		return nil
	}
	w.open = nil // until the server has the responses
	w.wakeLocked()
	w.table.mu.Unlock()
	a := waitAnswer{append(own, '}'), make(chan error, 1)}
	w.answers <- a // never blocks: the questions were open
	timer := time.NewTimer(refusalTime)
	defer timer.Stop()
	select {
	case err := <-a.refused:
		return err
	case <-timer.C:
	case <-ctx.Done():
	case <-w.ctx.Done():
	}
	return nil
}

// A waitState is the state of a wait at some time.
type waitState struct {
	open    json.RawMessage // nil for no questions
	version string
	ended   bool
	result  mcp.RawResult
	err     error
}

// next waits until there is a result, or questions of another version than asked.
func (w *taskWait) next(ctx context.Context, asked string) (waitState, error) {
	for {
		w.table.mu.Lock()
		now := waitState{w.open, strconv.Itoa(w.version), w.ended, w.result, w.err}
		changed := w.changed
		w.table.mu.Unlock()
		if now.ended || now.open != nil && now.version != asked {
			return now, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return now, context.Cause(ctx)
		}
	}
}

// attach makes a request receive progress until detach is called.
func (w *taskWait) attach(req *mcp.Request) (detach func()) {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	w.attached[req]++
	return func() {
		w.table.mu.Lock()
		defer w.table.mu.Unlock()
		delete(w.attached, req)
		w.until = time.Now().Add(waitKept)
	}
}

// expire ends a wait that requests left unused for waitKept.
func (w *taskWait) expire() {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	switch left := time.Until(w.until); {
	case w.ended:
	case len(w.attached) > 0:
		w.timer.Reset(waitKept)
	case left > 0:
		w.timer.Reset(left)
	default:
		w.stop()
	}
}

func (w *taskWait) end(raw mcp.RawResult, err error) {
	w.table.mu.Lock()
	defer w.table.mu.Unlock()
	delete(w.table.waits, w.key)
	w.stop()
	w.timer.Stop()
	w.open, w.ended, w.result, w.err = nil, true, raw, err
	w.wakeLocked()
}

// notify passes the progress of the task to the requests that wait for it, each under its own token.
func (w *taskWait) notify(ctx context.Context, method string, params json.RawMessage) error {
	w.table.mu.Lock()
	requests := slices.Collect(maps.Keys(w.attached))
	w.table.mu.Unlock()
	for _, req := range requests {
		own := params
		if method == wire.NotificationProgress {
			token, ok := req.Meta(wire.MetaProgressToken)
			if !ok {
				continue
			}
			own = relate(jsonscan.WithMember(params, "progressToken", token), w.handle)
		}
		if req.Notify != nil {
			_ = req.Notify(ctx, method, own) // fails if the caller is gone, which ends its request
		}
	}
	return nil
}
