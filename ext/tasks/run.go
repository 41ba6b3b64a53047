package tasks

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
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
	slot      bool // it has its place among those that run
	job       *job // as it was stored with Started; nil if that is still to do
	detached  *mcp.Detached

	mu       sync.Mutex // guards the fields below
	advance  advance
	told     time.Time // when who waits was last told of it
	streamed int       // the steps that went to a stream of the client
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

// claim gives a run its place if there is one. The caller holds the lock.
func (m *Manager) claim(r *run) {
	if m.running < m.opts.MaxRunning {
		m.running++
		m.active++
		r.slot = true
	}
}

// launch starts a run that is written, or lets it wait for its turn.
func (m *Manager) launch(r *run) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !r.slot {
		m.queue = append(m.queue, r)
		m.startNext()
		return
	}
	go m.run(r)
}

// dismiss gives up a run that was not launched, or has ended.
func (m *Manager) dismiss(r *run) {
	r.cancel(nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs[r.id] == r { // else the next run of the task is due already
		delete(m.runs, r.id)
	}
	if r.slot {
		m.running--
		m.startNext()
		m.left()
	}
}

// startNext starts those whose turn it is. The caller holds the lock.
func (m *Manager) startNext() {
	for len(m.queue) > 0 && !m.closed {
		r := m.queue[0]
		if m.claim(r); !r.slot {
			return
		}
		m.queue[0] = nil
		m.queue = m.queue[1:]
		go m.run(r)
	}
}

// stop ends the run of a task whose outcome is written.
func (m *Manager) stop(id string, cause error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.runs[id]; r != nil {
		r.cancel(cause)
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
	ran := m.enterHandler(r)
	r.job = nil // it may be large, and the store has it
	m.persist(r, m.settle(r, ran))
}

// begin gives the step that lets a run begin which has waited for its turn: it must not be taken for one that has not begun.
func (m *Manager) begin(r *run) func() error {
	return func() error {
		j, err := m.change(r.ctx, r.owner, r.id, func(j *job, _ time.Time) error {
			if j.Phase != phaseWorking {
				return errUnchanged
			}
			j.Started = true
			return nil
		})
		if err == nil && j.Phase == phaseWorking {
			r.job = j
		}
		return err
	}
}

// putOff gives the step that leaves a run to the next process, since it has not begun.
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
	out.result, out.fault = mcp.AppendResult(nil, ctx, mcp.HandlerFunc(serve), req.Detach(ctx, r.detached))
	if out.fault != nil {
		out.asks = nil
	}
	if failed && out.fault == nil {
		out.isError = isToolError(out.result)
	}
	out.memory = r.detached.State
	out.cut = errors.Is(context.Cause(r.ctx), mcp.ErrShutdown) && out.asks == nil && (out.fault != nil || out.isError)
	return out
}

func isToolError(result []byte) bool {
	var r struct {
		IsError bool `json:"isError"`
	}
	return json.Unmarshal(result, &r) == nil && r.IsError
}

// settle gives the step that stores what a run has come to.
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
				j.ask(out.asks, out.memory)
				j.Message = r.message()
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
		if errors.Is(err, errTooLarge) {
			m.log.Error("tasks: an outcome is too large to be stored", "task", short(r.id), "bytes", len(out.result)+len(out.memory))
			out = ending{fault: mcp.Errorf(mcp.CodeInternalError, "the result is too large to be kept")}
		}
		return err
	}
}

// persist repeats a step until the store has taken it. It gives up, with false, when the task is gone for good, and when the
// manager is closed.
func (m *Manager) persist(r *run, step func() error) bool {
	for wait := firstBackoff; ; wait = min(2*wait, maxBackoff) {
		last := m.base.Err() != nil
		err := step()
		switch {
		case err == nil:
			return true
		case errors.Is(err, errTooLarge):
			continue // with less
		case errors.Is(err, ErrUnknown), errors.Is(err, errRecord), last:
			m.log.Error("tasks: a step of a task is lost", "task", short(r.id), "error", err)
			return false
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

// ask makes the job wait for answers. Each question gets a key that no other question of the task ever has.
//
// Spec: tasks extension, Task Update Requests.
func (j *job) ask(asks *mcp.InputRequired, memory []byte) {
	j.Phase, j.Started, j.Restarts = phaseWaiting, false, 0
	j.Memory, j.Answers = memory, nil
	j.Open = make(map[string]asked, len(asks.InputRequests))
	for _, key := range slices.Sorted(maps.Keys(asks.InputRequests)) {
		j.Keys++
		j.Open[key+"."+strconv.FormatUint(j.Keys, 10)] = asked{Key: key, Request: asks.InputRequests[key]}
	}
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
		m.watchers.wake(r.id)
	}
}

func (r *run) soFar() advance {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.advance
}

// unstreamed gives how far the run has come if no stream of the client's has told it yet: one token is told each step once.
func (r *run) unstreamed() (a advance, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.advance.steps == r.streamed {
		return a, false
	}
	r.streamed = r.advance.steps
	return r.advance, true
}

// message is what the progress says to people; empty if there is none.
func (r *run) message() string { return r.soFar().text() }

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

// bounded makes a status message of any text.
func bounded(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxMessage)], "")
}
