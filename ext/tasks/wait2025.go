package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// resultTimeout is how long tasks/result may take once the task has ended, before it is sent again.
const resultTimeout = 10 * time.Second

// errNoResult is the cause of a tasks/result that was too slow.
var errNoResult = fmt.Errorf("tasks: no response to tasks/result: %w", mcp.ErrTimeout)

// follow polls the task, and sends tasks/result when the task has ended or requires input. The
// server sends its requests and progress with the response to tasks/result. A call that wants
// progress sends it at once.
//
// Spec: basic/utilities/tasks (2025-11-25), Getting Tasks, Retrieving Task Results, Input Required
// Status.
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

// fetchResult sends tasks/result. If it returns neither a result nor an error, the request has to
// be repeated.
func (w *wait) fetchResult(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	sent := time.Now()
	res, err := w.sendResultRequest(ctx, req)
	w.wasOpen = time.Since(sent) >= resultTimeout
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err == nil {
		if t := res.ResultType(); t != mcp.ResultComplete {
			return nil, invalid(methodResult, fmt.Errorf("the result of the task has the result type %.64q", t))
		}
		return res, nil
	}
	var fault *mcp.Error
	if errors.As(err, &fault) {
		// It is the error of the call if the task has ended, and of tasks/result otherwise.
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

// sendResultRequest sends one tasks/result and waits for the response. Meanwhile it polls the task
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

// resultRequest returns the tasks/result for a call. It has the call's `_meta`, with its
// progressToken.
func (w *wait) resultRequest(req *mcp.Request) *mcp.Request {
	raw, err := jsonv2.Marshal(taskParams{ID: w.task.id, Meta: metaOf(req)})
	if err != nil {
		raw = []byte("{}") // a string always encodes
	}
	out := *req
	out.Method, out.HeaderParams, out.Params = methodResult, nil, raw
	return &out
}
