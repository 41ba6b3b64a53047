package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// resultPatience is how long a result may take that is known to be there, before it is asked for anew.
const resultPatience = 10 * time.Second

// errNoResult is the end of a request for a result that was too slow.
var errNoResult = fmt.Errorf("tasks: the result does not come: %w", mcp.ErrTimeout)

// follow2025 looks after a task of 2025-11-25. Its result is a request of its own, which waits for the end of the task. On
// it the server asks its questions, and tells of progress: it is sent when the task requires input or has ended, and at once
// for a caller that wants progress.
//
// Spec: basic/utilities/tasks (2025-11-25), Getting Tasks, Retrieving Task Results, Input Required Status.
func (w *wait) follow2025(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	for {
		if s := w.poll.last; s != nil && s.Status != StatusCancelled && (s.Status != StatusWorking || w.news != nil && !w.patient) {
			res, err := w.fetch(ctx, req)
			if res != nil || err != nil {
				return res, err
			}
			w.poll.isDue = false
		}
		s, err := w.poll.next(ctx)
		if err != nil {
			return nil, err
		}
		w.news.message(ctx, s.Message)
		switch {
		case s.Status == StatusCancelled:
			return nil, cancelledError(&s.Task)
		case s.Status == StatusWorking, s.Status == StatusInputRequired && w.held:
			w.failing = outage{} // there is no result to be had yet; that a stream is cut now and then is no failure
		}
	}
}

// fetch asks for the result. Neither a result nor an error is that it has to be asked for again.
func (w *wait) fetch(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	sent := time.Now()
	res, err := w.result(ctx, req)
	w.held = time.Since(sent) >= resultPatience
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
		// It is the error of the call if the task has ended, and of this request if it has not.
		s, gone := w.poll.get(mcp.WithCallOptions(ctx, w.poll.options))
		switch {
		case gone != nil && !isTransient(gone):
			return nil, err
		case gone == nil && s.Status == StatusCancelled:
			return nil, cancelledError(&s.Task)
		case gone == nil && s.Status.Final():
			return nil, err
		case gone == nil && s.Status == StatusWorking:
			w.patient = true
			return nil, nil
		}
	} else if !isTransient(err) {
		return nil, err
	}
	if w.failing.lasts(maxOutage) {
		return nil, fmt.Errorf("tasks: the result of task %q cannot be had: %w", w.task.id, err)
	}
	return nil, nil
}

// reply is what a request came to.
type reply struct {
	res mcp.Result
	err error
}

// result sends one request for the result. Meanwhile it goes on to ask how the task stands, now and then: a stream that
// waits for hours may be dead without anybody noticing.
func (w *wait) result(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	asking, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan reply, 1)
	go func() {
		var o reply
		defer func() {
			if p := recover(); p != nil {
				o = reply{err: fmt.Errorf("tasks: middleware panicked: %v", p)}
			}
			ended <- o
		}()
		o.res, o.err = w.taker.next.ServeMCP(asking, w.news.through(w.resultRequest(req)))
		if o.res == nil && o.err == nil {
			o.err = errors.New("tasks: middleware returned neither result nor error")
		}
	}()
	late := false
	for {
		pause := max(w.poll.interval(), listeningInterval)
		if late {
			pause = resultPatience
		}
		timer := time.NewTimer(pause)
		select {
		case o := <-ended:
			timer.Stop()
			return o.res, o.err
		case <-timer.C:
		}
		if late {
			cancel(errNoResult)
			<-ended
			return nil, &mcp.TransportError{Method: methodResult, MayHaveRun: true, Err: errNoResult}
		}
		s, err := w.poll.get(mcp.WithCallOptions(ctx, w.poll.options))
		if err == nil {
			w.poll.last = s
			w.news.message(ctx, s.Message)
		}
		late = err == nil && s.Status.Final() || err != nil && !isTransient(err)
	}
}

// resultRequest makes the request for the result of that of the call: progress of the task has the token of the call.
func (w *wait) resultRequest(req *mcp.Request) *mcp.Request {
	raw, err := json.Marshal(taskParams{ID: w.task.id})
	if err != nil {
		raw = []byte("{}") // a string always encodes
	}
	fetch := *req
	fetch.Method, fetch.HeaderParams, fetch.Params = methodResult, nil, raw
	return withMember(&fetch, "_meta", metaOf(req))
}
