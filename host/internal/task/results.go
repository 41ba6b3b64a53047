package task

import (
	"context"
	"errors"
	"hash/fnv"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// questionTime is how long tasks/get waits for the questions of a task that requires input.
	questionTime = 2 * time.Second
	// defaultPoll is the interval for polling a task whose server does not specify an interval;
	// minPoll and maxPoll limit the interval of the server.
	defaultPoll = time.Second
	minPoll     = 50 * time.Millisecond
	maxPoll     = 5 * time.Minute
)

// extendTask serves a method of the extension for a server of revision 2025-11-25.
func (c *Caller) extendTask(ctx context.Context, req *mcp.Request, t *Task) (mcp.RawResult, error) {
	switch req.Method {
	case MethodCancel:
		_, err := c.about(ctx, req, t, MethodCancel, nil)
		if fault, ok := errors.AsType[*mcp.Error](err); ok && fault.Code == mcp.CodeInvalidParams {
			// The extension acknowledges the cancellation of a task that already ended.
			raw, getErr := c.about(ctx, req, t, MethodGet, nil)
			if getErr == nil && isFinal(jsonscan.GetString(raw, "status")) {
				err = nil
			}
		}
		return mcp.RawResult(`{"resultType":"complete"}`), err
	case MethodUpdate:
		raw, _ := req.Param("inputResponses")
		if !jsonscan.IsObject(raw) {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.inputResponses: must be an object")
		}
		w := c.existingWait(t)
		if w == nil { // a restart lost the questions: tasks/get returns new questions
			_, err := c.about(ctx, req, t, MethodGet, nil)
			return mcp.RawResult(`{"resultType":"complete"}`), err
		}
		defer w.attach(req)()
		return mcp.RawResult(`{"resultType":"complete"}`), w.deliver(ctx, raw)
	}
	return c.getExtended(ctx, req, t)
}

// getExtended serves tasks/get of the extension for a server of revision 2025-11-25. The result of
// the task is part of it, and so are its questions.
func (c *Caller) getExtended(ctx context.Context, req *mcp.Request, t *Task) (mcp.RawResult, error) {
	raw, err := c.about(ctx, req, t, MethodGet, nil)
	if err != nil {
		return nil, err
	}
	status := jsonscan.GetString(raw, "status")
	var more []byte
	if status == taskInputRequired {
		if status, more, err = c.questions(ctx, req, t); err != nil {
			return nil, err
		}
		if status == "" { // the task ended meanwhile
			if raw, err = c.about(ctx, req, t, MethodGet, nil); err != nil {
				return nil, err
			}
			if status = jsonscan.GetString(raw, "status"); status == taskInputRequired {
				status = taskWorking // it asks again: the next request waits for that
			}
		}
	}
	if status == taskCompleted || status == taskFailed {
		if status, more, err = c.outcome(ctx, req, t, status); err != nil {
			return nil, err
		}
	}
	b := append([]byte(`{"resultType":"complete"`), extendedMembers(raw, t.Handle, status)...)
	out := append(append(b, more...), '}')
	return c.Publish.Questions(t.Server, out), nil
}

// questions returns the open questions of a task as a member, and the status that belongs to them:
// "" if the task ended.
func (c *Caller) questions(
	ctx context.Context, req *mcp.Request, t *Task,
) (status string, member []byte, err error) {
	w, err := c.waitFor(req, t)
	if err != nil {
		return "", nil, err
	}
	defer w.attach(req)()
	short, cancel := context.WithTimeout(ctx, questionTime)
	defer cancel()
	now, err := w.next(short, "")
	switch {
	case ctx.Err() != nil:
		return "", nil, context.Cause(ctx)
	case err != nil:
		return taskWorking, nil, nil
	case now.ended:
		return "", nil, nil
	}
	return taskInputRequired, append([]byte(`,"inputRequests":`), now.open...), nil
}

// outcome returns the result or the error of an ended task as a member, and its status in the
// extension.
func (c *Caller) outcome(ctx context.Context, req *mcp.Request, t *Task, status string) (string, []byte, error) {
	raw, err := c.about(ctx, req, t, MethodResult, nil)
	fault, ok := errors.AsType[*mcp.Error](err)
	switch {
	case err == nil:
		result := c.Publish.Result(t.Server, MethodResult, relate(raw, ""))
		return taskCompleted, append([]byte(`,"result":`), result...), nil
	case status == taskFailed && ok && fault.Remote():
		b := append([]byte(`,"error":{"code":`), strconv.Itoa(fault.Code)...)
		b = jsonscan.AppendQuote(append(b, `,"message":`...), fault.Message)
		if len(fault.Data) > 0 {
			b = append(append(b, `,"data":`...), fault.Data...)
		}
		return taskFailed, append(b, '}'), nil
	}
	return "", nil, err
}

// awaitTask serves tasks/result for a server of revision 2025-11-25.
func (c *Caller) awaitTask(ctx context.Context, req *mcp.Request, t *Task) (mcp.RawResult, error) {
	w, err := c.waitFor(req, t)
	if err != nil {
		return nil, err
	}
	defer w.attach(req)()
	if responses, ok := req.Param("inputResponses"); ok && jsonscan.IsObject(responses) {
		if err := w.deliver(ctx, responses); err != nil {
			return nil, err
		}
	}
	now, err := w.next(ctx, jsonscan.GetString(req.Params, "requestState"))
	switch {
	case err != nil:
		return nil, err
	case !now.ended:
		return c.askAbout(t, now.open, now.version), nil
	case now.err != nil:
		return nil, now.err
	}
	return relate(c.Publish.Result(t.Server, MethodResult, now.result), t.Handle), nil
}

// askAbout returns the result that asks the questions of a task.
func (c *Caller) askAbout(t *Task, requests []byte, state string) mcp.RawResult {
	b := append([]byte(`{"resultType":"input_required","inputRequests":`), relateQuestions(requests, t.Handle)...)
	b = append(jsonscan.AppendQuote(append(b, `,"requestState":`...), state), '}')
	return c.Publish.Questions(t.Server, b)
}

// followTask serves tasks/result for a server of the extension, which is polled.
func (c *Caller) followTask(ctx context.Context, req *mcp.Request, t *Task) (mcp.RawResult, error) {
	if responses, ok := req.Param("inputResponses"); ok && jsonscan.IsObject(responses) {
		members := append([]byte(`,"inputResponses":`), responses...)
		if _, err := c.about(ctx, req, t, MethodUpdate, members); err != nil {
			return nil, err
		}
	}
	asked := jsonscan.GetString(req.Params, "requestState")
	for {
		raw, err := c.about(ctx, req, t, MethodGet, nil)
		if err != nil {
			return nil, err
		}
		switch jsonscan.GetString(raw, "status") {
		case taskCompleted:
			result, _ := jsonscan.Get(raw, "result")
			if !jsonscan.IsObject(result) {
				return nil, invalidTask(t.Server, "tasks/get: the task is completed and has no result")
			}
			result = jsonscan.WithMember(result, "resultType", []byte(`"complete"`))
			return relate(c.Publish.Result(t.Server, MethodResult, result), t.Handle), nil
		case taskFailed:
			return nil, taskError(raw)
		case taskCancelled:
			return nil, mcp.Errorf(mcp.CodeInternalError, "request cancelled")
		case taskInputRequired:
			requests, _ := jsonscan.Get(raw, "inputRequests")
			if state := keysOf(requests); state != "" && state != asked {
				return c.askAbout(t, requests, state), nil
			}
		}
		timer := time.NewTimer(pollInterval(raw))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

// taskError returns the error of a failed task.
func taskError(task []byte) error {
	raw, _ := jsonscan.Get(task, "error")
	e := &mcp.Error{Code: mcp.CodeInternalError, Message: "the task has failed"}
	if !jsonscan.IsObject(raw) {
		return e
	}
	code, _ := jsonscan.Get(raw, "code")
	if n, err := strconv.Atoi(string(code)); err == nil {
		e.Code, e.Message = n, jsonscan.GetString(raw, "message")
		e.Data, _ = jsonscan.Get(raw, "data")
	}
	return e
}

// keysOf returns a text that differs for objects with different keys; it is "" for an empty object.
func keysOf(object []byte) string {
	if !jsonscan.IsObject(object) {
		return ""
	}
	h, n := fnv.New64a(), 0
	for key := range jsonscan.Members(object) {
		_, _ = h.Write(key)
		_, _ = h.Write([]byte{0})
		n++
	}
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(h.Sum64(), 36)
}

// pollInterval returns how long to wait before a task is polled again.
func pollInterval(task []byte) time.Duration {
	raw, _ := jsonscan.Get(task, "pollIntervalMs")
	ms, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil || ms <= 0 {
		return defaultPoll
	}
	return min(max(time.Duration(min(ms, int64(maxPoll/time.Millisecond)))*time.Millisecond, minPoll), maxPoll)
}
