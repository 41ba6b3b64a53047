package tasks

import (
	"context"
	"encoding/base64"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// revision2025 is the one revision whose core has tasks. All of them in this file are its own: statuses, shapes and methods
// are made of the state of a task, never of the extension's.
const revision2025 = "2025-11-25"

const (
	// pageOfTasks is the number of tasks in one answer to tasks/list.
	pageOfTasks = 100
	// leastTTL is the shortest time to live that a client gets.
	leastTTL = time.Second
)

// Words of tool execution. Spec: schema ToolExecution (2025-11-25).
const (
	taskOptional = "optional"
	taskRequired = "required"
)

// calling2025 reads what a client wants of a call. The server tells that it has tasks if any tool runs as one; otherwise
// the client's word counts for nothing.
//
// Spec: basic/utilities/tasks (2025-11-25), Task Support and Handling.
func (m *Manager) calling2025(req *mcp.Request) (*calling, error) {
	c := &calling{request: req, refusal: mcp.Errorf(mcp.CodeMethodNotFound,
		"this tool runs as a task only: call it with params.task")}
	var p struct {
		Name string             `json:"name"`
		Task stdjson.RawMessage `json:"task"`
	}
	if err := json.Unmarshal(req.Params, &p); err != nil || p.Task == nil || !m.offers() {
		return c, nil // params that are none are for the core to refuse
	}
	var task struct {
		TTL *float64 `json:"ttl"`
	}
	if !isObject(p.Task) || json.Unmarshal(p.Task, &task) != nil || task.TTL != nil && *task.TTL < 0 {
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "params.task: want an object whose ttl is a number of milliseconds")
	}
	c.takes, c.wants = true, true
	if task.TTL != nil {
		ms := min(*task.TTL, float64(maxTTL.Milliseconds()))
		c.ttl = max(time.Duration(ms)*time.Millisecond, leastTTL)
	}
	if c.offer = m.offered(p.Name); c.offer == nil {
		return nil, errNoTask
	}
	return c, nil
}

// errNoTask refuses to run a tool as a task that does not.
//
// Spec: basic/utilities/tasks (2025-11-25), Tool-Level Negotiation.
var errNoTask = mcp.Errorf(mcp.CodeMethodNotFound, "there is no such tool that runs as a task: call it without params.task")

// unreached returns the error of a call that became no task. A tool that the caller must not see is answered as one that runs
// as no task: nobody learns that it is there.
func (c *calling) unreached(err error) error {
	var fault *mcp.Error
	if c.wants && c.tool.Load() == nil && errors.As(err, &fault) && fault.Code == mcp.CodeInvalidParams {
		return errNoTask
	}
	return err
}

// errNoTasks refuses a tool that runs as a task only to a client whose revision has none.
func errNoTasks(req *mcp.Request) *mcp.Error {
	return mcp.Errorf(mcp.CodeInvalidRequest,
		"this tool runs as a task only, which takes protocol revision %s or later, not %s", revision2025, req.Revision())
}

// discovered adds to what a server says of itself.
//
// Spec: basic/utilities/tasks (2025-11-25), Capabilities.
func (m *Manager) discovered(req *mcp.Request, res mcp.Result) mcp.Result {
	d, ok := res.(*mcp.DiscoverResult)
	if !ok || dialectOf(req) != dialect2025 || !m.offers() {
		return res
	}
	out := *d
	out.Capabilities.Tasks = stdjson.RawMessage(`{"cancel":{},"requests":{"tools":{"call":{}}}}`)
	if req.Principal != nil {
		out.Capabilities.Tasks = stdjson.RawMessage(`{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`)
	}
	return &out
}

// listed adds to a list of tools how each runs as a task. Clients whose revision has no tasks do not see those that do
// nothing else.
func (m *Manager) listed(req *mcp.Request, res mcp.Result) mcp.Result {
	l, ok := res.(*mcp.ListToolsResult)
	in := dialectOf(req)
	if !ok || in == dialectExtension {
		return res
	}
	out := *l
	out.Tools = make([]*mcp.Tool, 0, len(l.Tools))
	for _, t := range l.Tools {
		o := m.offered(t.Name)
		switch {
		case o == nil:
		case in == dialectNone && o.Required:
			continue
		case in == dialect2025:
			copied := *t
			support := taskOptional
			if o.Required {
				support = taskRequired
			}
			copied.Execution = stdjson.RawMessage(`{"taskSupport":"` + support + `"}`)
			t = &copied
		}
		out.Tools = append(out.Tools, t)
	}
	return &out
}

// A task2025 is a task as the revision shows it.
//
// Spec: basic/utilities/tasks (2025-11-25), Task.
type task2025 struct {
	ID      string `json:"taskId"`
	Status  Status `json:"status"`
	Message string `json:"statusMessage,omitzero"`
	Created string `json:"createdAt"`
	Updated string `json:"lastUpdatedAt"`
	TTL     int64  `json:"ttl"`
	Poll    int64  `json:"pollInterval"`
}

// status2025 gives the task's status in this revision, where the failure of a tool makes its task fail.
//
// Spec: basic/utilities/tasks (2025-11-25), Task Status.
func (j *job) status2025() Status {
	switch {
	case j.Phase == phaseWorking:
		return StatusWorking
	case j.Phase == phaseWaiting:
		return StatusInputRequired
	case j.Cancelled:
		return StatusCancelled
	case j.Failed || j.IsError:
		return StatusFailed
	}
	return StatusCompleted
}

func (m *Manager) describe2025(j *job) task2025 {
	message, updated := m.latest(j)
	if j.IsError && message == "" {
		message = "the tool failed"
	}
	return task2025{
		ID: j.ID, Status: j.status2025(), Message: message,
		Created: j.Created.UTC().Format(timeFormat), Updated: updated.UTC().Format(timeFormat),
		TTL: j.TTL, Poll: j.Poll,
	}
}

// A created2025 is the result of a call that became a task.
type created2025 struct {
	Task task2025 `json:"task"`
}

// ResultType is "task".
func (created2025) ResultType() string { return "task" }

// ResultMeta is nil.
func (created2025) ResultMeta() mcp.Meta { return nil }

func (m *Manager) created2025(j *job) mcp.Result { return created2025{m.describe2025(j)} }

// A got2025 is the result of tasks/get and tasks/cancel.
type got2025 struct {
	Task task2025 `json:",embed"`
}

// ResultType is "complete".
func (got2025) ResultType() string { return mcp.ResultComplete }

// ResultMeta is nil.
func (got2025) ResultMeta() mcp.Meta { return nil }

func (m *Manager) get2025(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	p, err := parseTaskParams(req.Params)
	if err != nil {
		return nil, err
	}
	j, err := m.glance(ctx, req.Principal.Key(), p.ID)
	if err != nil {
		return nil, err
	}
	return got2025{m.describe2025(j)}, nil
}

func (m *Manager) cancel2025(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	p, err := parseTaskParams(req.Params)
	if err != nil {
		return nil, err
	}
	j, ended, err := m.callOff(ctx, req.Principal.Key(), p.ID)
	switch {
	case err != nil:
		return nil, err
	case !ended:
		return nil, mcp.Errorf(mcp.CodeInvalidParams, "the task cannot be cancelled: it is %s", j.status2025())
	}
	return got2025{m.describe2025(j)}, nil
}

// A list2025 is the result of tasks/list.
type list2025 struct {
	Tasks []task2025 `json:"tasks"`
	Next  string     `json:"nextCursor,omitzero"`
}

// ResultType is "complete".
func (list2025) ResultType() string { return mcp.ResultComplete }

// ResultMeta is nil.
func (list2025) ResultMeta() mcp.Meta { return nil }

// list serves tasks/list, to callers that are known: all others would see each other's tasks.
//
// Spec: basic/utilities/tasks (2025-11-25), Task Isolation and Access Control.
func (m *Manager) list(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	if dialectOf(req) != dialect2025 || req.Principal == nil {
		return nil, errNoMethod(req)
	}
	after, err := parseCursor2025(req.Params)
	if err != nil {
		return nil, err
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	records, err := m.store.List(ctx, req.Principal.Key(), after, pageOfTasks+1)
	if err != nil {
		return nil, err
	}
	page := list2025{Tasks: []task2025{}}
	more := len(records) > pageOfTasks
	if records = records[:min(len(records), pageOfTasks)]; len(records) > 0 {
		last := records[len(records)-1]
		if !more { // those that are large come in shorter lists
			behind, err := m.store.List(ctx, last.Owner, Cursor{Created: last.Created, ID: last.ID}, 1)
			if err != nil {
				return nil, err
			}
			more = len(behind) > 0
		}
		if more {
			page.Next = base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d.%s", last.Created.UnixMilli(), last.ID))
		}
	}
	for _, r := range records {
		j, err := openHead(r)
		switch {
		case err != nil:
			m.log.ErrorContext(ctx, "tasks: a task cannot be read, and is not listed", "task", short(r.ID), "error", err)
			continue
		case j.expired(time.Now()):
			if j, err = m.glance(ctx, r.Owner, r.ID); err != nil {
				continue // it is gone
			}
		}
		page.Tasks = append(page.Tasks, m.describe2025(j))
	}
	return page, nil
}

func parseCursor2025(params stdjson.RawMessage) (c Cursor, err error) {
	bad := mcp.Errorf(mcp.CodeInvalidParams, "params.cursor: want one that tasks/list gave")
	var p struct {
		Cursor *string `json:"cursor"`
	}
	if json.Unmarshal(params, &p) != nil {
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
