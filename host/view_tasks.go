package host

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/mcpint"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Methods of tasks. Spec: tasks extension; basic/utilities/tasks (2025-11-25).
const (
	methodTaskGet    = "tasks/get"
	methodTaskUpdate = "tasks/update"
	methodTaskCancel = "tasks/cancel"
	methodTaskResult = "tasks/result"
	methodTaskList   = "tasks/list"
)

// resultTask is the type of the result of a call that became a task.
const resultTask = "task"

// task serves a method of tasks, in the form of the caller.
func (v *View) task(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	form := taskFormOf(req)
	switch {
	case form == noTasks, form == extendedTasks && (req.Method == methodTaskResult || req.Method == methodTaskList),
		form == sessionTasks && req.Method == methodTaskUpdate:
		if isModern(req.Revision()) && form == noTasks {
			return nil, mcp.MissingClientCapability(json.RawMessage(`{"extensions":{"` + extensionTasks + `":{}}}`))
		}
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
	case req.Method == methodTaskList:
		return v.listTasks(ctx, req)
	}
	t, err := v.taskOf(req)
	if err == nil && v.caller.ReadOnly && changesTask(req) {
		err = errUnknownTask
	}
	if err != nil {
		return nil, v.refused(req, ActionOther, "", err)
	}
	return v.send(ctx, req, &route{kind: ActionOther, pool: t.pool, task: t,
		serve: func(ctx context.Context) (mcp.Result, error) { return v.serveTask(ctx, req, t, form) }})
}

// changesTask reports whether a request ends a task or answers its questions.
func changesTask(req *mcp.Request) bool {
	return req.Method == methodTaskUpdate || req.Method == methodTaskCancel ||
		jsonscan.Has(req.Params, "inputResponses")
}

func (v *View) serveTask(ctx context.Context, req *mcp.Request, t *task, form taskForm) (mcp.Result, error) {
	if t.Kept != "" {
		return v.host.kept.serve(v.caller.principal(), req, t)
	}
	if !t.pool.isKnown() {
		s, err := t.pool.acquireCall(ctx, t.Class, t.Instance)
		if err != nil {
			return nil, err
		}
		s.releaseCall(t.Instance)
	}
	var raw mcp.RawResult
	var err error
	switch server := t.pool.taskForm(); {
	case server == noTasks:
		err = errUnknownTask // the server has changed
	case form == extendedTasks && server == extendedTasks:
		raw, err = v.passTask(ctx, req, t)
	case form == extendedTasks:
		raw, err = v.extendTask(ctx, req, t)
	case req.Method == methodTaskResult && server == sessionTasks:
		raw, err = v.awaitTask(ctx, req, t)
	case req.Method == methodTaskResult:
		raw, err = v.followTask(ctx, req, t)
	default:
		raw, err = v.reduceTask(ctx, req, t)
	}
	if err != nil {
		return nil, err
	}
	return raw, nil
}

// about sends a request about a task to its server. The members of params are those besides the id,
// each after a comma.
func (v *View) about(
	ctx context.Context, req *mcp.Request, t *task, method string, members []byte,
) (mcp.RawResult, error) {
	inner := *req
	inner.Method, inner.HeaderParams = method, nil
	inner.Params = append(append(jsonscan.AppendQuote([]byte(`{"taskId":`), t.ID), members...), '}')
	c := previousRound{instance: t.Instance}
	_, res, _, err := t.pool.forward(ctx, &inner, t.Class, c, v.forwardOptions(req, t.pool))
	if err != nil {
		return nil, err
	}
	raw, ok := res.(mcp.RawResult)
	if !ok || !jsonscan.IsObject(raw) || raw.ResultType() != mcp.ResultComplete {
		return nil, t.pool.up.errorf(CodeInvalidResult, "%s: the result is not a complete object", method)
	}
	return raw, nil
}

// forwardOptions returns how a request about a task is forwarded: a server of the extension has to
// know that its client supports it.
func (v *View) forwardOptions(req *mcp.Request, p *pool) *mcpint.ForwardOptions {
	o := &mcpint.ForwardOptions{Principal: localPrincipal + v.caller.principal()}
	if p.taskForm() == extendedTasks && taskFormOf(req) == sessionTasks {
		o.Capabilities = withTasks(req, p)
	}
	return o
}

// withTasks returns the capabilities of the client of a request with the tasks extension.
func withTasks(req *mcp.Request, p *pool) json.RawMessage {
	capabilities := p.clientCapabilities(req)
	if capabilities == nil {
		var err error
		if capabilities, err = json.Marshal(req.Capabilities()); err != nil || !jsonscan.IsObject(capabilities) {
			capabilities = json.RawMessage("{}")
		}
	}
	extensions, _ := jsonscan.Get(capabilities, "extensions")
	if !jsonscan.IsObject(extensions) {
		extensions = []byte("{}")
	}
	extensions = jsonscan.WithMember(extensions, extensionTasks, []byte("{}"))
	return jsonscan.WithMember(capabilities, "extensions", extensions)
}

// passTask serves a method of the extension for a server of the extension.
func (v *View) passTask(ctx context.Context, req *mcp.Request, t *task) (mcp.RawResult, error) {
	raw, err := v.about(ctx, req, t, req.Method, taskParams(req))
	if err != nil || req.Method != methodTaskGet {
		return raw, err
	}
	return v.publicTask(t, raw), nil
}

// taskParams returns the members of the params of a request, each after a comma, without the id and
// `_meta`.
func taskParams(req *mcp.Request) (members []byte) {
	for key, value := range jsonscan.Members(req.Params) {
		if string(key) != "taskId" && string(key) != "_meta" {
			members = append(append(jsonscan.AppendQuote(append(members, ','), string(key)), ':'), value...)
		}
	}
	return members
}

// publicTask returns a task of a server of the extension as callers of the extension know it.
func (v *View) publicTask(t *task, raw []byte) mcp.RawResult {
	raw = jsonscan.WithMember(raw, "taskId", jsonscan.AppendQuote(nil, t.handle))
	if result, ok := jsonscan.Get(raw, "result"); ok && jsonscan.IsObject(result) {
		raw = jsonscan.WithMember(raw, "result", v.mapResult(t.pool, methodToolsCall, result))
	}
	return v.publicQuestions(raw, t.pool)
}

// mapResult returns a result of a server with the URIs that callers know.
func (v *View) mapResult(p *pool, method string, raw []byte) []byte {
	raw = withoutOwnMeta(raw)
	if m := v.latest(); m != nil {
		raw = m.catalogue.MapResult(p.up.name, method, raw)
	}
	v.note(p, raw)
	return raw
}

// reduceTask serves tasks/get and tasks/cancel of revision 2025-11-25.
func (v *View) reduceTask(ctx context.Context, req *mcp.Request, t *task) (mcp.RawResult, error) {
	if t.pool.taskForm() == sessionTasks {
		raw, err := v.about(ctx, req, t, req.Method, nil)
		if err != nil {
			return nil, err
		}
		raw = jsonscan.WithMember(raw, "taskId", jsonscan.AppendQuote(nil, t.handle))
		return relate(raw, ""), nil
	}
	raw, err := v.about(ctx, req, t, methodTaskGet, nil)
	if err == nil && req.Method == methodTaskCancel {
		if status := jsonscan.GetString(raw, "status"); isFinal(status) {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.taskId: the task is %s already", status)
		}
		if _, err = v.about(ctx, req, t, methodTaskCancel, nil); err == nil {
			raw, err = v.about(ctx, req, t, methodTaskGet, nil)
		}
	}
	if err != nil {
		return nil, err
	}
	return append(append([]byte(`{"resultType":"complete"`), sessionMembers(raw, t.handle)...), '}'), nil
}

// sessionMembers are [taskMembers] of a task of the extension in the form of revision 2025-11-25.
func sessionMembers(task []byte, handle string) []byte {
	status := jsonscan.GetString(task, "status")
	if result, _ := jsonscan.Get(task, "result"); status == taskCompleted && isToolError(result) {
		status = taskFailed
	}
	b := taskMembers(task, sessionTasks, handle, status)
	if _, ok := jsonscan.Get(task, "ttlMs"); !ok {
		b = append(b, `,"ttl":null`...)
	}
	return b
}

// A taskCall is a tools/call that may become a task.
type taskCall struct {
	view           *View
	caller, server taskForm
	wanted         bool // a caller of 2025-11-25 asks for a task
}

// taskCall returns how a tools/call becomes a task in the form of its server, and the request in that
// form. A call without tasks is nil.
func (v *View) taskCall(req *mcp.Request, r *route, o *mcpint.ForwardOptions) (*taskCall, *mcp.Request, error) {
	if r.kind != ActionCall {
		return nil, req, nil
	}
	server := r.pool.taskForm()
	if server == noTasks && !coreTasks(req.Revision()) {
		return nil, req, nil
	}
	c := &taskCall{view: v, caller: taskFormOf(req), server: server}
	support := taskSupport(r.definition())
	if !usable(c.caller, c.server, support) {
		if isModern(req.Revision()) {
			return nil, nil, mcp.MissingClientCapability([]byte(`{"extensions":{"` + extensionTasks + `":{}}}`))
		}
		return nil, nil, errUnknownTool(r)
	}
	if c.caller == sessionTasks {
		task, ok := req.Param("task")
		c.wanted = ok && jsonscan.IsObject(task)
	}
	inner := *req
	switch {
	case c.wanted && c.server == noTasks:
		return nil, nil, mcp.Errorf(mcp.CodeMethodNotFound,
			"this tool does not run as a task: call it without params.task")
	case c.wanted && c.server == extendedTasks:
		inner.Params = jsonscan.Without(req.Params, "task")
		o.Capabilities = withTasks(req, r.pool)
	case c.caller == extendedTasks && c.server == sessionTasks && support != "" && support != "forbidden":
		inner.Params = jsonscan.WithMember(req.Params, "task", []byte("{}"))
	case c.caller != sessionTasks && hasMember(req.Params, "task"): // it has no meaning for this caller
		inner.Params = jsonscan.Without(req.Params, "task")
	}
	return c, &inner, nil
}

// usable reports whether a caller can call a tool with this taskSupport.
func usable(caller, server taskForm, support string) bool {
	return server != sessionTasks || support != supportRequired || caller != noTasks
}

func errUnknownTool(r *route) error {
	return mcp.Errorf(mcp.CodeInvalidParams,
		"unknown tool %q: it runs as a task only, which the client does not support", r.target)
}

// result returns what the caller receives for the result of a call. ok is false if that is not
// related to tasks.
func (c *taskCall) result(
	r *route, s *start, class string, res mcp.Result,
) (out mcp.Result, ok bool, err error) {
	raw, isRaw := res.(mcp.RawResult)
	if c == nil || !isRaw {
		return nil, false, nil
	}
	if raw.ResultType() != resultTask {
		return nil, false, nil
	}
	id := r.taskID()
	id.Class = class
	if s.in.calls {
		id.Instance = s.id
	}
	out, err = c.created(r.pool, id, raw)
	return out, true, err
}

// keep returns the task that a caller of 2025-11-25 has asked for, if a server of the extension has responded at
// once: with the result that the policy and the limits leave. Other results are unchanged.
func (v *View) keep(req *mcp.Request, r *route, res mcp.Result) (mcp.Result, error) {
	raw, ok := res.(mcp.RawResult)
	if !ok || r.kind != ActionCall || taskFormOf(req) != sessionTasks || r.pool.taskForm() != extendedTasks {
		return res, nil
	}
	if task, _ := req.Param("task"); !jsonscan.IsObject(task) || raw.ResultType() != mcp.ResultComplete {
		return res, nil
	}
	return v.keepResult(req, r, raw)
}

// taskID returns the part of the id of a task that says which tool was called.
func (r *route) taskID() taskID {
	id := taskID{Tool: r.target}
	if r.item != nil {
		id.Digest = digestText(r.item)
	}
	return id
}

// created returns the result of a call that became a task.
func (c *taskCall) created(p *pool, id taskID, raw mcp.RawResult) (mcp.Result, error) {
	made := []byte(raw)
	if c.server == sessionTasks {
		made, _ = jsonscan.Get(raw, "task")
	}
	id.ID = jsonscan.GetString(made, "taskId")
	if c.server == noTasks || c.caller == noTasks || id.ID == "" || c.caller == sessionTasks && !c.wanted {
		return nil, &Error{Code: CodeInvalidResult, Server: p.up.name, MayHaveRun: true,
			Err: errors.New("the result is a task that was not asked for, or has no id")}
	}
	t, err := c.view.newTask(p, id)
	if err != nil {
		return nil, err
	}
	if c.view.listsTasks(p) {
		c.view.host.issued.add(c.view.principal, t.taskID)
	}
	switch {
	case c.caller == extendedTasks && c.server == extendedTasks:
		return c.view.publicTask(t, raw), nil
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
