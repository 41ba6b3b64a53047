package host

import (
	"context"
	"fmt"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/seal"
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

// A taskSender sends requests about tasks to one server, for one caller.
type taskSender interface {
	// server describes the server as it was last connected.
	server() taskServer
	// connect connects to the server, unless it was connected before.
	connect(ctx context.Context, at taskPlace) error
	// send sends a request. It returns the place that the request has used.
	send(ctx context.Context, req *mcp.Request, at taskPlace) (mcp.Result, taskPlace, error)
}

// A taskPlace identifies the connection that serves requests about a task.
type taskPlace struct {
	anyClass bool     // the class is that of the request
	class    string   // of the connection
	instance string   // the id of the connection; empty for any
	roots    []string // the keys of questions that the configuration answers
	waiter   string   // identifies a request that outlives its caller's request; else empty
}

// A taskPublisher returns results of a server as the caller knows them.
type taskPublisher interface {
	result(server, method string, raw []byte) []byte
	questions(server string, raw []byte) []byte
}

// A taskTable holds the tasks of all callers. It is safe for concurrent use.
type taskTable struct {
	ring   *seal.KeyRing
	run    func(f func()) // runs f in a goroutine
	waits  taskWaits
	kept   keptTasks
	issued issuedTasks
}

// callerTasks are the tasks of one caller.
type callerTasks struct {
	*taskTable
	ctx       context.Context // of waits; ends with the host
	principal string
	senders   func() []taskSender          // of the servers that the caller may use
	sender    func(name string) taskSender // nil for another server
	publish   taskPublisher
}

func invalidTask(server, format string, args ...any) error {
	return &Error{Code: CodeInvalidResult, Server: server, Err: hosterr.Public{Err: fmt.Errorf(format, args...)}}
}

// serve serves a request about a task.
func (c *callerTasks) serve(ctx context.Context, req *mcp.Request, t *task) (mcp.Result, error) {
	if t.Kept != "" {
		return c.kept.serve(c.principal, req, t)
	}
	if err := t.connect(ctx, t.place()); err != nil {
		return nil, err
	}
	form, info := taskFormOf(req), t.server()
	var raw mcp.RawResult
	var err error
	switch server := info.form(); {
	case server == noTasks:
		err = errUnknownTask // the server has changed
	case form == extendedTasks && server == extendedTasks:
		raw, err = c.passTask(ctx, req, t)
	case form == extendedTasks:
		raw, err = c.extendTask(ctx, req, t)
	case req.Method == methodTaskResult && server == sessionTasks:
		raw, err = c.awaitTask(ctx, req, t)
	case req.Method == methodTaskResult:
		raw, err = c.followTask(ctx, req, t)
	default:
		raw, err = c.reduceTask(ctx, req, t)
	}
	if err != nil {
		return nil, err
	}
	return raw, nil
}

func (t *task) place() taskPlace { return taskPlace{class: t.Class, instance: t.Instance} }

// about sends a request about a task to its server. The members of params are those besides the id,
// each after a comma.
func (*callerTasks) about(
	ctx context.Context, req *mcp.Request, t *task, method string, members []byte,
) (mcp.RawResult, error) {
	inner := *req
	inner.Method, inner.HeaderParams = method, nil
	inner.Params = append(append(jsonscan.AppendQuote([]byte(`{"taskId":`), t.ID), members...), '}')
	res, _, err := t.send(ctx, &inner, t.place())
	if err != nil {
		return nil, err
	}
	raw, ok := res.(mcp.RawResult)
	if !ok || !jsonscan.IsObject(raw) || raw.ResultType() != mcp.ResultComplete {
		return nil, invalidTask(t.Server, "%s: the result is not a complete object", method)
	}
	return raw, nil
}

// passTask serves a method of the extension for a server of the extension.
func (c *callerTasks) passTask(ctx context.Context, req *mcp.Request, t *task) (mcp.RawResult, error) {
	raw, err := c.about(ctx, req, t, req.Method, taskParams(req))
	if err != nil || req.Method != methodTaskGet {
		return raw, err
	}
	return c.publicTask(t, raw), nil
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
func (c *callerTasks) publicTask(t *task, raw []byte) mcp.RawResult {
	raw = jsonscan.WithMember(raw, "taskId", jsonscan.AppendQuote(nil, t.handle))
	if result, ok := jsonscan.Get(raw, "result"); ok && jsonscan.IsObject(result) {
		raw = jsonscan.WithMember(raw, "result", c.publish.result(t.Server, methodToolsCall, result))
	}
	return c.publish.questions(t.Server, raw)
}

// reduceTask serves tasks/get and tasks/cancel of revision 2025-11-25.
func (c *callerTasks) reduceTask(ctx context.Context, req *mcp.Request, t *task) (mcp.RawResult, error) {
	if info := t.server(); info.form() == sessionTasks {
		raw, err := c.about(ctx, req, t, req.Method, nil)
		if err != nil {
			return nil, err
		}
		raw = jsonscan.WithMember(raw, "taskId", jsonscan.AppendQuote(nil, t.handle))
		return relate(raw, ""), nil
	}
	raw, err := c.about(ctx, req, t, methodTaskGet, nil)
	if err == nil && req.Method == methodTaskCancel {
		if status := jsonscan.GetString(raw, "status"); isFinal(status) {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.taskId: the task is %s already", status)
		}
		if _, err = c.about(ctx, req, t, methodTaskCancel, nil); err == nil {
			raw, err = c.about(ctx, req, t, methodTaskGet, nil)
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
