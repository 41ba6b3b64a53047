package tasks

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// firstBackoff and maxBackoff bound the pause between two attempts to use a store that fails.
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second
	// maxStoreRetry is how long a result is kept for a store that fails. Meanwhile it still counts
	// as a running task, so that no handler starts whose result could not be stored either.
	maxStoreRetry = 10 * time.Minute
)

// A run is an execution of a task's handler, from the moment at which it is due.
type run struct {
	owner, id   string
	holder      string // of the lease under which it runs; empty unless the store is shared
	ctx         context.Context
	cancel      context.CancelCauseFunc
	running     bool          // it counts as running in the fairQueue
	queued      *list.Element // in the fairQueue; nil if it is not queued; guarded by the server's mutex
	job         *job          // as stored with Started; nil if that is still to be done
	detached    *mcp.Detached
	interrupted atomic.Bool // the handler returned because its context had ended

	mu       sync.Mutex // guards the fields below
	progress progress
	notified time.Time // of the progress
}

// progress is the progress that a handler last reported with [mcp.Progress].
type progress struct {
	count       int // of the reports
	done, total float64
	message     string
	at          time.Time
}

// newRun registers a run of a task, and counts it as running if the limits allow it. The caller
// stores the task, and then calls startRun, or endRun if the task could not be stored. newRun
// returns nil if the server is closed or lost its lease.
func (s *Server) newRun(owner, id string) *run {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || s.shared != nil && s.lease.holder == "" {
		return nil
	}
	r := &run{owner: owner, id: id, holder: s.lease.holder}
	r.ctx, r.cancel = context.WithCancelCause(s.base)
	s.runs[id] = r
	if s.queue.tryAcquire(r) {
		s.active.Add(1)
		r.running = true
	}
	return r
}

func (s *Server) startRun(r *run) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case r.running:
		go s.run(r)
	case r.ctx.Err() != nil && !s.closed:
		s.removeRun(r) // stopRun was called; the outcome is stored
	default:
		s.queue.push(r)
		s.startQueued()
	}
}

// endRun removes a run that was not started, or ended.
func (s *Server) endRun(r *run) {
	r.cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.removeRun(r)
	if r.running {
		s.queue.release(r)
		s.startQueued()
		s.active.Done()
	}
}

// removeRun removes a run unless the task is in another run already. The caller holds the mutex.
func (s *Server) removeRun(r *run) {
	if errors.Is(context.Cause(r.ctx), errLeaseLost) {
		s.lease.ended = true // perhaps the server stored the task after others looked for its tasks
	}
	if s.runs[r.id] == r {
		delete(s.runs, r.id)
	}
}

// hasRun reports whether a task is in a run here, or cannot be because the server is closed.
func (s *Server) hasRun(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[id] != nil || s.closed
}

func (s *Server) isCurrent(r *run) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[r.id] == r
}

// startQueued starts queued runs as far as the limits allow. The caller holds the mutex.
func (s *Server) startQueued() {
	for !s.closed {
		r := s.queue.pop()
		if r == nil {
			return
		}
		s.active.Add(1)
		r.running = true
		go s.run(r)
	}
}

// stopRun cancels the run of a task whose outcome is stored.
func (s *Server) stopRun(id string, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.runs[id]; r != nil {
		s.stop(r, cause)
	}
}

// stop cancels a run. The caller holds the mutex.
func (s *Server) stop(r *run, cause error) {
	r.cancel(cause)
	if r.queued != nil {
		s.queue.remove(r)
		s.removeRun(r)
	}
}

// run runs a handler and stores its outcome, in a goroutine of its own.
func (s *Server) run(r *run) {
	defer s.endRun(r)
	if r.job == nil {
		s.retryStore(r, func() error { return s.storeStarted(r) })
	}
	switch {
	case r.job == nil:
		return
	case errors.Is(context.Cause(r.ctx), mcp.ErrShutdown):
		s.retryStore(r, func() error { return s.storeNotStarted(r) })
		return
	case r.ctx.Err() != nil:
		return // cancelled or expired
	}
	out := outcome{fault: errGoexit}
	defer func() { // also if the handler calls runtime.Goexit
		r.job = nil // it is stored and may be large
		s.retryStore(r, s.storeOutcome(r, out))
	}()
	out = s.callHandler(r)
}

var errGoexit = mcp.Errorf(mcp.CodeInternalError, "the tool ended without a result")

// storeStarted marks the job of a queued run as started, before its handler acts.
func (s *Server) storeStarted(r *run) error {
	started := false
	j, err := s.change(r.ctx, r.owner, r.id, func(j *job, _ time.Time) error {
		if started = j.heldBy(r) && s.isCurrent(r); !started {
			return errUnchanged
		}
		j.Started = true
		return nil
	})
	if err == nil && started {
		r.job = j
	}
	return err
}

// storeNotStarted leaves a run whose handler was not called to another process.
func (s *Server) storeNotStarted(r *run) error {
	_, err := s.change(context.Background(), r.owner, r.id, func(j *job, _ time.Time) error {
		if !j.heldBy(r) {
			return errUnchanged
		}
		j.Started = false
		return nil
	})
	return err
}

// An outcome is how a run ended: with a result, an error, or input requests.
type outcome struct {
	result      []byte
	isError     bool // of the result
	fault       *mcp.Error
	required    *mcp.InputRequiredResult
	memory      []byte
	interrupted bool // by Close or the loss of the lease
}

// callHandler executes the call as if it came from the client.
func (s *Server) callHandler(r *run) outcome {
	j := r.job
	if s.tool(j.Tool) == nil {
		return outcome{fault: errNoTool(j.Tool)}
	}
	call := &jsonrpc.Message{ID: jsonrpc.StringID("task " + short(r.id)), Method: methodCall, Params: j.Params}
	req, err := mcp.NewRequest(call)
	if err != nil {
		return outcome{fault: mcp.Errorf(mcp.CodeInternalError, "the stored call cannot be read")}
	}
	req.Principal = j.Caller.principal()
	r.detached = &mcp.Detached{
		State: j.Memory, Responses: j.Answers,
		Progress: func(done, total float64, message string) {
			s.reportProgress(r, j.Poll, progress{done: done, total: total, message: message})
		},
	}
	ctx := context.WithValue(mcp.WithPrincipal(r.ctx, req.Principal), runKey{}, r)
	var out outcome
	serve := func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		res, err := s.server.ServeMCP(ctx, req)
		out.required, _ = res.(*mcp.InputRequiredResult)
		return res, err
	}
	answer := mcp.Driver(mcp.HandlerFunc(serve)).Respond(ctx, req.Detach(ctx, r.detached))
	out.result, out.fault = answer.Result, answer.Error
	if out.fault != nil {
		out.required = nil
	} else {
		out.isError = isToolError(out.result)
	}
	out.memory = r.detached.State
	out.interrupted = r.interrupted.Load() && errors.Is(context.Cause(r.ctx), mcp.ErrShutdown) &&
		(out.fault != nil || out.isError)
	return out
}

func isToolError(result []byte) bool {
	var r struct {
		IsError bool `json:"isError"`
	}
	return jsonv2.Unmarshal(result, &r) == nil && r.IsError
}

// storeOutcome returns the step that stores the outcome of a run. If the outcome cannot be stored,
// the next call of the step fails the task.
func (s *Server) storeOutcome(r *run, out outcome) func() error {
	ended := time.Now()
	return func() error {
		if time.Since(ended) > maxStoreRetry && out.fault == nil {
			s.log.Error("tasks: a result could not be stored and is dropped", "task", short(r.id))
			out = outcome{fault: mcp.Errorf(mcp.CodeInternalError, "the result could not be stored")}
		}
		j, err := s.change(context.Background(), r.owner, r.id, func(j *job, now time.Time) error {
			if !j.heldBy(r) {
				return errUnchanged // cancelled, expired or taken over
			}
			switch t := s.tool(j.Tool); {
			case out.interrupted:
				// As after a crash, but not counted as a restart.
				if j.Started = false; t == nil || !t.Restartable {
					j.fail(now, errInterrupted)
				}
			case out.required != nil:
				if fault := j.requireInput(out.required, out.memory); fault != nil {
					j.fail(now, fault)
				}
			case out.fault != nil:
				j.fail(now, out.fault)
			default:
				j.finish(now)
				j.Result, j.IsError = out.result, out.isError
			}
			return nil
		})
		switch {
		case err == nil:
			s.log.Debug("tasks: a run has ended",
				"task", short(r.id), "tool", j.Tool, "phase", j.Phase, "failed", j.Error != nil)
		case errors.Is(err, errTooLarge):
			s.log.Error("tasks: a result is too large to be stored",
				"task", short(r.id), "bytes", len(out.result)+len(out.memory))
			out = outcome{fault: mcp.Errorf(mcp.CodeInternalError, "the result is too large to be stored")}
		case errors.Is(err, errEncode):
			s.log.Error("tasks: a result cannot be encoded", "task", short(r.id), "error", err)
			out = outcome{fault: mcp.Errorf(mcp.CodeInternalError, "the result cannot be encoded")}
		}
		return err
	}
}

// retryStore calls step until the store accepted it. It stops if the task does not exist any
// more, and when the server is closed.
func (s *Server) retryStore(r *run, step func() error) {
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		last := s.base.Err() != nil
		err := step()
		if errors.Is(err, errTooLarge) || errors.Is(err, errEncode) {
			err = step() // storeOutcome stores an error instead
		}
		switch {
		case err == nil:
			return
		case errors.Is(err, ErrUnknown), errors.Is(err, errRecord), last:
			s.log.Error("tasks: a change of a task is lost", "task", short(r.id), "error", err)
			return
		}
		s.log.Error("tasks: a change of a task could not be stored; trying again", "task", short(r.id), "error", err)
		timer := time.NewTimer(backoff)
		select {
		case <-timer.C:
		case <-s.base.Done():
			timer.Stop()
		}
	}
}

// reportProgress records the progress of a run. It notifies subscribers at most once per poll
// interval, in milliseconds.
func (s *Server) reportProgress(r *run, poll int64, p progress) {
	r.mu.Lock()
	now := time.Now()
	p.count, p.at = r.progress.count+1, now.Truncate(time.Millisecond)
	r.progress = p
	notify := now.Sub(r.notified) >= time.Duration(poll)*time.Millisecond
	if notify {
		r.notified = now
	}
	r.mu.Unlock()
	if notify {
		s.changes.notify(r.id, true)
	}
}

func (r *run) lastProgress() progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.progress
}

func (p progress) text() string {
	switch {
	case p.count == 0:
		return ""
	case p.message != "":
		return statusMessage(p.message)
	case p.total > 0:
		return fmt.Sprintf("%v of %v", p.done, p.total)
	}
	return fmt.Sprint(p.done)
}

// statusMessage returns text as a single line of valid UTF-8 with at most maxMessage bytes.
func statusMessage(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text[:min(len(text), maxMessage)], ""))
}
