package tasks

import (
	"context"
	stdjson "encoding/json"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A dialect is the way in which a revision of the protocol speaks of tasks.
type dialect int

const (
	dialectNone      dialect = iota // it does not
	dialect2025                     // those of revision 2025-11-25, a part of its core
	dialectExtension                // the extension, over every revision after that
)

func dialectOf(req *mcp.Request) dialect {
	switch v := req.Revision(); {
	case v == revision2025:
		return dialect2025
	case v > revision2025: // revisions are dates
		return dialectExtension
	}
	return dialectNone
}

// declared reports whether a request's client can take tasks.
//
// Spec: tasks extension, Capability Negotiation.
func declared(req *mcp.Request) bool {
	return isObject(req.Capabilities().Extensions[ID])
}

// require refuses a request whose client did not declare the extension, and one of a revision that does not have it.
func require(req *mcp.Request) error {
	switch {
	case dialectOf(req) != dialectExtension:
		return errNoMethod(req)
	case !declared(req):
		return mcp.MissingCapability(capability)
	}
	return nil
}

// errNoMethod is what the core answers to a method that it does not know.
func errNoMethod(req *mcp.Request) error {
	return mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %.128q", req.Method)
}

// A description is what every form of a task has in the extension.
//
// Spec: tasks extension, Tasks.
type description struct {
	ID      string `json:"taskId"`
	Status  Status `json:"status"`
	Message string `json:"statusMessage,omitzero"`
	Created string `json:"createdAt"`
	Updated string `json:"lastUpdatedAt"`
	TTL     int64  `json:"ttlMs"`
	Poll    int64  `json:"pollIntervalMs"`
}

// timeFormat is that of ISO 8601, in UTC and to the millisecond.
const timeFormat = "2006-01-02T15:04:05.000Z"

// status returns the task's status in the extension. A tool that failed has a result like any other.
//
// Spec: tasks extension, Task Status.
func (j *job) status() Status {
	switch {
	case j.Phase == phaseWorking:
		return StatusWorking
	case j.Phase == phaseWaiting:
		return StatusInputRequired
	case j.Cancelled:
		return StatusCancelled
	case j.Failed:
		return StatusFailed
	}
	return StatusCompleted
}

// describe returns what is known of a task at this moment.
func (s *Server) describe(j *job) description {
	message, updated := s.latest(j)
	return description{
		ID: j.ID, Status: j.status(), Message: message,
		Created: j.Created.UTC().Format(timeFormat), Updated: updated.UTC().Format(timeFormat),
		TTL: j.TTL, Poll: j.Poll,
	}
}

// latest returns a task's status message and when it was last changed. The progress of a run is in memory.
func (s *Server) latest(j *job) (message string, updated time.Time) {
	message, updated = j.Message, time.UnixMilli(j.Updated)
	if j.Phase != phaseWorking {
		return message, updated
	}
	s.mu.Lock()
	r := s.runs[j.ID]
	queued := r != nil && r.place != nil
	s.mu.Unlock()
	if queued {
		return "waits for its turn", updated
	}
	if r != nil {
		if p := r.soFar(); p.steps > 0 {
			return p.text(), p.at
		}
	}
	return message, updated
}

// A createdTask is the result of a call that became a task.
//
// Spec: tasks extension, Task Creation.
type createdTask struct {
	Description description `json:",embed"`
}

// ResultType is "task".
func (createdTask) ResultType() string { return "task" }

// ResultMeta is nil.
func (createdTask) ResultMeta() mcp.Meta { return nil }

// A detailedTask is the result of tasks/get, and what listeners get.
//
// Spec: tasks extension, Task Polling.
type detailedTask struct {
	Description   description                 `json:",embed"`
	InputRequests map[string]mcp.InputRequest `json:"inputRequests,omitempty"`
	Result        stdjson.RawMessage          `json:"result,omitzero"`
	Error         *mcp.Error                  `json:"error,omitzero"`
}

// ResultType is "complete".
func (*detailedTask) ResultType() string { return mcp.ResultComplete }

// ResultMeta is nil.
func (*detailedTask) ResultMeta() mcp.Meta { return nil }

// seen returns as much of a task as detailed shows.
func (s *Server) seen(ctx context.Context, owner, id string) (*job, error) {
	j, err := s.glance(ctx, owner, id)
	if err != nil || j.Phase == phaseWorking {
		return j, err
	}
	return j.whole()
}

func (s *Server) detailed(j *job) *detailedTask {
	return &detailedTask{Description: s.describe(j), InputRequests: j.questions(), Result: j.Result, Error: j.Error}
}

// created returns the result that tells a client of its task, in its own form.
func (s *Server) created(req *mcp.Request, j *job) mcp.Result {
	if dialectOf(req) == dialect2025 {
		return s.created2025(j)
	}
	return createdTask{s.describe(j)}
}

// get serves tasks/get.
func (s *Server) get(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if dialectOf(req) == dialect2025 {
		return s.get2025(ctx, req)
	}
	if err := require(req); err != nil {
		return nil, err
	}
	p, err := parseTaskParams(req.Params)
	if err != nil {
		return nil, err
	}
	j, err := s.seen(ctx, req.Principal.Key(), p.ID)
	if err != nil {
		return nil, err
	}
	return s.detailed(j), nil
}

// update serves tasks/update.
//
// Spec: tasks extension, Task Update Requests.
func (s *Server) update(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if err := require(req); err != nil {
		return nil, err
	}
	p, err := parseTaskParams(req.Params)
	if err != nil {
		return nil, err
	}
	if p.Responses == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.inputResponses: want an object")
	}
	if err := s.answer(ctx, req.Principal.Key(), p.ID, p.Responses); err != nil {
		return nil, err
	}
	return mcp.EmptyResult{}, nil
}

// cancel serves tasks/cancel.
//
// Spec: tasks extension, Task Cancellation.
func (s *Server) cancel(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if dialectOf(req) == dialect2025 {
		return s.cancel2025(ctx, req)
	}
	if err := require(req); err != nil {
		return nil, err
	}
	p, err := parseTaskParams(req.Params)
	if err != nil {
		return nil, err
	}
	if _, _, err := s.callOff(ctx, req.Principal.Key(), p.ID); err != nil {
		return nil, err
	}
	return mcp.EmptyResult{}, nil
}

// callOff ends a task, for good. It gives the task as it is then, and whether it was this that ended it.
func (s *Server) callOff(ctx context.Context, owner, id string) (j *job, ended bool, err error) {
	if _, err = s.glance(ctx, owner, id); err != nil {
		return nil, false, err
	}
	j, err = s.change(ctx, owner, id, func(j *job, now time.Time) error {
		if ended = !j.Done; !ended {
			return errUnchanged
		}
		j.finish(now)
		j.Cancelled, j.Message = true, "cancelled by the client"
		return nil
	})
	if err != nil {
		return nil, false, public(err)
	}
	if j.Cancelled { // an earlier attempt may have been stored without saying so
		s.stop(id, mcp.ErrCancelled)
	}
	if ended {
		s.log.DebugContext(ctx, "tasks: cancelled", "task", short(id), "tool", j.Tool)
	}
	return j, ended, nil
}

// requestParams are the params of all requests that are about one task.
type requestParams struct {
	ID        string
	Responses answers // nil if there are none
}

func parseTaskParams(raw stdjson.RawMessage) (*requestParams, error) {
	var p struct {
		ID        *string            `json:"taskId"`
		Responses stdjson.RawMessage `json:"inputResponses"`
	}
	if err := json.Unmarshal(raw, &p); err != nil || p.ID == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.taskId: want a string")
	}
	out := &requestParams{ID: *p.ID}
	if p.Responses != nil {
		if !isObject(p.Responses) || json.Unmarshal(p.Responses, &out.Responses) != nil {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.inputResponses: want an object")
		}
	}
	return out, nil
}
