package host

import (
	"crypto/rand"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A taskCall is a tools/call that may become a task.
type taskCall struct {
	tasks          *callerTasks
	caller, server taskForm
	wanted         bool   // a caller of 2025-11-25 asks for a task
	declares       bool   // the server must know that its client supports the extension
	id             taskID // identifies the tool
}

// begin returns how a tools/call becomes a task in the form of its server, and the request in that
// form. It returns nil for a call without tasks. definition may be nil.
func (c *callerTasks) begin(
	req *mcp.Request, s *taskServer, tool string, definition *catalogue.Item,
) (*taskCall, *mcp.Request, error) {
	server := s.form()
	if server == noTasks && !coreTasks(req.Revision()) {
		return nil, req, nil
	}
	call := &taskCall{tasks: c, caller: taskFormOf(req), server: server, id: toolID(tool, definition)}
	support := ""
	if definition != nil {
		support = taskSupport(definition.Raw)
	}
	if !usable(call.caller, call.server, support) {
		if isModern(req.Revision()) {
			return nil, nil, mcp.MissingClientCapability([]byte(`{"extensions":{"` + extensionTasks + `":{}}}`))
		}
		return nil, nil, errUnknownTool(tool)
	}
	if call.caller == sessionTasks {
		task, ok := req.Param("task")
		call.wanted = ok && jsonscan.IsObject(task)
	}
	inner := *req
	switch {
	case call.wanted && call.server == noTasks:
		return nil, nil, mcp.Errorf(mcp.CodeMethodNotFound,
			"this tool does not run as a task: call it without params.task")
	case call.wanted && call.server == extendedTasks:
		inner.Params = jsonscan.Without(req.Params, "task")
		call.declares = true
	case call.caller == extendedTasks && call.server == sessionTasks && support != "" && support != "forbidden":
		inner.Params = jsonscan.WithMember(req.Params, "task", []byte("{}"))
	case call.caller != sessionTasks && hasMember(req.Params, "task"): // it has no meaning for this caller
		inner.Params = jsonscan.Without(req.Params, "task")
	}
	return call, &inner, nil
}

// usable reports whether a caller can call a tool with this taskSupport.
func usable(caller, server taskForm, support string) bool {
	return server != sessionTasks || support != supportRequired || caller != noTasks
}

func errUnknownTool(tool string) error {
	return mcp.Errorf(mcp.CodeInvalidParams,
		"unknown tool %q: it runs as a task only, which the client does not support", tool)
}

// result returns the result of a call that became a task, as the caller receives it. ok is false if the result
// is not related to tasks.
func (c *taskCall) result(s taskSender, at taskPlace, res mcp.Result) (out mcp.Result, ok bool, err error) {
	raw, isRaw := res.(mcp.RawResult)
	if c == nil || !isRaw || raw.ResultType() != resultTask {
		return nil, false, nil
	}
	id := c.id
	id.Class, id.Instance = at.class, at.instance
	out, err = c.created(s, s.server(), id, raw)
	return out, true, err
}

// keepsTask reports whether a caller of 2025-11-25 has asked for a task, and a server of the extension has responded
// at once.
func keepsTask(req *mcp.Request, s *taskServer, res mcp.Result) bool {
	raw, ok := res.(mcp.RawResult)
	if !ok || s.form() != extendedTasks {
		return false
	}
	task, _ := req.Param("task")
	return jsonscan.IsObject(task) && raw.ResultType() == mcp.ResultComplete
}

// toolID returns the part of the id of a task that identifies its tool.
func toolID(tool string, definition *catalogue.Item) taskID {
	id := taskID{Tool: tool}
	if definition != nil {
		id.Digest = digestText(definition)
	}
	return id
}

// keep keeps a result and returns that of a call that became a task.
func (c *callerTasks) keep(req *mcp.Request, server string, id taskID, raw mcp.RawResult) (mcp.Result, error) {
	k := &keptTask{id: rand.Text(), principal: c.principal, created: time.Now(), ttl: keptTTL,
		result: slices.Clone(raw)}
	task, _ := req.Param("task")
	ttl, _ := jsonscan.Get(task, "ttl")
	if ms, err := strconv.ParseFloat(string(ttl), 64); err == nil && ms >= 0 {
		k.ttl = time.Duration(math.Min(ms, float64(keptTTL.Milliseconds()))) * time.Millisecond
		k.ttl = max(k.ttl, minKeptTTL)
	}
	id.Kept = k.id
	kept, err := c.newTask(c.sender(server), server, id)
	if err != nil {
		return nil, err
	}
	k.handle = kept.handle
	c.kept.add(k)
	b := append([]byte(`{"resultType":"task","task":{`), k.members(taskWorking)[1:]...) // tasks begin so
	return mcp.RawResult(append(b, "}}"...)), nil
}

// created returns the result of a call that became a task.
func (c *taskCall) created(s taskSender, server taskServer, id taskID, raw mcp.RawResult) (mcp.Result, error) {
	made := []byte(raw)
	if c.server == sessionTasks {
		made, _ = jsonscan.Get(raw, "task")
	}
	id.ID = jsonscan.GetString(made, "taskId")
	if c.server == noTasks || c.caller == noTasks || id.ID == "" || c.caller == sessionTasks && !c.wanted {
		return nil, &Error{Code: CodeInvalidResult, Server: server.name, MayHaveRun: true,
			Err: errors.New("the result is a task that was not asked for, or has no id")}
	}
	t, err := c.tasks.newTask(s, server.name, id)
	if err != nil {
		return nil, err
	}
	if server.lists() {
		c.tasks.issued.add(c.tasks.principal, t.taskID)
	}
	switch {
	case c.caller == extendedTasks && c.server == extendedTasks:
		return c.tasks.publicTask(t, raw), nil
	case c.caller == extendedTasks:
		status := jsonscan.GetString(made, "status")
		b := append([]byte(`{"resultType":"task"`), extendedMembers(made, t.handle, status)...)
		return mcp.RawResult(append(b, '}')), nil
	case c.server == extendedTasks:
		b := append([]byte(`{"resultType":"task","task":{`), sessionMembers(made, t.handle)[1:]...)
		return mcp.RawResult(append(b, "}}"...)), nil
	}
	made = jsonscan.WithMember(made, "taskId", jsonscan.AppendQuote(nil, t.handle))
	return mcp.RawResult(relate(jsonscan.WithMember(raw, "task", made), "")), nil
}

// extendedMembers are [taskMembers] in the form of the extension, whose ttlMs is required.
func extendedMembers(task []byte, handle, status string) []byte {
	b := taskMembers(task, extendedTasks, handle, status)
	if _, ok := jsonscan.Get(task, "ttl"); !ok {
		b = append(b, `,"ttlMs":null`...)
	}
	return b
}
