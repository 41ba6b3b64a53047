package tasks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// relatedTask is the member of `_meta` that names the task that a message belongs to. Spec:
// basic/utilities/tasks (2025-11-25), Related Task Metadata.
const relatedTask = "io.modelcontextprotocol/related-task"

// result serves tasks/result. It waits for the end of the task. If the task requires input
// meanwhile, the client is asked. Spec: basic/utilities/tasks (2025-11-25), Retrieving Task
// Results.
func (f server2025) result(ctx context.Context, req *mcp.Request, p *requestParams) (mcp.Result, error) {
	s, owner := f.server, req.Principal.Key()
	release, err := s.results.acquire(owner)
	if err != nil {
		return nil, err
	}
	defer release()
	if len(p.Responses) > 0 {
		if err := s.respond(ctx, owner, p.ID, p.Responses); err != nil {
			return nil, err
		}
	}
	if err := s.join(ctx); err != nil {
		return nil, err
	}
	r := &resultRequest{server: s, req: req, owner: owner, id: p.ID, asked: requestState(req.Params)}
	changed, progressed := make(chan struct{}, 1), make(chan struct{}, 1)
	defer s.changes.subscribe(p.ID, func(progress bool) {
		if progress {
			notify(progressed)
		} else {
			notify(changed)
		}
	})()
	for {
		if res, err := r.response(ctx); res != nil || err != nil {
			return res, err
		}
		for again := false; !again; {
			r.sendProgress(ctx)
			select {
			case <-changed:
				again = true
			case <-progressed:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			case <-s.base.Done():
				return nil, errShutdown
			}
		}
	}
}

// A resultRequest is a tasks/result.
type resultRequest struct {
	server    *Server
	req       *mcp.Request
	owner, id string
	asked     string // the keys of the input requests that the client is being asked already
	sent      progress
}

// response returns the response to the request, or nil if it must wait.
func (r *resultRequest) response(ctx context.Context) (mcp.Result, error) {
	release, err := r.server.acquireRead(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { release() }()
	j, err := r.server.readHead(ctx, r.owner, r.id)
	if err != nil || j.Phase == phaseWorking {
		return nil, err
	}
	size := len(j.Data)
	if j, err = j.full(); err != nil {
		return nil, err
	}
	switch {
	case !j.Done && canAnswer(r.req, j) && j.openKeys() != r.asked:
		return j.inputRequired2025()
	case !j.Done:
		return nil, nil
	case size >= largeRecord:
		releaseLater := release
		release = func() {} // several copies of the result exist until the response is written
		timer := time.AfterFunc(maxReadTime, releaseLater)
		context.AfterFunc(ctx, func() {
			timer.Stop()
			releaseLater()
		})
	}
	return j.result2025()
}

const (
	// maxReading is the number of requests that read their task at the same time. All requests that
	// wait for the same task wake up together, and each of them needs a copy of its result.
	maxReading = 8
	// largeRecord is the record size, in bytes, from which a request counts as reading to its end.
	largeRecord = 256 << 10
	// maxReadTime is how long a request counts as reading at most.
	maxReadTime = 5 * time.Second
)

// acquireRead waits until fewer than maxReading requests read their task. release is idempotent.
func (s *Server) acquireRead(ctx context.Context) (release func(), err error) {
	select {
	case s.reading <- struct{}{}:
		return sync.OnceFunc(func() { <-s.reading }), nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// notify sends to a buffered (1) channel, unless the buffer is full.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

const (
	// maxResults is the number of tasks/result requests that are served at the same time. They may
	// last as long as subscriptions.
	maxResults = 10_000
	// maxResultsPerOwner limits the results of a principal. All anonymous callers count as a single
	// principal.
	maxResultsPerOwner = 1_000
)

// A resultLimiter limits the tasks/result requests that are served at the same time.
type resultLimiter struct {
	mu      sync.Mutex // guards the fields below
	all     int
	byOwner map[string]int
}

func (l *resultLimiter) acquire(owner string) (release func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.byOwner[owner] >= maxResultsPerOwner:
		return nil, errBusy(5*time.Second, "you have too many requests of tasks/result: use tasks/get")
	case l.all >= maxResults:
		return nil, errBusy(5*time.Second, "the server has too many requests of tasks/result: use tasks/get")
	}
	if l.byOwner == nil {
		l.byOwner = map[string]int{}
	}
	l.all++
	l.byOwner[owner]++
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.all--
		if l.byOwner[owner]--; l.byOwner[owner] == 0 {
			delete(l.byOwner, owner)
		}
	}, nil
}

// canAnswer reports whether the client declared the capabilities for all open input requests of
// a task. If not, its request waits until another client answered. Spec: client/elicitation,
// client/sampling (2025-11-25), Capabilities.
func canAnswer(req *mcp.Request, j *job) bool {
	has := req.Capabilities()
	for _, q := range j.Open {
		ok := true
		switch q.Request.Method {
		case "elicitation/create":
			ok = canElicit(has.Elicitation, q.Request.Params)
		case "sampling/createMessage":
			ok = canSample(has.Sampling, q.Request.Params)
		case "roots/list":
			ok = has.Roots != nil
		}
		if !ok {
			return false
		}
	}
	return true
}

// canElicit reports whether the client supports an elicitation's mode: forms if it declares no
// mode.
func canElicit(has *mcp.ElicitationCapability, params json.RawMessage) bool {
	var p struct {
		Mode string `json:"mode"`
	}
	switch {
	case has == nil || jsonv2.Unmarshal(params, &p) != nil:
		return false
	case p.Mode == "url":
		return has.URL != nil
	}
	return has.Form != nil || has.URL == nil
}

func canSample(has *mcp.SamplingCapability, params json.RawMessage) bool {
	var p mcp.CreateMessageParams
	if has == nil || jsonv2.Unmarshal(params, &p) != nil {
		return false
	}
	tools := len(p.Tools) > 0 || p.ToolChoice != nil
	for _, message := range p.Messages {
		for _, c := range message.Content {
			switch c.(type) {
			case *mcp.ToolUseContent, *mcp.ToolResultContent:
				tools = true
			}
		}
	}
	context := p.IncludeContext != "" && p.IncludeContext != "none"
	return (!tools || has.Tools != nil) && (!context || has.Context != nil)
}

func (j *job) result2025() (mcp.Result, error) {
	switch {
	case j.Cancelled:
		return nil, mcp.Errorf(mcp.CodeInternalError, "request cancelled")
	case j.Error != nil:
		return nil, j.Error
	}
	raw, err := j.withRelatedTask(j.Result)
	if err != nil {
		return nil, fmt.Errorf("the stored result of task %s: %w", short(j.ID), err)
	}
	return mcp.RawResult(raw), nil
}

// inputRequired2025 returns the open input requests. Each of them names the task in its `_meta`.
func (j *job) inputRequired2025() (mcp.Result, error) {
	all := j.inputRequests()
	for key, q := range all {
		raw := q.Params
		if raw == nil {
			raw = json.RawMessage("{}")
		}
		var err error
		if q.Params, err = j.withRelatedTask(raw); err != nil {
			return nil, fmt.Errorf("a stored input request of task %s: %w", short(j.ID), err)
		}
		all[key] = q
	}
	return &mcp.InputRequiredResult{InputRequests: all, RequestState: j.openKeys()}, nil
}

type related struct {
	ID string `json:"taskId"`
}

// withRelatedTask returns a JSON object whose `_meta` names the task, without a resultType.
func (j *job) withRelatedTask(raw json.RawMessage) (json.RawMessage, error) {
	var object struct {
		Meta struct {
			Related any                        `json:"io.modelcontextprotocol/related-task"` // relatedTask
			Others  map[string]json.RawMessage `json:",embed"`
		} `json:"_meta"`
		Members map[string]json.RawMessage `json:",embed"`
	}
	if err := jsonv2.Unmarshal(raw, &object); err != nil {
		return nil, err
	}
	object.Meta.Related = related{j.ID}
	delete(object.Members, "resultType")
	return jsonv2.Marshal(&object, jsonv2.Deterministic(true))
}

// openKeys returns the keys of the open input requests. As the request state it records what the
// client was asked: a client that repeats its request without answers is not asked the same again.
func (j *job) openKeys() string { return strings.Join(slices.Sorted(maps.Keys(j.Open)), ",") }

func requestState(params json.RawMessage) string {
	var p struct {
		State string `json:"requestState"`
	}
	if jsonv2.Unmarshal(params, &p) != nil {
		return ""
	}
	return p.State
}

// sendProgress sends the progress of the task's run, if the request carries a progressToken and
// there is something new. Spec: basic/utilities/tasks (2025-11-25), Task Progress Notifications.
func (r *resultRequest) sendProgress(ctx context.Context) {
	token, ok := r.req.Meta("progressToken")
	if !ok || r.req.Notify == nil {
		return
	}
	r.server.mu.Lock()
	run := r.server.runs[r.id]
	r.server.mu.Unlock()
	if run == nil {
		return
	}
	p := run.lastProgress()
	if p.count == 0 || p == r.sent {
		return
	}
	r.sent = p
	params := struct {
		Token   json.RawMessage `json:"progressToken"`
		Done    float64         `json:"progress"`
		Total   float64         `json:"total,omitzero"`
		Message string          `json:"message,omitzero"`
		Meta    mcp.Meta        `json:"_meta"`
	}{token, p.done, p.total, statusMessage(p.message), mcp.Meta{relatedTask: related{r.id}}}
	if raw, err := jsonv2.Marshal(params, jsonv2.Deterministic(true)); err == nil {
		_ = r.req.Notify(ctx, notificationProgress, raw) // if the stream ended, ctx ends the request
	}
}
