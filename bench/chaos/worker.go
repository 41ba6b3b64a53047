package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/mcphttp"
)

const (
	callTimeout   = 3 * time.Second
	streamTimeout = 6 * time.Second // a client resumes a stream after a second at the earliest
	streamNotes   = 6               // of each call of the tool stream
	maxPause      = 120 * time.Millisecond
	maxTries      = 3 // of one call
)

// revisions are the two eras.
var revisions = []string{"2026-07-28", "2025-11-25"}

// A crowd is what the workers share.
type crowd struct {
	url     string // of the proxy
	history *history
	round   atomic.Int64

	mu       sync.Mutex // guards the fields below
	tasks    []ownedTask
	sessions map[string]string // session ids, by principal
}

// An ownedTask is a task whose id its owner has received.
type ownedTask struct {
	id, owner, tool, nonce, revision string
	born                             time.Duration
}

// A worker is one caller. It makes one call after the other.
type worker struct {
	*crowd
	number    int
	principal string
	revision  string
	random    *rand.Rand
	nonces    int
	client    *mcp.Client
	http      *http.Transport
	over      atomic.Pointer[string] // the nonce of the last call that has returned
	began     [2]time.Duration       // see attempt.Sessions; guarded by crowd.mu
}

func (c *crowd) newWorker(number int, seed uint64) *worker {
	return &worker{
		crowd: c, number: number, principal: principals[number/len(revisions)%len(principals)],
		revision: revisions[number%len(revisions)], random: rand.New(rand.NewPCG(seed, uint64(number))),
		http: &http.Transport{MaxIdleConnsPerHost: 4},
	}
}

func (w *worker) nonce() string {
	w.nonces++
	return fmt.Sprintf("n%d-%d-%d", w.round.Load(), w.number, w.nonces)
}

// run makes calls until ctx ends.
func (w *worker) run(ctx context.Context, call func(ctx context.Context)) {
	defer w.disconnect()
	for ctx.Err() == nil {
		call(ctx)
		w.sleep(ctx, maxPause)
	}
}

func (w *worker) sleep(ctx context.Context, most time.Duration) {
	select {
	case <-time.After(time.Duration(w.random.Int64N(int64(most)))):
	case <-ctx.Done():
	}
}

// RoundTrip sends a request and remembers the id of the session, for strangers to try.
func (w *worker) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := w.http.RoundTrip(req)
	if err == nil {
		if id := res.Header.Get("Mcp-Session-Id"); id != "" {
			w.mu.Lock()
			w.sessions[w.principal] = id
			w.began = [2]time.Duration{w.began[1], w.history.now()}
			w.mu.Unlock()
		}
	}
	return res, err
}

// connect returns the client, and connects if there is none.
func (w *worker) connect(ctx context.Context) *mcp.Client {
	if w.client != nil {
		return w.client
	}
	log := slog.New(slog.DiscardHandler)
	transport := mcphttp.NewTransport(w.url+"/mcp", &mcphttp.TransportOptions{
		Client: &http.Client{Transport: w}, Logger: log,
		Header: http.Header{"Authorization": {"Bearer " + tokenOf(w.principal)}},
	})
	opts := &mcp.ClientOptions{
		Revision: w.revision, Logger: log, Timeout: callTimeout, MaxTimeout: streamTimeout, Log: w.logged, Elicit: w.elicit,
	}
	a := w.begin("connect", "", callTimeout)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	client, err := mcp.Connect(ctx, transport, tasks.Declare(opts, nil))
	w.end(a, "", err)
	if err == nil {
		w.client = client
	}
	return w.client
}

// disconnect closes the client. The session may stay at the server if the request is lost.
func (w *worker) disconnect() {
	if w.client != nil {
		_ = w.client.Close() // an error says that the session could not be deleted
		w.client = nil
	}
	w.http.CloseIdleConnections()
}

func (w *worker) begin(op, nonce string, timeout time.Duration) *attempt {
	return w.history.begin(attempt{Worker: w.number, Principal: w.principal, Era: w.revision, Op: op, Nonce: nonce}, timeout)
}

// end records the end of an attempt. The result is checked only if there is no error.
func (w *worker) end(a *attempt, got string, err error) {
	a.Outcome, a.Error = classify(err)
	w.mu.Lock()
	a.Sessions = w.began
	w.mu.Unlock()
	if err != nil {
		a.Detail = err.Error()
	} else {
		a.Got = got
	}
	w.history.end(a)
}

// classify returns the outcome of a call, and a name of its error.
func classify(err error) (outcome, string) {
	var lost *mcp.TransportError
	var status *mcphttp.StatusError
	var fault *mcp.Error
	var tool *mcp.ToolError
	switch {
	case err == nil:
		return answered, ""
	case errors.As(err, &lost):
		kind := "connection"
		switch {
		case errors.As(err, &status):
			kind = fmt.Sprint("status ", status.StatusCode)
		case errors.Is(err, driver.ErrSessionLost):
			kind = "session lost"
		case errors.Is(err, context.DeadlineExceeded):
			kind = "timeout"
		case errors.Is(err, mcp.ErrClosed):
			kind = "closed"
		}
		if lost.MayHaveRun {
			return unknown, kind
		}
		return unsent, kind
	case errors.As(err, &fault) && fault.Code == mcp.CodeBusy:
		return unsent, "busy"
	case errors.As(err, &fault):
		return failed, fmt.Sprint("error ", fault.Code)
	case errors.As(err, &tool):
		return failed, "tool error"
	case errors.Is(err, context.DeadlineExceeded):
		return unknown, "context deadline"
	}
	return untyped, fmt.Sprintf("%T", err)
}

// call makes one of the calls at random.
func (w *worker) call(ctx context.Context) {
	if w.random.IntN(60) == 0 {
		w.disconnect()
	}
	if w.connect(ctx) == nil {
		return
	}
	switch n := w.random.IntN(100); {
	case n < 45:
		w.retried(ctx, "echo")
	case n < 70:
		w.retried(ctx, "append")
	case n < 75:
		w.once(ctx, "slow", callTimeout)
	case n < 83:
		w.once(ctx, "stream", streamTimeout)
	case n < 94:
		w.retried(ctx, "ask")
	default:
		w.task(ctx)
	}
}

// retried makes a call, and makes it again after an error. If the error says that the call may have
// run, it decides at random.
func (w *worker) retried(ctx context.Context, op string) {
	nonce := w.nonce()
	for range maxTries {
		switch result := w.attempt(ctx, op, nonce, callTimeout); {
		case result == answered, result == failed, result == unknown && w.random.IntN(2) == 0:
			return
		}
		w.sleep(ctx, maxPause)
	}
}

func (w *worker) once(ctx context.Context, op string, timeout time.Duration) {
	w.attempt(ctx, op, w.nonce(), timeout)
}

// cancel makes a call and cancels it while it runs.
func (w *worker) cancel(ctx context.Context) {
	if w.connect(ctx) == nil {
		return
	}
	nonce := w.nonce()
	a := w.begin(opCancel, nonce, callTimeout)
	a.Want = answerText(w.principal, nonce)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	time.AfterFunc(time.Duration(50+w.random.IntN(200))*time.Millisecond, cancel)
	text, err := mcp.CallTool[string](ctx, w.client, "slow", callArguments{Nonce: nonce, Millis: cancelMillis})
	if errors.Is(err, context.Canceled) {
		a.Outcome, a.Error = unknown, "cancelled"
		w.history.end(a)
		return
	}
	w.end(a, text, err)
}

// attempt makes a call and returns its outcome.
func (w *worker) attempt(ctx context.Context, op, nonce string, timeout time.Duration) outcome {
	return w.made(ctx, op, nonce, timeout).Outcome
}

// made makes a call and records it.
func (w *worker) made(ctx context.Context, op, nonce string, timeout time.Duration) *attempt {
	args := callArguments{Nonce: nonce, Count: streamNotes}
	if op == "slow" || op == "stream" {
		args.Millis = 10 + w.random.IntN(90)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
	defer cancel()
	if op == "stream" {
		ctx = mcp.WithCallOptions(ctx, mcp.CallOptions{Progress: func(u mcp.ProgressUpdate) {
			over := w.over.Load()
			w.noted("progress", u.Message, int64(u.Progress), over != nil && *over == nonce)
		}})
	}
	a := w.begin(op, nonce, timeout)
	a.Want = answerText(w.principal, nonce)
	if op == "ask" {
		a.Want += " " + wordFor(nonce)
	}
	text, err := mcp.CallTool[string](ctx, w.client, op, args)
	w.over.Store(&nonce)
	w.end(a, text, err)
	return a
}

// noted records a notification of a call, whose text names the principal and the nonce.
func (w *worker) noted(kind, text string, n int64, late bool) {
	owner, nonce, _ := strings.Cut(text, " ")
	w.history.note(note{Stream: nonce, Kind: kind, Owner: w.principal, For: owner, N: n, Late: late})
}

func (w *worker) logged(_ context.Context, m *mcp.LoggingMessage) {
	var data struct {
		Msg string `json:"msg"`
		N   int64  `json:"n"`
	}
	if err := json.Unmarshal(m.Data, &data); err != nil {
		w.history.violate("crossed: a log message cannot be read", string(m.Data))
		return
	}
	w.noted("log", data.Msg, data.N, false)
}

// wordFor is the answer to the question of a call.
func wordFor(nonce string) string { return "word-" + nonce }

// elicit answers a question, which names the principal and the nonce.
func (w *worker) elicit(_ context.Context, p *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	owner, nonce, _ := strings.Cut(p.Message, " ")
	if owner != w.principal {
		w.history.violate("crossed: a question reached another principal", p.Message+" reached "+w.principal)
	}
	content, err := json.Marshal(map[string]string{"value": wordFor(nonce)})
	return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: content}, err
}

// task starts a task and waits for it. A task that is not over in time is left to the crowd.
func (w *worker) task(ctx context.Context) {
	tool, nonce := []string{"work", "again"}[w.random.IntN(2)], w.nonce()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), callTimeout)
	defer cancel()
	a := w.begin(tool, nonce, callTimeout)
	handle, err := tasks.Start(ctx, w.client, tool, callArguments{Nonce: nonce, Millis: 20 + w.random.IntN(400)})
	if err != nil {
		w.end(a, "", err)
		return
	}
	if handle.ID() == "" {
		w.history.violate("lost: a call became no task", nonce)
		a.Want = answerText(w.principal, nonce)
		result, err := handle.Wait(ctx) // returns what the call returned
		w.end(a, result.Text(), err)
		return
	}
	w.awaitTask(ctx, a, ownedTask{handle.ID(), w.principal, tool, nonce, w.revision, a.Begin})
}

// awaitTask waits for a task and records the end of the attempt.
func (w *worker) awaitTask(ctx context.Context, a *attempt, t ownedTask) {
	a.Want = answerText(t.owner, t.nonce)
	result, err := tasks.Resume(w.client, t.id).Wait(ctx)
	var fault *mcp.Error
	switch {
	case err == nil && !result.IsError:
		w.end(a, result.Text(), nil)
	case err == nil:
		w.taskFailed(a, t, result.Text())
	case errors.As(err, &fault) && fault.Code != mcp.CodeBusy &&
		(isInterrupted(fault.Message) || fault.Code == mcp.CodeInvalidParams):
		w.taskFailed(a, t, fault.Message) // the task has failed, or does not exist
	default:
		a.Outcome, a.Error = classify(err)
		if a.Outcome == unsent { // the wait, and not the task
			a.Outcome = unknown
		}
		a.Detail = err.Error()
		w.history.end(a)
		w.mu.Lock()
		w.tasks = append(w.tasks, t)
		w.mu.Unlock()
	}
}

// taskFailed records a task that ended with an error. A restart may end a task that is not
// restartable, and nothing else.
func (w *worker) taskFailed(a *attempt, t ownedTask, text string) {
	w.end(a, "", &mcp.ToolError{Tool: t.tool, Result: &mcp.CallToolResult{Content: []mcp.ContentBlock{
		&mcp.TextContent{Text: text}}}})
	if w.history.survives(t.born) && (t.tool == "again" || !isInterrupted(text)) {
		w.history.violate("lost: an acknowledged task has no result", fmt.Sprintf("%+v: %s", t, text))
	}
}

func isInterrupted(text string) bool {
	return strings.Contains(text, "restarted") || strings.Contains(text, "shutting down")
}
