package tasks

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// relatedTask is the member of `_meta` that names the task which a message belongs to.
//
// Spec: basic/utilities/tasks (2025-11-25), Related Task Metadata.
const relatedTask = "io.modelcontextprotocol/related-task"

// result serves tasks/result. It waits for the end of the task; while the task waits for answers, it asks for them.
//
// Spec: basic/utilities/tasks (2025-11-25), Retrieving Task Results.
func (s *Server) result(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if dialectOf(req) != dialect2025 {
		return nil, errNoMethod(req)
	}
	p, err := parseTaskParams(req.Params)
	if err != nil {
		return nil, err
	}
	owner := req.Principal.Key()
	leave, err := s.waits.enter(owner)
	if err != nil {
		return nil, err
	}
	defer leave()
	if len(p.Responses) > 0 {
		if err := s.answer(ctx, owner, p.ID, p.Responses); err != nil {
			return nil, err
		}
	}
	w := &waiter{manager: s, req: req, owner: owner, id: p.ID, before: askedBefore(req.Params)}
	news, steps := make(chan struct{}, 1), make(chan struct{}, 1)
	defer s.watchers.add(p.ID, func() { signal(news) }, func() { signal(steps) })()
	for {
		if res, err := w.look(ctx); res != nil || err != nil {
			return res, err
		}
		for changed := false; !changed; {
			w.tell(ctx)
			select {
			case <-news:
				changed = true
			case <-steps:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-s.base.Done():
				return nil, errBusy("the server is shutting down")
			}
		}
	}
}

// A waiter is one request for the result of a task.
type waiter struct {
	manager   *Server
	req       *mcp.Request
	owner, id string
	before    string // the questions that its client is being asked already

	told advance // how far the client knows that the run has come
}

// look returns the answer to the request if there is one.
func (w *waiter) look(ctx context.Context) (mcp.Result, error) {
	done, err := w.manager.read2025(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { done() }()
	j, err := w.manager.glance(ctx, w.owner, w.id)
	if err != nil || j.Phase == phaseWorking {
		return nil, err
	}
	size := len(j.Data)
	if j, err = j.whole(); err != nil {
		return nil, err
	}
	switch {
	case !j.Done && canAnswer(w.req, j) && j.openKeys() != w.before:
		return j.ask2025()
	case !j.Done:
		return nil, nil
	case size >= largeRecord:
		release := done
		done = func() {} // until the answer is written, its bytes are there several times over
		timer := time.AfterFunc(maxHold, release)
		context.AfterFunc(ctx, func() {
			timer.Stop()
			release()
		})
	}
	return j.outcome2025()
}

const (
	// maxReading is the number of requests that look at their tasks at once. All that wait for one task are woken at once, and
	// each needs a copy of what may be the largest result that there is.
	maxReading = 8
	// largeRecord is the size from which on the place is held until the request is over, in bytes.
	largeRecord = 256 << 10
	// maxHold is for how long at most: the end of a request may not be told.
	maxHold = 5 * time.Second
)

// read2025 waits for a place among those who look at their tasks. Done leaves it; a second call does nothing.
func (s *Server) read2025(ctx context.Context) (done func(), err error) {
	select {
	case s.reading <- struct{}{}:
		return sync.OnceFunc(func() { <-s.reading }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// signal leaves word that something has happened.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default: // there is word already
	}
}

const (
	// maxWaits is the number of requests that wait for results at once: the server counts them no more than it counts
	// subscriptions, and they may last as long.
	maxWaits = 10_000
	// maxWaitsOfOwner is the same for one principal; callers without one share theirs.
	maxWaitsOfOwner = 1_000
)

// waits are the requests that wait for results.
type waits struct {
	mu      sync.Mutex // guards the fields below
	all     int
	byOwner map[string]int
}

// enter counts a request, until leave.
func (w *waits) enter(owner string) (leave func(), err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.byOwner[owner] >= maxWaitsOfOwner:
		return nil, errBusy("too many requests wait for results: use tasks/get")
	case w.all >= maxWaits:
		return nil, errBusy("the server has too many requests that wait for results: use tasks/get")
	}
	if w.byOwner == nil {
		w.byOwner = map[string]int{}
	}
	w.all++
	w.byOwner[owner]++
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.all--
		if w.byOwner[owner]--; w.byOwner[owner] == 0 {
			delete(w.byOwner, owner)
		}
	}, nil
}

// canAnswer reports whether a client has declared what it takes to answer a task's questions. If not, it waits for the one
// who can.
//
// Spec: client/elicitation, client/sampling (2025-11-25), Capabilities.
func canAnswer(req *mcp.Request, j *job) bool {
	has := req.Capabilities()
	for _, q := range j.Open {
		switch q.Request.Method {
		case "elicitation/create":
			if !canElicit(has.Elicitation, q.Request.Params) {
				return false
			}
		case "sampling/createMessage":
			if !canSample(has.Sampling, q.Request.Params) {
				return false
			}
		case "roots/list":
			if has.Roots == nil {
				return false
			}
		}
	}
	return true
}

// canElicit reports whether a client may be asked in the mode of a question. One that names no mode has forms.
func canElicit(has *mcp.ElicitationCapability, params stdjson.RawMessage) bool {
	var p struct {
		Mode string `json:"mode"`
	}
	switch {
	case has == nil || json.Unmarshal(params, &p) != nil:
		return false
	case p.Mode == "url":
		return has.URL != nil
	}
	return has.Form != nil || has.URL == nil
}

// canSample reports whether a client may be asked for what its model is to be given.
func canSample(has *mcp.SamplingCapability, params stdjson.RawMessage) bool {
	var p mcp.SampleParams
	if has == nil || json.Unmarshal(params, &p) != nil {
		return false
	}
	tools := len(p.Tools) > 0 || p.ToolChoice != nil
	for _, message := range p.Messages {
		for _, c := range message.Content {
			switch c.(type) {
			case *mcp.ToolUse, *mcp.ToolUseResult:
				tools = true
			}
		}
	}
	context := p.IncludeContext != "" && p.IncludeContext != "none"
	return (!tools || has.Tools != nil) && (!context || has.Context != nil)
}

// outcome2025 gives what the call itself would have been answered.
func (j *job) outcome2025() (mcp.Result, error) {
	switch {
	case j.Cancelled:
		return nil, mcp.Errorf(mcp.CodeInternalError, "request cancelled")
	case j.Error != nil:
		return nil, j.Error
	}
	var members map[string]stdjson.RawMessage
	if err := json.Unmarshal(j.Result, &members); err != nil {
		return nil, fmt.Errorf("the stored result of task %s: %w", short(j.ID), err)
	}
	var meta mcp.Meta
	if raw, ok := members["_meta"]; ok {
		var own map[string]stdjson.RawMessage
		if err := json.Unmarshal(raw, &own); err != nil {
			return nil, fmt.Errorf("the stored result of task %s: %w", short(j.ID), err)
		}
		meta = mcp.Meta{}
		for key, value := range own {
			meta[key] = value
		}
	}
	if meta == nil {
		meta = mcp.Meta{}
	}
	meta[relatedTask] = related{j.ID}
	delete(members, "_meta")
	delete(members, "resultType")
	return result2025{members, meta}, nil
}

// related is the value of relatedTask.
type related struct {
	ID string `json:"taskId"`
}

// A result2025 is the result of a task's call, with the task that it is of.
type result2025 struct {
	Members map[string]stdjson.RawMessage `json:",embed"`
	meta    mcp.Meta
}

// ResultType is "complete".
func (result2025) ResultType() string { return mcp.ResultComplete }

// ResultMeta is r.meta.
func (r result2025) ResultMeta() mcp.Meta { return r.meta }

// ask2025 asks the client what the task waits for. Each question names the task.
func (j *job) ask2025() (mcp.Result, error) {
	all := j.questions()
	for key, q := range all {
		params := map[string]stdjson.RawMessage{}
		if q.Params != nil {
			if err := json.Unmarshal(q.Params, &params); err != nil {
				return nil, fmt.Errorf("a stored question of task %s: %w", short(j.ID), err)
			}
		}
		meta := map[string]stdjson.RawMessage{}
		if own, ok := params["_meta"]; ok {
			if err := json.Unmarshal(own, &meta); err != nil {
				return nil, fmt.Errorf("a stored question of task %s: %w", short(j.ID), err)
			}
		}
		var err error
		meta = maps.Clone(meta)
		if meta[relatedTask], err = json.Marshal(related{j.ID}); err != nil {
			return nil, err
		}
		if params["_meta"], err = json.Marshal(meta, json.Deterministic(true)); err != nil {
			return nil, err
		}
		if q.Params, err = json.Marshal(params, json.Deterministic(true)); err != nil {
			return nil, err
		}
		all[key] = q
	}
	return &mcp.InputRequired{InputRequests: all, RequestState: j.openKeys()}, nil
}

// openKeys names the questions that wait. As the state of a request it says what the client has been asked: who comes back
// with it, and with no answers, waits until there is something else.
func (j *job) openKeys() string { return strings.Join(slices.Sorted(maps.Keys(j.Open)), ",") }

// askedBefore returns the state of a request for a result: what its client is being asked already.
func askedBefore(params stdjson.RawMessage) string {
	var p struct {
		State string `json:"requestState"`
	}
	if json.Unmarshal(params, &p) != nil {
		return "" // then it is asked again
	}
	return p.State
}

// tell passes on how far the task's run has come, if the request has a token for that: the one of the task's call, where
// the client is the one that made it.
//
// Spec: basic/utilities/tasks (2025-11-25), Task Progress Notifications.
func (w *waiter) tell(ctx context.Context) {
	token, ok := w.req.Meta("progressToken")
	if !ok || w.req.Notify == nil {
		return
	}
	w.manager.mu.Lock()
	r := w.manager.runs[w.id]
	w.manager.mu.Unlock()
	if r == nil {
		return
	}
	at := r.soFar()
	if at.steps == 0 || at == w.told {
		return
	}
	w.told = at
	note := struct {
		Token   stdjson.RawMessage `json:"progressToken"`
		Done    float64            `json:"progress"`
		Total   float64            `json:"total,omitzero"`
		Message string             `json:"message,omitzero"`
		Meta    mcp.Meta           `json:"_meta"`
	}{token, at.done, at.total, bounded(at.message), mcp.Meta{relatedTask: related{w.id}}}
	if raw, err := json.Marshal(note, json.Deterministic(true)); err == nil {
		_ = w.req.Notify(ctx, "notifications/progress", raw) // a stream that is gone ends the request through its context
	}
}
