package tasks

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxQuoted is how many questions the status message of a task tells: one line.
	maxQuoted = 5
	// firstBackoff and maxBackoff are between two attempts to use a store that fails.
	firstBackoff = 100 * time.Millisecond
	maxBackoff   = 30 * time.Second
	// maxPersist is for how long a result is kept for a store that fails. Its place among the running tasks stays taken
	// meanwhile: no work is begun whose outcome could not be kept either.
	maxPersist = 10 * time.Minute
)

// A run is one time through the handler of a task, from the moment that it is due.
type run struct {
	owner, id string
	ctx       context.Context
	cancel    context.CancelCauseFunc
	slot      bool          // it has its place among those that run
	place     *list.Element // among those that wait for one; guarded by the manager's lock
	job       *job          // as it was stored with Started; nil if that is still to do
	detached  *mcp.Detached
	gaveUp    atomic.Bool // the handler ended because its context had

	mu      sync.Mutex // guards the fields below
	advance advance
	told    time.Time // when who waits was last told of it
}

// An advance is how far a run has come, by its own word.
type advance struct {
	steps       int // how often it was told; 0 for never
	done, total float64
	message     string
	at          time.Time
}

// admit makes room for a run of a task, which is written by the caller, who then calls launch, or dismiss if it could not
// be written. It is nil if nothing may run any more.
func (m *Manager) admit(owner, id string) *run {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	r := &run{owner: owner, id: id}
	r.ctx, r.cancel = context.WithCancelCause(m.base)
	m.runs[id] = r
	m.claim(r)
	return r
}

// claim returns a run its place if there is one. The caller holds the lock.
func (m *Manager) claim(r *run) {
	if m.turns.take(r) {
		m.active++
		r.slot = true
	}
}

// launch starts a run that is written, or lets it wait for its turn.
func (m *Manager) launch(r *run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case r.slot:
		go m.run(r)
	case r.ctx.Err() != nil && !m.closed:
		m.forget(r) // its outcome is written already
	default:
		m.turns.wait(r)
		m.startNext()
	}
}

// dismiss returns up a run that was not launched, or has ended.
func (m *Manager) dismiss(r *run) {
	r.cancel(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.forget(r)
	if r.slot {
		m.turns.release(r)
		m.startNext()
		m.left()
	}
}

// forget takes a run out of what is due. The caller holds the lock.
func (m *Manager) forget(r *run) {
	if m.runs[r.id] == r { // else the next run of the task is due already
		delete(m.runs, r.id)
	}
}

// due reports whether a run is the one that its task waits for.
func (m *Manager) due(r *run) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs[r.id] == r
}

// startNext starts those whose turn it is. The caller holds the lock.
func (m *Manager) startNext() {
	for !m.closed {
		r := m.turns.call()
		if r == nil {
			return
		}
		m.active++
		r.slot = true
		go m.run(r)
	}
}

// stop ends the run of a task whose outcome is written.
func (m *Manager) stop(id string, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.runs[id]
	if r == nil {
		return
	}
	r.cancel(cause)
	if r.place != nil {
		m.turns.drop(r)
		m.forget(r)
	}
}

// lost reports whether nothing will ever happen to a task that is working.
func (m *Manager) lost(id string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.runs[id] == nil && !m.closed
}

// run is a goroutine. It ends with the handler, once the outcome is stored.
func (m *Manager) run(r *run) {
	defer m.dismiss(r)
	if r.job == nil {
		m.persist(r, m.begin(r))
	}
	switch {
	case r.job == nil:
		return
	case m.base.Err() != nil:
		m.persist(r, m.putOff(r))
		return
	case r.ctx.Err() != nil:
		return // it was called off, or its time is over
	}
	ran := ending{fault: errGone}
	defer func() { // also when the handler ends its goroutine
		r.job = nil // it may be large, and the store has it
		m.persist(r, m.settle(r, ran))
	}()
	ran = m.enterHandler(r)
}

// errGone is the error of a task whose handler has ended its goroutine, as [runtime.Goexit] does.
var errGone = mcp.Errorf(mcp.CodeInternalError, "the tool ended without a result")

// begin returns the step that lets a run begin which has waited for its turn: it must not be taken for one that has not begun.
func (m *Manager) begin(r *run) func() error {
	return func() error {
		begins := false
		j, err := m.change(r.ctx, r.owner, r.id, func(j *job, _ time.Time) error {
			if begins = j.Phase == phaseWorking && m.due(r); !begins {
				return errUnchanged
			}
			j.Started = true
			return nil
		})
		if err == nil && begins {
			r.job = j
		}
		return err
	}
}

// putOff returns the step that leaves a run to the next process, since it has not begun.
func (m *Manager) putOff(r *run) func() error {
	return func() error {
		_, err := m.change(context.Background(), r.owner, r.id, func(j *job, _ time.Time) error {
			if j.Phase != phaseWorking {
				return errUnchanged
			}
			j.Started = false
			return nil
		})
		return err
	}
}

// An ending is what a run has come to.
type ending struct {
	result  []byte // nil for none
	isError bool
	fault   *mcp.Error
	asks    *mcp.InputRequired
	memory  []byte
	cut     bool // by the end of the manager
}

// enterHandler has the server carry out the call.
func (m *Manager) enterHandler(r *run) ending {
	j := r.job
	if m.offered(j.Tool) == nil {
		return ending{fault: errNoTool(j.Tool)}
	}
	call := jsonrpc.NewRequest(jsonrpc.StringID("task "+short(r.id)), "tools/call", j.Params)
	req, err := mcp.NewRequest(call)
	if err != nil {
		return ending{fault: mcp.Errorf(mcp.CodeInternalError, "the stored call cannot be read")}
	}
	req.Principal = j.Caller.principal()
	r.detached = &mcp.Detached{State: j.Memory, Responses: j.Answers, Progress: func(done, total float64, message string) {
		m.progressed(r, j, advance{done: done, total: total, message: message})
	}}
	ctx := context.WithValue(mcp.WithPrincipal(r.ctx, req.Principal), runKey{}, r)
	var out ending
	failed := false
	serve := func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		res, err := m.server.ServeMCP(ctx, req)
		switch res := res.(type) {
		case *mcp.InputRequired:
			out.asks = res
		case *mcp.ToolResult:
			out.isError = res.IsError
		default:
			failed = true // it may say so within
		}
		return res, err
	}
	answer := mcp.Answer(ctx, mcp.HandlerFunc(serve), req.Detach(ctx, r.detached))
	out.result, out.fault = answer.Result, answer.Error
	if out.fault != nil {
		out.asks = nil
	}
	if failed && out.fault == nil {
		out.isError = isToolError(out.result)
	}
	out.memory = r.detached.State
	out.cut = r.gaveUp.Load() && errors.Is(context.Cause(r.ctx), mcp.ErrShutdown) && (out.fault != nil || out.isError)
	return out
}

func isToolError(result []byte) bool {
	var r struct {
		IsError bool `json:"isError"`
	}
	return json.Unmarshal(result, &r) == nil && r.IsError
}

// settle returns the step that stores what a run has come to.
func (m *Manager) settle(r *run, out ending) func() error {
	began := time.Now()
	return func() error {
		if time.Since(began) > maxPersist && out.fault == nil {
			m.log.Error("tasks: a result could not be stored, and is given up", "task", short(r.id))
			out = ending{fault: mcp.Errorf(mcp.CodeInternalError, "the result could not be stored")}
		}
		j, err := m.change(context.Background(), r.owner, r.id, func(j *job, now time.Time) error {
			if j.Phase != phaseWorking {
				return errUnchanged // it was called off, or its time is over
			}
			switch {
			case out.cut:
				m.cutOff(j, now)
			case out.asks != nil:
				if fault := j.ask(out.asks, out.memory); fault != nil {
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
		if err == nil {
			m.log.Debug("tasks: a run has ended", "task", short(r.id), "tool", j.Tool, "phase", j.Phase, "failed", j.Error != nil)
		}
		switch {
		case errors.Is(err, errTooLarge):
			m.log.Error("tasks: an outcome is too large to be stored", "task", short(r.id), "bytes", len(out.result)+len(out.memory))
			out = ending{fault: mcp.Errorf(mcp.CodeInternalError, "the result is too large to be kept")}
		case errors.Is(err, errEncode):
			m.log.Error("tasks: an outcome cannot be stored", "task", short(r.id), "error", err)
			out = ending{fault: mcp.Errorf(mcp.CodeInternalError, "the result cannot be kept")}
		}
		return err
	}
}

// persist repeats a step until the store has taken it. It gives up when the task is gone for good, and when the
// manager is closed.
func (m *Manager) persist(r *run, step func() error) {
	for wait := firstBackoff; ; wait = min(2*wait, maxBackoff) {
		last := m.base.Err() != nil
		err := step()
		if errors.Is(err, errTooLarge) || errors.Is(err, errEncode) {
			err = step() // with less, if it can do with less
		}
		switch {
		case err == nil:
			return
		case errors.Is(err, ErrUnknown), errors.Is(err, errRecord), last:
			m.log.Error("tasks: a step of a task is lost", "task", short(r.id), "error", err)
			return
		}
		m.log.Error("tasks: a step of a task could not be stored, and is tried again", "task", short(r.id), "error", err)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-m.base.Done():
			timer.Stop()
		}
	}
}

// ask makes the job wait for answers. Each question gets a key that no other question of the task ever has. The error is the
// one that ends a task which would ask for ever.
//
// Spec: tasks extension, Task Update Requests.
func (j *job) ask(asks *mcp.InputRequired, memory []byte) *mcp.Error {
	if fault := j.tired(asks.InputRequests); fault != nil {
		return fault
	}
	j.Phase, j.Started, j.Restarts = phaseWaiting, false, 0
	j.Memory, j.Answers = memory, nil
	j.Open = make(map[string]asked, len(asks.InputRequests))
	for _, key := range slices.Sorted(maps.Keys(asks.InputRequests)) {
		j.Keys++
		j.Open[key+"."+strconv.FormatUint(j.Keys, 10)] = asked{Key: key, Request: asks.InputRequests[key]}
	}
	j.Message, j.grown = j.asks(), true
	return nil
}

// asks is the status message of a job that waits: what it wants to know, as far as that is said to people.
func (j *job) asks() string {
	var all []string
	for _, key := range slices.Sorted(maps.Keys(j.Open)) {
		var p struct {
			Message string `json:"message"`
		}
		if json.Unmarshal(j.Open[key].Request.Params, &p) == nil && p.Message != "" {
			all = append(all, p.Message)
		}
		if len(all) == maxQuoted {
			break
		}
	}
	return bounded(strings.Join(all, "; "))
}

// progressed takes a step of a run's progress. Who waits for news of the task is told at most as often as it would poll.
func (m *Manager) progressed(r *run, j *job, p advance) {
	r.mu.Lock()
	now := time.Now()
	p.steps, p.at = r.advance.steps+1, now.Truncate(time.Millisecond)
	r.advance = p
	tell := now.Sub(r.told) >= time.Duration(j.Poll)*time.Millisecond
	if tell {
		r.told = now
	}
	r.mu.Unlock()
	if tell {
		m.watchers.step(r.id)
	}
}

func (r *run) soFar() advance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.advance
}

func (p advance) text() string {
	number := func(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
	switch {
	case p.steps == 0:
		return ""
	case p.message != "":
		return bounded(p.message)
	case p.total > 0:
		return fmt.Sprintf("%s of %s", number(p.done), number(p.total))
	}
	return number(p.done)
}

// bounded makes a status message of any text: one line.
func bounded(text string) string {
	return strings.Map(func(c rune) rune {
		if unicode.IsControl(c) {
			return ' '
		}
		return c
	}, strings.ToValidUTF8(text[:min(len(text), maxMessage)], ""))
}
