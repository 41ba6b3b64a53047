package legacy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// The last revision with sessions has tasks in its core. What they are is the core's matter: their methods, the member
// "task" of a call and the results all pass. What is done here is the one thing that only a session has: a client that
// waits for the result of a task is asked what the task wants to know.

// taskPollPause is how often a task is looked at whose client has been asked: it may have been answered or called off
// elsewhere, and the inputRequest is to be taken back while its user still looks at it.
const taskPollPause = 5 * time.Second

// errTaskNotAwaited ends the waiting for a task whose session ends before it.
var errTaskNotAwaited = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the result of the task can not be waited for any more"}

// isTaskMethod reports whether a request belongs to the tasks of sessions.
//
// Spec: basic/utilities/tasks (2025-11-25)
func isTaskMethod(method string) bool {
	switch method {
	case wire.MethodTasksGet, wire.MethodTasksResult, wire.MethodTasksList, wire.MethodTasksCancel:
		return true
	}
	return false
}

// isSessionTask reports whether the task that a result is can be told to a client of rev. That of the extension has another
// form, and no session has that extension.
func isSessionTask(rev wire.Revision, result []byte) bool {
	task, _ := jsonscan.Get(result, "task")
	return rev.Has(wire.Tasks) && jsonscan.Kind(task) == '{'
}

// A taskWait is a tasks/result request. A task may wait for its client for hours and ask any number of times, so there
// is no bound on either: the wait is over when the task is, and every inputRequest waits for a person. It ends with the
// request and leaves the task alone.
type taskWait struct {
	*Exchange
	params    []byte                // of the request, with the token of the task's call
	pending   map[string]*taskInput // that the client was asked, by key
	responses chan *taskInput       // those that are no longer waited for
	slotFreed <-chan struct{}       // closed once there may be a place for a inputRequest that found none; nil if all did
	waiting   sync.WaitGroup
}

// A taskInput is a inputRequest of a task. The fields at the end are set once it comes out of taskWait.responses.
type taskInput struct {
	inputRequest
	stop context.CancelFunc // ends the waiting

	answer  json.RawMessage
	failure *jsonrpc.Error
}

// An outcome is what the core says of a task: a result, which may ask for input, or an error.
type outcome struct {
	result []byte
	err    *jsonrpc.Error
}

// relayTask has the core answer a tasks/result request, and puts to the client what the task asks meanwhile. Each answer
// is handed on as it comes. It appends the result to dst.
//
// Spec: basic/utilities/tasks#input-required-status, #result-retrieval (2025-11-25)
func (x *Exchange) relayTask(ctx context.Context, dst []byte) ([]byte, *jsonrpc.Error) {
	w := &taskWait{Exchange: x, params: x.request.Params, pending: map[string]*taskInput{}, responses: make(chan *taskInput)}
	if x.task = x.session.taskTokenOf(x.request.Params); x.task != nil {
		w.params = withProgressToken(w.params, x.task.token)
	}
	defer w.close(ctx)
	now := w.serveCore(ctx, nil)
	for now.err == nil && asksForInput(now.result) {
		if err := w.ask(ctx, now.result); err != nil {
			return nil, err
		}
		answers, changed, err := w.next(ctx, now.result)
		switch {
		case err != nil:
			return nil, err
		case answers != nil:
			now = w.serveCore(ctx, answers)
		default:
			now = changed
		}
	}
	s := x.session
	if now.err != nil {
		return nil, projectError(s.rev, x.request.Method, now.err)
	}
	if x.task != nil {
		s.dropTaskToken(x.task)
	}
	return x.method.result.replace(append(dst, now.result...), len(dst)), nil
}

// serveCore puts the request to the core, with further members.
func (w *taskWait) serveCore(ctx context.Context, further []byte) outcome {
	asked := *w.request
	asked.Params = w.params
	result, err := w.session.serve(ctx, nil, &asked, further, w.notify)
	return outcome{result, err}
}

// ask brings the questions that the client has in front of it to those that the result asks: it takes back what is no
// longer asked, and asks what is new.
func (w *taskWait) ask(ctx context.Context, result []byte) *jsonrpc.Error {
	requests, _ := jsonscan.Get(result, "inputRequests")
	for key, q := range w.pending {
		if _, still := jsonscan.Get(requests, key); !still {
			w.withdraw(ctx, q)
		}
	}
	added, err := w.newRequests(ctx, requests)
	if err != nil {
		for _, q := range added {
			q.Withdraw()
		}
		return err
	}
	for _, q := range added {
		w.awaitResponse(ctx, &taskInput{inputRequest: q})
	}
	for _, q := range added {
		if err := w.out.Send(ctx, jsonrpc.NewRequest(q.ID, q.method, q.params)); err != nil {
			return w.session.failure(ctx, "question not delivered", err)
		}
	}
	return nil
}

// added returns the questions that the client was not asked yet. Those that find no place among the questions that wait have
// their turn later.
func (w *taskWait) newRequests(ctx context.Context, requests []byte) (all []inputRequest, err *jsonrpc.Error) {
	w.slotFreed = nil
	for key, request := range jsonscan.Members(requests) {
		if w.pending[string(key)] != nil {
			continue
		}
		place, freed, askErr := w.session.calls.Offer(jsonrpc.StringID(rand.Text()))
		switch {
		case freed != nil:
			w.slotFreed = freed
			return all, nil
		case askErr != nil:
			return all, w.session.notAsked(ctx, askErr)
		}
		q, err := w.session.newInputRequest(string(key), request)
		q.Question = place
		all = append(all, q)
		if err != nil {
			return all, err
		}
	}
	return all, nil
}

// wait waits for the answer to a inputRequest.
func (w *taskWait) awaitResponse(ctx context.Context, q *taskInput) {
	ctx, q.stop = context.WithCancel(ctx)
	w.pending[q.key] = q
	w.waiting.Go(func() {
		q.answer, q.failure = w.session.await(ctx, q.inputRequest)
		select {
		case w.responses <- q:
		case <-ctx.Done():
		}
	})
}

// next waits until the client has answered something, and gives the members that tell the core so, or until the core says
// something else than it did before, or the same can be asked further.
func (w *taskWait) next(ctx context.Context, before []byte) (answers []byte, changed outcome, err *jsonrpc.Error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	seen := make(chan outcome, 1)
	go func() { seen <- w.poll(watching, before) }()
	for {
		select {
		case q := <-w.responses:
			if w.pending[q.key] != q {
				continue // it was taken back
			}
			stop()
			<-seen
			answers, err = w.retryMembers(q)
			return answers, outcome{}, err
		case changed = <-seen:
			return nil, changed, nil
		case <-w.slotFreed:
			stop()
			<-seen
			return nil, outcome{result: before}, nil
		case <-ctx.Done():
			<-seen
			return nil, outcome{}, errTaskNotAwaited
		}
	}
}

// resourceSubscription asks the core again until it says something else. A core that gave a request state knows by it what it said before,
// and hasResponseMember once there is something new; another one is asked now and then.
func (w *taskWait) poll(ctx context.Context, before []byte) outcome {
	var further []byte
	pause := time.NewTimer(taskPollPause)
	defer pause.Stop()
	if state, ok := jsonscan.Get(before, "requestState"); ok {
		further = append(appendMember(nil, []byte("requestState"), state), ',')
		pause.Reset(0)
	}
	for {
		select {
		case <-pause.C:
			pause.Reset(taskPollPause)
		case <-ctx.Done():
			return outcome{err: errTaskNotAwaited}
		}
		if now := w.serveCore(ctx, further); now.err != nil || !asksForInput(now.result) || !sameInputRequests(before, now.result) {
			return now
		}
	}
}

// sameInputRequests reports whether two results ask for input under the same keys. The key of a inputRequest is never used for
// another one of the same task.
func sameInputRequests(a, b []byte) bool {
	before, _ := jsonscan.Get(a, "inputRequests")
	now, _ := jsonscan.Get(b, "inputRequests")
	n := 0
	for key := range jsonscan.Members(before) {
		if _, ok := jsonscan.Get(now, string(key)); !ok {
			return false
		}
		n++
	}
	for range jsonscan.Members(now) {
		n--
	}
	return n == 0
}

// take returns the member that hands an answer to the core. What the client refuses to answer ends the request; the task
// goes on waiting.
func (w *taskWait) retryMembers(q *taskInput) ([]byte, *jsonrpc.Error) {
	q.stop()
	delete(w.pending, q.key)
	if q.failure != nil {
		return nil, q.failure
	}
	answers := appendMember([]byte(`"inputResponses":{`), []byte(q.key), q.answer)
	return append(answers, "},"...), nil
}

// takeBack returns up a inputRequest and tells the client so.
func (w *taskWait) withdraw(ctx context.Context, q *taskInput) {
	q.stop()
	delete(w.pending, q.key)
	w.session.cancelRequests(ctx, []inputRequest{q.inputRequest}, w.out)
}

// end takes back what the client was asked, and waits until nobody waits any more.
func (w *taskWait) close(ctx context.Context) {
	for _, q := range w.pending {
		w.withdraw(ctx, q)
	}
	w.waiting.Wait()
}
