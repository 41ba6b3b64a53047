package tasks

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// revision2025 is the only revision whose core protocol contains tasks. Its statuses, shapes and
// methods differ from the extension: both are derived from the stored task, never from each other.
const revision2025 = "2025-11-25"

const (
	// tasksPerPage is the number of tasks in a result of tasks/list.
	tasksPerPage = 100
	// minTTL is the shortest time to live that a client can ask for.
	minTTL = time.Second
)

// The values of taskSupport. Spec: schema ToolExecution (2025-11-25).
const (
	supportOptional = "optional"
	supportRequired = "required"
)

// server2025 is the tasks of revision 2025-11-25: the client decides which calls become tasks.
type server2025 struct{ serverNone }

// call reads params.task. It is ignored if no tool runs as a task, since the server does not
// declare tasks then. Spec: basic/utilities/tasks (2025-11-25), Task Support and Handling.
func (f server2025) call(req *mcp.Request) (*pendingCall, error) {
	c := &pendingCall{request: req, refusal: mcp.Errorf(mcp.CodeMethodNotFound,
		"this tool runs as a task only: call it with params.task")}
	var p struct {
		Name string          `json:"name"`
		Task json.RawMessage `json:"task"`
	}
	if err := jsonv2.Unmarshal(req.Params, &p); err != nil || p.Task == nil || !f.server.hasTools() {
		return c, nil // package mcp refuses invalid params
	}
	var task struct {
		TTL *float64 `json:"ttl"`
	}
	if !isObject(p.Task) || jsonv2.Unmarshal(p.Task, &task) != nil || task.TTL != nil && *task.TTL < 0 {
		return nil, mcp.Errorf(mcp.CodeInvalidParams,
			"params.task: want an object whose ttl is a number of milliseconds")
	}
	c.canBeTask, c.mustBeTask = true, true
	if task.TTL != nil {
		ms := min(*task.TTL, float64(maxTTL.Milliseconds()))
		c.ttl = max(time.Duration(ms)*time.Millisecond, minTTL)
	}
	if c.requested = f.server.tool(p.Name); c.requested == nil {
		return nil, errNotATask
	}
	return c, nil
}

var errNotATask = mcp.Errorf(mcp.CodeMethodNotFound,
	"unknown tool, or not one that runs as a task: call it without params.task")

// errNotReached returns the error of a call that became no task. A tool that is hidden from the
// caller gets the same error as a tool that does not run as a task, so that the error does not
// reveal that the tool exists.
func (c *pendingCall) errNotReached(err error) error {
	var fault *mcp.Error
	if c.mustBeTask && c.tool.Load() == nil && errors.As(err, &fault) && fault.Code == mcp.CodeInvalidParams {
		return errNotATask
	}
	return err
}

// Spec: basic/utilities/tasks (2025-11-25), Capabilities.
func (f server2025) discover(req *mcp.Request, res *mcp.DiscoverResult) *mcp.DiscoverResult {
	if !f.server.hasTools() {
		return res
	}
	out := *res
	out.Capabilities.Tasks = json.RawMessage(`{"cancel":{},"requests":{"tools":{"call":{}}}}`)
	if req.Principal != nil {
		out.Capabilities.Tasks = json.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)
	}
	return &out
}

func (f server2025) listTools(res *mcp.ListToolsResult) *mcp.ListToolsResult {
	out := *res
	out.Tools = make([]*mcp.Tool, 0, len(res.Tools))
	for _, t := range res.Tools {
		if tool := f.server.tool(t.Name); tool != nil {
			withSupport := *t
			support := supportOptional
			if tool.Required {
				support = supportRequired
			}
			withSupport.Execution = json.RawMessage(`{"taskSupport":"` + support + `"}`)
			t = &withSupport
		}
		out.Tools = append(out.Tools, t)
	}
	return &out
}

// status2025 returns the task's status in this revision, where a tool result with IsError fails the
// task. Spec: basic/utilities/tasks (2025-11-25), Task Status.
func (j *job) status2025() Status {
	if s := j.status(); s != StatusCompleted || !j.IsError {
		return s
	}
	return StatusFailed
}

func (f server2025) task(j *job) *taskFields {
	t := f.server.fields(j)
	t.Status, t.TTL2025, t.Poll2025 = j.status2025(), j.TTL, j.Poll
	if j.IsError {
		t.Message = cmp.Or(t.Message, "the tool failed")
	}
	return &t
}

func (f server2025) created(j *job) mcp.Result { return createdTask{Task: f.task(j)} }

// Spec: basic/utilities/tasks (2025-11-25), Protocol Messages.
func (f server2025) serve(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	switch req.Method {
	case methodUpdate:
		return nil, errNoMethod(req)
	case methodList:
		return f.list(ctx, req)
	}
	p, err := parseTaskParams(req.Params)
	if err != nil {
		return nil, err
	}
	var j *job
	owner, ended := req.Principal.Key(), true
	switch req.Method {
	case methodResult:
		return f.result(ctx, req, p)
	case methodGet:
		j, err = f.server.readHead(ctx, owner, p.ID)
	case methodCancel:
		j, ended, err = f.server.cancelTask(ctx, owner, p.ID)
	}
	switch {
	case err != nil:
		return nil, err
	case !ended:
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "the task cannot be cancelled: it is %s", j.status2025())
	}
	return detailedTask{Fields: *f.task(j)}, nil
}

// A taskList2025 is the result of tasks/list.
type taskList2025 struct {
	mcp.EmptyResult `json:"-"`
	Tasks           []*taskFields `json:"tasks"`
	Next            string        `json:"nextCursor,omitzero"`
}

// list serves tasks/list to authenticated callers. The others share an owner, and would see each
// other's tasks. Spec: basic/utilities/tasks (2025-11-25), Task Isolation and Access Control.
func (f server2025) list(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if req.Principal == nil {
		return nil, errNoMethod(req)
	}
	after, err := parseCursor2025(req.Params)
	if err != nil {
		return nil, err
	}
	s := f.server
	ctx, cancel := storeContext(ctx)
	defer cancel()
	records, err := s.store.List(ctx, req.Principal.Key(), after, tasksPerPage+1)
	if err != nil {
		return nil, err
	}
	page := taskList2025{Tasks: []*taskFields{}}
	more := len(records) > tasksPerPage
	if records = records[:min(len(records), tasksPerPage)]; len(records) > 0 {
		last := records[len(records)-1]
		if !more { // the store returns fewer records than asked for if they are large
			following, err := s.store.List(ctx, last.Owner, Cursor{Created: last.Created, ID: last.ID}, 1)
			if err != nil {
				return nil, err
			}
			more = len(following) > 0
		}
		if more {
			page.Next = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s", last.Created.UnixMilli(),
				last.ID))
		}
	}
	for _, r := range records {
		j, err := openHead(r)
		switch {
		case err != nil:
			s.log.ErrorContext(ctx, "tasks: a task cannot be read and is not listed", "task", short(r.ID), "error", err)
			continue
		case j.expired(time.Now()):
			if j, err = s.readHead(ctx, r.Owner, r.ID); err != nil {
				continue // deleted
			}
		}
		page.Tasks = append(page.Tasks, f.task(j))
	}
	return page, nil
}

func parseCursor2025(params json.RawMessage) (c Cursor, err error) {
	bad := mcp.Errorf(mcp.CodeInvalidParams, "params.cursor: want a nextCursor of tasks/list")
	var p struct {
		Cursor *string `json:"cursor"`
	}
	if jsonv2.Unmarshal(params, &p) != nil {
		return c, bad
	}
	if p.Cursor == nil {
		return c, nil
	}
	text, err := base64.RawURLEncoding.Strict().DecodeString(*p.Cursor)
	if err != nil {
		return c, bad
	}
	at, id, ok := strings.Cut(string(text), ".")
	ms, err := strconv.ParseInt(at, 10, 64)
	if err != nil || !ok || !validID(id) {
		return c, bad
	}
	return Cursor{Created: time.UnixMilli(ms), ID: id}, nil
}
