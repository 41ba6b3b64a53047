package tasks

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// cancelPatience is how long a call that has ended waits for its server to take the cancellation of its task.
	cancelPatience = 3 * time.Second
	// answerPatience is how long a server may take to act on answers that it has acknowledged. Two minutes are long for
	// stores that agree in the end.
	answerPatience = 2 * time.Minute
	// maxRound is the number of questions that are asked in one round: a client takes no more at once.
	maxRound = 64
)

// A wait is one call on its way to a result.
type wait struct {
	taker  *taker
	intent *intent            // whom the call is made for; nil for a plain one
	asked  bool               // it had questions before there was a task
	state  stdjson.RawMessage // that the server wants back with the answers to them; nil for none

	task    *Handle // nil as long as the call is no task
	kept    bool    // the task goes on when the call ends
	poll    *poller
	news    *news
	asking  []question // that are being answered by the client
	stuck   outage     // of the task, which waits for input of which nothing is open
	failing outage     // of the request for the result
	held    bool       // that was open for a while before it failed last
	patient bool       // the server does not let anybody wait for the result of a task that works
}

// newWait begins to wait for a task that was last seen as first, nil for never. A first sighting in full is looked at, else it
// only says when to ask.
func (k *taker) newWait(ctx context.Context, h *Handle, first *sighting, req *mcp.Request) *wait {
	p := &poller{
		client: mcp.ClientFrom(ctx), form: formOf(req), id: h.id, last: first, every: k.opts.PollInterval,
		options: followUp(req), began: time.Now(),
		isDue: first == nil || first.Status != StatusWorking,
	}
	return &wait{taker: k, task: h, poll: p, news: newsOf(req)}
}

// followUp returns the options of requests that belong to a call: they are parts of its trace.
func followUp(req *mcp.Request) mcp.CallOptions {
	o := mcp.CallOptions{NoCache: true}
	for _, key := range []string{"traceparent", "tracestate", "baggage"} {
		if value, ok := req.Meta(key); ok {
			if o.Meta == nil {
				o.Meta = mcp.Meta{}
			}
			o.Meta[key] = stdjson.RawMessage(bytes.Clone(value))
		}
	}
	return o
}

// run waits until there is a result, or questions to be answered by the client.
func (w *wait) run(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	proceed := mcp.AwaitUser(ctx)
	defer proceed()
	if w.taker.opts.Listen && w.poll.feed == nil {
		w.poll.listen(ctx)
	}
	res, err := w.follow(ctx, req)
	if err == nil && res.ResultType() == mcp.ResultInputRequired {
		return res, nil
	}
	w.end(ctx, err)
	return res, err
}

// end is the end of the call. A task that may still be at work is called off: nobody waits for it any more.
func (w *wait) end(ctx context.Context, err error) {
	w.poll.stop()
	if err != nil && !w.poll.isOver() {
		w.cancel(ctx)
	}
}

// goOn hands in the answers, and waits on.
func (w *wait) goOn(ctx context.Context, req *mcp.Request, answers stdjson.RawMessage) (mcp.Result, error) {
	proceed := mcp.AwaitUser(ctx)
	defer proceed()
	w.news.renew(req)
	err := w.answer(ctx, answers)
	w.release()
	if err != nil {
		w.end(ctx, err)
		return nil, err
	}
	w.stuck = outage{}
	return w.run(ctx, req)
}

// answer hands in answers. It may be done again: a key is answered once, whatever comes later.
//
// Spec: tasks extension, Task Update Requests.
func (w *wait) answer(ctx context.Context, answers stdjson.RawMessage) error {
	var keys map[string]stdjson.RawMessage
	if err := json.Unmarshal(answers, &keys); err != nil {
		return fmt.Errorf("tasks: the answers for task %q cannot be read: %w", w.task.id, err)
	}
	err := w.poll.persist(ctx, func() error { return w.poll.update(ctx, answers) })
	if isRefusal(err) {
		err = w.refused(ctx, keys, err)
	}
	if err != nil {
		return err
	}
	for key := range keys {
		w.task.answered.add(key)
	}
	return nil
}

// refused looks what has become of a task that takes no answers, by the word of the server. It may have them already, if
// only the acknowledgement was lost, or the task may have ended meanwhile: neither is a reason to end the call.
func (w *wait) refused(ctx context.Context, keys map[string]stdjson.RawMessage, refusal error) error {
	if err := w.poll.look(ctx); err != nil {
		return refusal
	}
	for _, q := range w.poll.last.questions {
		if _, open := keys[q.key]; open {
			return refusal
		}
	}
	w.poll.isDue = true
	return nil
}

// follow looks after the task until there is something to return.
func (w *wait) follow(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if w.poll.form.is2025 {
		return w.follow2025(ctx, req)
	}
	for {
		s, err := w.poll.next(ctx)
		if err != nil {
			return nil, err
		}
		w.news.message(ctx, s.Message)
		switch s.Status {
		case StatusCompleted:
			return mcp.RawResult(s.Result), nil
		case StatusFailed:
			return nil, s.Error
		case StatusCancelled:
			return nil, cancelledError(&s.Task)
		case StatusInputRequired:
			open, elsewhere := w.task.answered.claim(s.questions, maxRound)
			if len(open) > 0 {
				w.asking = open
				return w.ask(ctx, open)
			}
			if elsewhere {
				w.stuck = outage{}
			} else if w.stuck.lasts(answerPatience) {
				return nil, invalid(methodGet, fmt.Errorf("task %q has required input for %v, and nothing that was not answered", w.task.id, answerPatience))
			}
		default:
			w.stuck = outage{}
		}
	}
}

// ask has the client answer questions: for it they are those of a call like any other, and so are its limits.
//
// Spec: tasks extension, Task Update Requests and Security Considerations (Input-request trust model).
func (w *wait) ask(ctx context.Context, open []question) (mcp.Result, error) {
	var b bytes.Buffer
	e := jsontext.NewEncoder(&b)
	var failed error
	write := func(tokens ...jsontext.Token) {
		for _, t := range tokens {
			failed = errors.Join(failed, e.WriteToken(t))
		}
	}
	write(jsontext.BeginObject, jsontext.String("resultType"), jsontext.String(mcp.ResultInputRequired))
	write(jsontext.String("inputRequests"), jsontext.BeginObject)
	for _, q := range open {
		write(jsontext.String(q.key))
		failed = errors.Join(failed, e.WriteValue(jsontext.Value(q.raw)))
	}
	write(jsontext.EndObject, jsontext.String("requestState"), jsontext.String(w.taker.park(ctx, w)), jsontext.EndObject)
	if failed != nil {
		w.release()
		return nil, invalid(methodGet, failed)
	}
	return mcp.RawResult(b.Bytes()), nil
}

// giveUp ends a call that was never gone on with, because its questions were not answered.
func (w *wait) giveUp(ctx context.Context) {
	if w.task == nil {
		return
	}
	w.release()
	w.poll.stop()
	w.cancel(ctx)
}

// release leaves the questions that were not answered to others who wait for the task.
func (w *wait) release() {
	w.task.answered.release(w.asking)
	w.asking = nil
}

// cancel calls the task off. Nobody else can: nobody has its handle.
//
// Spec: tasks extension, Task Cancellation.
func (w *wait) cancel(ctx context.Context) {
	if w.kept || isClosed(context.Cause(ctx)) {
		return
	}
	ctx, stop := context.WithTimeoutCause(context.WithoutCancel(ctx), cancelPatience, mcp.ErrTimeout)
	defer stop()
	if err := w.poll.cancel(ctx); err != nil {
		w.taker.opts.Logger.DebugContext(ctx, "tasks: the task of a call that was given up is not cancelled", "task", w.task.id, "error", err)
	}
}

// cancelledError says that a task was called off.
func cancelledError(t *Task) error {
	if t.Message != "" {
		return fmt.Errorf("tasks: task %q: %w: %.512q", t.ID, mcp.ErrCancelled, t.Message)
	}
	return fmt.Errorf("tasks: task %q: %w", t.ID, mcp.ErrCancelled)
}

// isClosed reports whether err says that the client is closed, which is for good, rather than that the server has gone.
func isClosed(err error) bool {
	return errors.Is(err, mcp.ErrClosed) && !errors.Is(err, mcp.ErrDisconnected)
}

// answered are the questions of a task that were answered, or are about to be: a server may show them for a while longer,
// and nobody is to be asked twice.
//
// Spec: tasks extension, Task Update Requests.
type answered struct {
	mu   sync.Mutex
	keys map[string]bool // false as long as there is no answer yet
}

func (a *answered) add(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.set(key, true)
}

func (a *answered) set(key string, done bool) {
	if a.keys == nil {
		a.keys = map[string]bool{}
	}
	a.keys[key] = done
}

// claim returns the questions that nobody has answered or is about to, at most so many, for the caller to answer; elsewhere says
// that others are about to.
func (a *answered) claim(questions []question, most int) (open []question, elsewhere bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range questions {
		switch done, known := a.keys[q.key]; {
		case known:
			elsewhere = elsewhere || !done
		case len(open) < most:
			open = append(open, q)
		}
	}
	for _, q := range open {
		a.set(q.key, false)
	}
	return open, elsewhere
}

// release returns back what was claimed, and not answered.
func (a *answered) release(questions []question) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, q := range questions {
		if !a.keys[q.key] {
			delete(a.keys, q.key)
		}
	}
}
