package tasks

import (
	"context"
	"encoding/json"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// serverExtension is the tasks extension, which every revision after 2025-11-25 can carry.
type serverExtension struct{ serverNone }

// capability is the extension as clients declare it, in the error for clients that did not.
var capability = json.RawMessage(`{"extensions":{"` + ID + `":{}}}`)

// declared reports whether the client of a request declared the extension. Spec: tasks extension,
// Capability Negotiation.
func declared(req *mcp.Request) bool {
	return isObject(req.Capabilities().Extensions[ID])
}

func (serverExtension) call(req *mcp.Request) (*pendingCall, error) {
	refusal := driver.MissingClientCapability(capability)
	return &pendingCall{request: req, canBeTask: declared(req), refusal: refusal}, nil
}

func (serverExtension) listTools(res *mcp.ListToolsResult) *mcp.ListToolsResult { return res }

// taskFields are the members of a task in both forms, which use different names for the times.
// Spec: tasks extension, Tasks; basic/utilities/tasks (2025-11-25), Task.
type taskFields struct {
	ID       string `json:"taskId"`
	Status   Status `json:"status"`
	Message  string `json:"statusMessage,omitzero"`
	Created  string `json:"createdAt"`
	Updated  string `json:"lastUpdatedAt"`
	TTL      int64  `json:"ttlMs,omitzero"`
	Poll     int64  `json:"pollIntervalMs,omitzero"`
	TTL2025  int64  `json:"ttl,omitzero"`
	Poll2025 int64  `json:"pollInterval,omitzero"`
}

// timeFormat is ISO 8601, in UTC and with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z"

// status returns the task's status in the extension, where a tool result with IsError completes the
// task. Spec: tasks extension, Task Status.
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

func (f serverExtension) fields(j *job) taskFields {
	t := f.server.fields(j)
	t.Status, t.TTL, t.Poll = j.status(), j.TTL, j.Poll
	return t
}

// fields returns the members with the same name in both forms, without the status.
func (s *Server) fields(j *job) taskFields {
	message, updated := s.latest(j)
	return taskFields{ID: j.ID, Message: message, Created: j.Created.UTC().Format(timeFormat),
		Updated: updated.UTC().Format(timeFormat)}
}

// latest returns a task's status message and the time of its last change, with the progress of its
// run, which is not stored.
func (s *Server) latest(j *job) (message string, updated time.Time) {
	message, updated = j.Message, time.UnixMilli(j.Updated)
	if j.Phase != phaseWorking {
		return message, updated
	}
	s.mu.Lock()
	r := s.runs[j.ID]
	queued := r != nil && r.queued != nil
	s.mu.Unlock()
	if queued {
		return "queued", updated
	}
	if r != nil {
		if p := r.lastProgress(); p.count > 0 {
			return p.text(), p.at
		}
	}
	return message, updated
}

// A createdTask is the result of a call that became a task.
type createdTask struct {
	mcp.EmptyResult `json:"-"`
	Fields          *taskFields `json:",embed"`
	Task            *taskFields `json:"task,omitzero"` // as in revision 2025-11-25
}

func (createdTask) ResultType() string { return resultTask }

func (f serverExtension) created(j *job) mcp.Result { return createdTask{Fields: new(f.fields(j))} }

// A detailedTask is the result of tasks/get, and the params of notifications/tasks.
type detailedTask struct {
	mcp.EmptyResult `json:"-"`
	Fields          taskFields                  `json:",embed"`
	InputRequests   map[string]mcp.InputRequest `json:"inputRequests,omitempty"`
	Result          json.RawMessage             `json:"result,omitzero"`
	Error           *mcp.Error                  `json:"error,omitzero"`
}

func (f serverExtension) detailed(ctx context.Context, owner, id string) (*detailedTask, error) {
	j, err := f.server.readHead(ctx, owner, id)
	if err == nil && j.Phase != phaseWorking {
		j, err = j.full()
	}
	if err != nil {
		return nil, err
	}
	return &detailedTask{Fields: f.fields(j), InputRequests: j.inputRequests(), Result: j.Result, Error: j.Error}, nil
}

// serve serves the requests about a task. Their client must declare the extension. Spec: tasks
// extension, Task Polling, Task Update Requests, Task Cancellation.
func (f serverExtension) serve(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if req.Method == methodResult || req.Method == methodList {
		return nil, errNoMethod(req)
	}
	if !declared(req) {
		return nil, driver.MissingClientCapability(capability)
	}
	p, err := parseTaskParams(req.Params)
	if err != nil {
		return nil, err
	}
	owner := req.Principal.Key()
	switch req.Method {
	case methodGet:
		t, err := f.detailed(ctx, owner, p.ID)
		if err != nil {
			return nil, err
		}
		return t, nil
	case methodUpdate:
		if p.Responses == nil {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.inputResponses: want an object")
		}
		err = f.server.respond(ctx, owner, p.ID, p.Responses)
	case methodCancel:
		_, _, err = f.server.cancelTask(ctx, owner, p.ID)
	}
	return mcp.EmptyResult{}, err
}

type requestParams struct {
	ID        string
	Responses inputResponses // nil if the member is missing
}

func parseTaskParams(raw json.RawMessage) (*requestParams, error) {
	var p struct {
		ID        *string         `json:"taskId"`
		Responses json.RawMessage `json:"inputResponses"`
	}
	if err := jsonv2.Unmarshal(raw, &p); err != nil || p.ID == nil {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.taskId: want a string")
	}
	out := &requestParams{ID: *p.ID}
	if p.Responses != nil {
		if !isObject(p.Responses) || jsonv2.Unmarshal(p.Responses, &out.Responses) != nil {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.inputResponses: want an object")
		}
	}
	return out, nil
}
