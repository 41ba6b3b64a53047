// Package task serves tasks in the form of the caller, for servers of either form. It sends
// requests through a [Sender], and does not know views, policies, pins and limits.
package task

import (
	"context"
	"fmt"
	"sync"

	"github.com/patchbay-mcp/patchbay/host/hosterr"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/lru"
	"github.com/patchbay-mcp/patchbay/internal/seal"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Methods of tasks. Spec: tasks extension; basic/utilities/tasks (2025-11-25).
const (
	MethodGet    = "tasks/get"
	MethodUpdate = "tasks/update"
	MethodCancel = "tasks/cancel"
	MethodResult = "tasks/result"
	MethodList   = "tasks/list"
)

// A Sender sends requests about tasks to a server, for a caller.
type Sender interface {
	// Info describes the server as it was last connected.
	Info() Server
	// Connect connects to the server, unless it was connected before.
	Connect(ctx context.Context, at Place) error
	// IsConnected reports whether a connection to the server exists.
	IsConnected() bool
	// Send sends a request. It returns the place that the request used.
	Send(ctx context.Context, req *mcp.Request, at Place) (mcp.Result, Place, error)
}

// A Place identifies the connection that serves requests about a task.
type Place struct {
	AnyClass bool     // the class is that of the request
	Class    string   // of the connection
	Instance string   // the id of the connection; empty for any
	Roots    []string // the keys of questions that the configuration answers
	Waiter   string   // identifies a request that outlives its caller's request; else empty
}

// A Publisher rewrites results of a server for the caller.
type Publisher interface {
	Result(server, method string, raw []byte) []byte
	Questions(server string, raw []byte) []byte
}

// A Table holds the tasks of all callers. It is safe for concurrent use.
type Table struct {
	Ring *seal.KeyRing
	Run  func(f func()) // runs f in a goroutine
	For  func(c *policy.Caller) *Caller

	mu     sync.Mutex // guards the fields below, and the waits
	waits  map[string]*taskWait
	kept   keptTasks
	issued lru.Map[string, lru.Map[Ref, known]] // by principal; see note
	byID   map[string]*known                    // the tasks of issued, by the ID for operators
}

// A Caller contains the tasks of a caller.
type Caller struct {
	*Table
	Ctx       context.Context // of waits; ends with the host
	Principal string
	Owner     *policy.Caller
	Senders   func() []Sender          // of the servers that the caller may use
	Sender    func(name string) Sender // nil for another server
	Publish   Publisher
}

func invalidTask(server, format string, args ...any) error {
	return &hosterr.Error{Code: hosterr.CodeInvalidResult, Server: server,
		Err: hosterr.Public{Err: fmt.Errorf(format, args...)}}
}

// Serve serves a request about a task.
func (c *Caller) Serve(ctx context.Context, req *mcp.Request, t *Task) (mcp.Result, error) {
	if t.Kept != "" {
		return c.serveKept(req, t)
	}
	if err := t.Connect(ctx, t.place()); err != nil {
		return nil, err
	}
	form, info := FormOf(req), t.Info()
	var raw mcp.RawResult
	var err error
	switch server := info.Form(); {
	case server == None:
		err = ErrUnknown // the server has changed
	case form == Extended && server == Extended:
		raw, err = c.passTask(ctx, req, t)
	case form == Extended:
		raw, err = c.extendTask(ctx, req, t)
	case req.Method == MethodResult && server == Session:
		raw, err = c.awaitTask(ctx, req, t)
	case req.Method == MethodResult:
		raw, err = c.followTask(ctx, req, t)
	default:
		raw, err = c.reduceTask(ctx, req, t)
	}
	if err != nil {
		return nil, err
	}
	return raw, nil
}

func (t *Task) place() Place { return Place{Class: t.Class, Instance: t.Instance} }

// about sends a request about a task to its server. members contains further members of params,
// each after a comma.
func (c *Caller) about(
	ctx context.Context, req *mcp.Request, t *Task, method string, members []byte,
) (mcp.RawResult, error) {
	inner := *req
	inner.Method, inner.HeaderParams = method, nil
	inner.Params = append(append(jsonscan.AppendQuote([]byte(`{"taskId":`), t.ID), members...), '}')
	res, _, err := t.Send(ctx, &inner, t.place())
	if err != nil {
		return nil, err
	}
	raw, ok := res.(mcp.RawResult)
	if !ok || !jsonscan.IsObject(raw) || raw.ResultType() != driver.ResultComplete {
		return nil, invalidTask(t.Server, "%s: the result is not a complete object", method)
	}
	if (method == MethodGet || method == MethodCancel) && jsonscan.Has(raw, "status") {
		c.note(t, raw, false)
	}
	return raw, nil
}

// passTask serves a method of the extension for a server of the extension.
func (c *Caller) passTask(ctx context.Context, req *mcp.Request, t *Task) (mcp.RawResult, error) {
	raw, err := c.about(ctx, req, t, req.Method, taskParams(req))
	if err != nil || req.Method != MethodGet {
		return raw, err
	}
	return c.Public(t, raw), nil
}

// taskParams returns the members of the params of a request, each after a comma, without the id and
// `_meta`.
func taskParams(req *mcp.Request) []byte {
	return jsonscan.AppendMembers(nil, req.Params, func(key string) bool { return key != "taskId" && key != "_meta" })
}

// Public returns a task of a server of the extension as callers of the extension know it.
func (c *Caller) Public(t *Task, raw []byte) mcp.RawResult {
	raw = jsonscan.WithMember(raw, "taskId", jsonscan.AppendQuote(nil, t.Handle))
	if result, ok := jsonscan.Get(raw, "result"); ok && jsonscan.IsObject(result) {
		raw = jsonscan.WithMember(raw, "result", c.Publish.Result(t.Server, "tools/call", result))
	}
	return c.Publish.Questions(t.Server, raw)
}

// reduceTask serves tasks/get and tasks/cancel of revision 2025-11-25.
func (c *Caller) reduceTask(ctx context.Context, req *mcp.Request, t *Task) (mcp.RawResult, error) {
	if info := t.Info(); info.Form() == Session {
		raw, err := c.about(ctx, req, t, req.Method, nil)
		if err != nil {
			return nil, err
		}
		raw = jsonscan.WithMember(raw, "taskId", jsonscan.AppendQuote(nil, t.Handle))
		return relate(raw, ""), nil
	}
	raw, err := c.about(ctx, req, t, MethodGet, nil)
	if err == nil && req.Method == MethodCancel {
		if status := jsonscan.GetString(raw, "status"); isFinal(status) {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "invalid params.taskId: the task is %s already", status)
		}
		if _, err = c.about(ctx, req, t, MethodCancel, nil); err == nil {
			raw, err = c.about(ctx, req, t, MethodGet, nil)
		}
	}
	if err != nil {
		return nil, err
	}
	return append(append([]byte(`{"resultType":"complete"`), sessionMembers(raw, t.Handle)...), '}'), nil
}

// sessionMembers are [taskMembers] of a task of the extension in the form of revision 2025-11-25.
func sessionMembers(task []byte, handle string) []byte {
	status := jsonscan.GetString(task, "status")
	if result, _ := jsonscan.Get(task, "result"); status == taskCompleted && isToolError(result) {
		status = taskFailed
	}
	b := taskMembers(task, Session, handle, status)
	if _, ok := jsonscan.Get(task, "ttlMs"); !ok {
		b = append(b, `,"ttl":null`...)
	}
	return b
}
