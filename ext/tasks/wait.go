package tasks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	// cancelTimeout is how long a call that ended waits for the server to cancel its task.
	cancelTimeout = 3 * time.Second
	// responseTimeout is how long a server may still show input requests whose responses it
	// acknowledged. It is long enough for stores that are eventually consistent.
	responseTimeout = 2 * time.Minute
	// maxRound is the client's own limit for the input requests of a round.
	maxRound = 64
)

// A wait is the state of a call until it returns a result.
type wait struct {
	client *clientTasks
	intent *intent         // of [Start]; nil for an ordinary call
	asked  bool            // there were input requests before there was a task
	state  json.RawMessage // the server's requestState for their responses; may be nil

	task           *Handle // nil as long as the call is no task
	keepsTask      bool    // do not cancel the task when the call ends
	poller         *poller
	progress       *progressSender
	claimed        []inputRequest // that the client is answering
	nothingOpen    failures       // to show an open request although the task requires input
	resultFailures failures       // of tasks/result

	wasOpen              bool // the last tasks/result was open for a while before it failed
	noResultWhileWorking bool // the server refuses tasks/result for a task that works
}

func (m *clientTasks) newWait(ctx context.Context, h *Handle, first *seenTask, req *mcp.Request) *wait {
	p := &poller{
		client: mcp.ClientFrom(ctx), form: clientFormOf(req.Revision()), id: h.id, last: first,
		defaultInterval: m.opts.PollInterval, options: followUpOptions(req), began: time.Now(),
		immediate: first == nil || first.Status != StatusWorking,
	}
	return &wait{client: m, task: h, poller: p, progress: newProgressSender(req)}
}

// followUpOptions returns the options of requests that belong to a call, with its trace context.
func followUpOptions(req *mcp.Request) mcp.CallOptions {
	o := mcp.CallOptions{NoCache: true}
	for _, key := range []string{"traceparent", "tracestate", "baggage"} {
		if value, ok := req.Meta(key); ok {
			if o.Meta == nil {
				o.Meta = mcp.Meta{}
			}
			o.Meta[key] = json.RawMessage(bytes.Clone(value))
		}
	}
	return o
}

// run waits until there is a result, or input requests for the client to answer.
func (w *wait) run(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	resume := driver.PauseTimeouts(ctx)
	defer resume()
	if w.client.opts.Listen && w.poller.subscription == nil {
		w.poller.subscribe(ctx)
	}
	res, err := w.poller.form.follow(ctx, w, req)
	if err == nil && res.ResultType() == driver.ResultInputRequired {
		return res, nil
	}
	w.end(ctx, err)
	return res, err
}

// end ends the call. After an error it cancels the task if it may still be working.
func (w *wait) end(ctx context.Context, err error) {
	w.poller.unsubscribe()
	hasEnded := w.poller.refused || w.poller.last != nil && w.poller.last.Status.Final()
	if err != nil && !hasEnded {
		w.cancel(ctx)
	}
}

// resume sends the client's responses, and continues to wait.
func (w *wait) resume(ctx context.Context, req *mcp.Request, responses json.RawMessage) (mcp.Result, error) {
	resume := driver.PauseTimeouts(ctx)
	defer resume()
	w.progress.setRequest(req)
	err := w.sendResponses(ctx, responses)
	w.releaseClaimed()
	if err != nil {
		w.end(ctx, err)
		return nil, err
	}
	w.nothingOpen = failures{}
	return w.run(ctx, req)
}

// sendResponses sends input responses. It may repeat them: a server ignores responses that it
// knows.
func (w *wait) sendResponses(ctx context.Context, responses json.RawMessage) error {
	var keys map[string]json.RawMessage
	if err := jsonv2.Unmarshal(responses, &keys); err != nil {
		return fmt.Errorf("tasks: decode the responses for task %q: %w", w.task.id, err)
	}
	err := w.poller.retry(ctx, func() error { return w.poller.do(ctx, methodUpdate, responses) })
	if isRefusal(err) {
		err = w.checkRefusal(ctx, keys, err)
	}
	if err != nil {
		return err
	}
	for key := range keys {
		w.task.answered.add(key)
	}
	return nil
}

// checkRefusal returns nil if the server refused responses that it needs no longer: it knows them,
// and only the acknowledgement was lost, or the task ended. Otherwise it returns the refusal.
func (w *wait) checkRefusal(ctx context.Context, keys map[string]json.RawMessage, refusal error) error {
	if err := w.poller.refresh(ctx); err != nil {
		return refusal
	}
	for _, q := range w.poller.last.requests {
		if _, open := keys[q.key]; open {
			return refusal
		}
	}
	w.poller.immediate = true
	return nil
}

// inputRequired returns the input requests of a task as input requests of a call, so that the
// client answers them within its limits. Spec: tasks extension, Task Update Requests and Security
// Considerations (Input-request trust model).
func (w *wait) inputRequired(ctx context.Context, open []inputRequest) mcp.Result {
	w.claimed = open
	b := []byte(`{"resultType":"input_required","inputRequests":{`)
	for i, q := range open {
		if i > 0 {
			b = append(b, ',')
		}
		b, _ = jsontext.AppendQuote(b, q.key) // the key was decoded from JSON
		b = append(append(b, ':'), q.raw...)
	}
	return mcp.RawResult(fmt.Appendf(b, `},"requestState":%q}`, w.client.suspend(ctx, w)))
}

// abort ends a suspended call whose input requests were not answered.
func (w *wait) abort(ctx context.Context) {
	if w.task == nil {
		return
	}
	w.releaseClaimed()
	w.poller.unsubscribe()
	w.cancel(ctx)
}

// releaseClaimed lets other waits for the task ask unanswered questions.
func (w *wait) releaseClaimed() {
	w.task.answered.release(w.claimed)
	w.claimed = nil
}

// cancel cancels the task, for which no call waits any more.
func (w *wait) cancel(ctx context.Context) {
	if w.keepsTask || isClosed(context.Cause(ctx)) {
		return
	}
	ctx, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cancelTimeout, mcp.ErrTimeout)
	defer stop()
	if err := w.poller.do(ctx, methodCancel, nil); err != nil {
		w.client.opts.Logger.DebugContext(ctx, "tasks: the task of a call that has ended could not be cancelled",
			"task", w.task.id, "error", err)
	}
}

func cancelledError(t *Task) error {
	if t.Message != "" {
		return fmt.Errorf("tasks: task %q: %w: %.512q", t.ID, mcp.ErrCancelled, t.Message)
	}
	return fmt.Errorf("tasks: task %q: %w", t.ID, mcp.ErrCancelled)
}

// isClosed reports whether the client was closed, which is final, and not only its connection lost.
func isClosed(err error) bool {
	return errors.Is(err, mcp.ErrClosed) && !errors.Is(err, mcp.ErrDisconnected)
}

// answeredKeys holds the keys of a task's input requests that are answered or being answered. A
// server may show a request for a while after it was answered, and users must not be asked twice.
type answeredKeys struct {
	mu   sync.Mutex      // guards the field below
	keys map[string]bool // false while the request is being answered
}

func newAnsweredKeys() *answeredKeys { return &answeredKeys{keys: map[string]bool{}} }

func (a *answeredKeys) add(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.keys[key] = true
}

// claim returns up to limit requests that are neither answered nor being answered, for the caller
// to answer. pending reports whether others are being answered.
func (a *answeredKeys) claim(requests []inputRequest, limit int) (open []inputRequest, pending bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range requests {
		switch answered, known := a.keys[q.key]; {
		case known:
			pending = pending || !answered
		case len(open) < limit:
			open = append(open, q)
		}
	}
	for _, q := range open {
		a.keys[q.key] = false
	}
	return open, pending
}

// release undoes the claim of requests that were not answered.
func (a *answeredKeys) release(requests []inputRequest) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range requests {
		if !a.keys[q.key] {
			delete(a.keys, q.key)
		}
	}
}
