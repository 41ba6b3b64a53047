package legacy

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/jsonrpc"
)

// Revision 2025-11-25 defines tasks in its core. The core of package mcp implements them: their
// methods, the member "task" of a call and the results pass through. This file implements the only
// part that needs a session: while a client waits for the result of a task, it is sent the task's
// input requests.

// taskPollPause is how often a task is polled while its input requests are open. Another client may
// respond to them, or cancel the task, and then they must be cancelled.
const taskPollPause = 5 * time.Second

// errTaskNotAwaited ends a tasks/result request whose session ends before the task does.
var errTaskNotAwaited = &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: "the session ended before the task"}

// isTaskMethod reports whether the method is one of the tasks of 2025-11-25. Spec:
// basic/utilities/tasks (2025-11-25)
func isTaskMethod(method string) bool {
	switch method {
	case wire.MethodTasksGet, wire.MethodTasksResult, wire.MethodTasksList, wire.MethodTasksCancel:
		return true
	}
	return false
}

// isSessionTask reports whether a task result takes the form that a client of rev knows. The form
// of the tasks extension differs, and no session uses that extension.
func isSessionTask(rev wire.Revision, result []byte) bool {
	task, _ := jsonscan.Get(result, "task")
	return rev.Has(wire.Tasks) && jsonscan.Kind(task) == '{'
}

// A taskWait serves a tasks/result request. A task may wait for its client for hours and ask for
// input any number of times, so neither is limited: the wait ends with the task or with the
// request, which does not affect the task.
type taskWait struct {
	*Exchange
	params    []byte                // of the request, with the progress token of the task's call
	pending   map[string]*taskInput // sent to the client, by key
	responses chan *taskInput       // requests with a response or an error
	slotFreed <-chan struct{}       // closed once a further input request may be sent; nil if no request waits
	waiting   sync.WaitGroup
}

// A taskInput is an input request of a task. Its last fields are set when it is received from
// taskWait.responses.
type taskInput struct {
	inputRequest
	stop context.CancelFunc // ends the wait

	answer  json.RawMessage
	failure *jsonrpc.Error
}

// An outcome is the core's response for a task: a result, which may ask for input, or an error.
type outcome struct {
	result []byte
	err    *jsonrpc.Error
}

// relayTask lets the core serve a tasks/result request, and sends the task's input requests to the
// client meanwhile. It passes on each response as it arrives. It appends the result to dst. Spec:
// basic/utilities/tasks#input-required-status, #result-retrieval (2025-11-25)
func (x *Exchange) relayTask(ctx context.Context, dst []byte) ([]byte, *jsonrpc.Error) {
	w := &taskWait{Exchange: x, params: x.request.params, pending: map[string]*taskInput{},
		responses: make(chan *taskInput)}
	if x.task = x.session.taskTokenOf(x.request.params); x.task != nil {
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
		return nil, projectError(s.rev, x.request.method, now.err)
	}
	if x.task != nil {
		s.dropTaskToken(x.task)
	}
	return x.method.result.replace(append(dst, now.result...), len(dst)), nil
}

// serveCore lets the core serve the request, with the additional members of a retry.
func (w *taskWait) serveCore(ctx context.Context, retry *retryParams) outcome {
	asked := w.request
	asked.params = w.params
	result, _, err := w.session.serve(ctx, nil, &asked, retry, w.notify)
	return outcome{result, err}
}

// ask sends the client the input requests of a result that are new, and cancels those that the
// result no longer contains.
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
		if err := w.out.Send(ctx, &jsonrpc.Message{ID: q.ID, Method: q.method, Params: q.params}); err != nil {
			return w.session.failure(ctx, "input request not delivered", err)
		}
	}
	return nil
}

// newRequests returns the input requests that the client was not sent yet, up to the limit of the
// session. It sets slotFreed if there are more.
func (w *taskWait) newRequests(ctx context.Context, requests []byte) (all []inputRequest, err *jsonrpc.Error) {
	w.slotFreed = nil
	for key, request := range jsonscan.Members(requests) {
		if w.pending[string(key)] != nil {
			continue
		}
		place, freed, askErr := w.session.calls.Offer(w.session.newID())
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

// awaitResponse starts a goroutine that waits for the response to an input request.
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

// next waits until the client responded to an input request, and returns the members of the
// retry that pass the response on. It returns early when the core's outcome changes, or when a
// further input request may be sent.
func (w *taskWait) next(ctx context.Context, before []byte) (
	answers *retryParams, changed outcome, err *jsonrpc.Error,
) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	seen := make(chan outcome, 1)
	go func() { seen <- w.poll(watching, before) }()
	for {
		select {
		case q := <-w.responses:
			if w.pending[q.key] != q {
				continue // it was withdrawn
			}
			stop()
			<-seen
			answers, err = w.answer(q)
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

// poll asks the core until its outcome differs from before. With a request state, the core itself
// waits for a change; without a change it is asked every taskPollPause.
func (w *taskWait) poll(ctx context.Context, before []byte) outcome {
	var retry *retryParams
	pause := time.NewTimer(taskPollPause)
	defer pause.Stop()
	if state, ok := jsonscan.Get(before, "requestState"); ok {
		retry = &retryParams{requestState: state}
		pause.Reset(0)
	}
	for {
		select {
		case <-pause.C:
			pause.Reset(taskPollPause)
		case <-ctx.Done():
			return outcome{err: errTaskNotAwaited}
		}
		now := w.serveCore(ctx, retry)
		if now.err != nil || !asksForInput(now.result) || !sameInputRequests(before, now.result) {
			return now
		}
	}
}

// sameInputRequests reports whether two results contain input requests of the same keys. A task
// never reuses a key.
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

// answer returns the params that pass a response on to the core. If the client refused
// the input request, the request fails; the task continues to wait.
func (w *taskWait) answer(q *taskInput) (*retryParams, *jsonrpc.Error) {
	q.stop()
	delete(w.pending, q.key)
	if q.failure != nil {
		return nil, q.failure
	}
	return &retryParams{inputResponses: append(appendMember([]byte{'{'}, []byte(q.key), q.answer), '}')}, nil
}

// withdraw ends the wait for an input request and cancels it at the client.
func (w *taskWait) withdraw(ctx context.Context, q *taskInput) {
	q.stop()
	delete(w.pending, q.key)
	w.session.cancelRequests(ctx, []inputRequest{q.inputRequest}, w.out)
}

// close withdraws all input requests and waits for the goroutines of w.
func (w *taskWait) close(ctx context.Context) {
	for _, q := range w.pending {
		w.withdraw(ctx, q)
	}
	w.waiting.Wait()
}

const (
	// maxTaskTokens limits the tasks whose progress a session forwards. The newest are kept.
	maxTaskTokens = 256
	// maxTaskToken is the longest progress token that is kept for a task, in bytes. Progress is
	// optional.
	maxTaskToken = 256
)

// A taskToken is the progress token of a call that became a task. It is valid while the task
// exists, and in this session only: in another session it may name a different request. Spec:
// basic/utilities/tasks (2025-11-25), Task Progress Notifications.
type taskToken struct {
	task     string
	token    string // JSON
	progress progress
}

// saveTaskToken keeps the progress token of a call, if there is a token, for the task that the call
// become.
func (x *Exchange) saveTaskToken(result []byte) {
	meta, _ := jsonscan.Get(x.request.params, "_meta")
	token, ok := jsonscan.Get(meta, "progressToken")
	if !ok || len(token) > maxTaskToken {
		return
	}
	task, _ := jsonscan.Get(result, "task")
	t := &taskToken{task: jsonscan.GetString(task, "taskId"), token: string(token)}
	x.progress.mu.Lock()
	t.progress.sent, t.progress.last = x.progress.sent, x.progress.last
	x.progress.mu.Unlock()

	s := x.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.tokens) == maxTaskTokens {
		s.tokens = slices.Delete(s.tokens, 0, 1)
	}
	s.tokens = append(s.tokens, t)
}

// taskTokenOf returns the token for the task of a request; nil if the call was made without a token
// or belongs to another session.
func (s *Session) taskTokenOf(params []byte) *taskToken {
	id := jsonscan.GetString(params, "taskId")
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tokens {
		if t.task == id {
			return t
		}
	}
	return nil
}

func (s *Session) dropTaskToken(t *taskToken) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens = slices.DeleteFunc(s.tokens, func(other *taskToken) bool { return other == t })
}

// withProgressToken returns the params of a request with their progress token replaced. Malformed
// params are returned unchanged.
func withProgressToken(params []byte, token string) []byte {
	meta, has := jsonscan.Get(params, "_meta")
	if jsonscan.Kind(params) != '{' || has && jsonscan.Kind(meta) != '{' {
		return params
	}
	dst := append(append(make([]byte, 0, len(params)+len(token)+32), `{"_meta":{"progressToken":`...), token...)
	dst = appendOthers(append(dst, ','), meta, "progressToken")
	return closeWith(appendOthers(append(closeWith(dst, '}'), ','), params, "_meta"), '}')
}
