package tasks

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

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
func (m *Manager) result(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if dialectOf(req) != dialect2025 {
		return nil, errNoMethod(req)
	}
	p, err := parseTaskParams(req.Params)
	if err != nil {
		return nil, err
	}
	owner := req.Principal.Key()
	if len(p.Responses) > 0 {
		if err := m.answer(ctx, owner, p.ID, p.Responses); err != nil {
			return nil, err
		}
	}
	before := askedBefore(req.Params)
	news := make(chan struct{}, 1)
	defer m.watchers.add(p.ID, func() {
		select {
		case news <- struct{}{}:
		default: // there is news already
		}
	})()
	for {
		j, err := m.find(ctx, owner, p.ID)
		switch {
		case err != nil:
			return nil, err
		case j.Done:
			return j.outcome2025()
		case j.Phase == phaseWaiting && canAnswer(req, j) && j.openKeys() != before:
			return j.ask2025()
		case j.Phase == phaseWorking:
			m.tell2025(ctx, req, j)
		}
		select {
		case <-news:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-m.base.Done():
			return nil, errBusy("the server is shutting down")
		}
	}
}

// canAnswer reports whether a client has declared what it takes to answer a task's questions. If not, it waits for the one
// who can.
func canAnswer(req *mcp.Request, j *job) bool {
	has := req.Capabilities()
	for _, q := range j.Open {
		switch q.Request.Method {
		case "elicitation/create":
			if has.Elicitation == nil {
				return false
			}
		case "sampling/createMessage":
			if has.Sampling == nil {
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

// askedBefore gives the state of a request for a result: what its client is being asked already.
func askedBefore(params stdjson.RawMessage) string {
	var p struct {
		State string `json:"requestState"`
	}
	if json.Unmarshal(params, &p) != nil {
		return "" // then it is asked again
	}
	return p.State
}

// tell2025 passes on how far a run has come, to a client whose call gave a token for that.
//
// Spec: basic/utilities/tasks (2025-11-25), Task Progress Notifications.
func (m *Manager) tell2025(ctx context.Context, req *mcp.Request, j *job) {
	m.mu.Lock()
	r := m.runs[j.ID]
	m.mu.Unlock()
	var p struct {
		Meta struct {
			Token stdjson.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if r == nil || req.Notify == nil || json.Unmarshal(j.Params, &p) != nil || p.Meta.Token == nil {
		return
	}
	at, ok := r.unstreamed()
	if !ok {
		return
	}
	note := struct {
		Token   stdjson.RawMessage `json:"progressToken"`
		Done    float64            `json:"progress"`
		Total   float64            `json:"total,omitzero"`
		Message string             `json:"message,omitzero"`
		Meta    mcp.Meta           `json:"_meta"`
	}{p.Meta.Token, at.done, at.total, bounded(at.message), mcp.Meta{relatedTask: related{j.ID}}}
	if raw, err := json.Marshal(note, json.Deterministic(true)); err == nil {
		_ = req.Notify(ctx, "notifications/progress", raw) // a stream that is gone ends the request through its context
	}
}
