package host

import (
	"context"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/host/internal/call"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/host/internal/result"
	"github.com/patchbay-mcp/patchbay/host/internal/routes"
	"github.com/patchbay-mcp/patchbay/host/internal/task"
	"github.com/patchbay-mcp/patchbay/host/internal/upstream"
	"github.com/patchbay-mcp/patchbay/host/policy"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A taskPool is the pool of a server for the tasks of a view.
type taskPool struct {
	view *View
	pool *upstream.Pool
}

func (v *View) newTasks() *task.Caller {
	return &task.Caller{Table: &v.host.tasks, Ctx: upstream.WithCaller(v.host.ctx, v.caller),
		Principal: v.caller.Key(), Owner: v.caller, Publish: taskView{v},
		Senders: func() (all []task.Sender) {
			for _, s := range v.table.Servers().All {
				all = append(all, taskPool{v, serverPool(s)})
			}
			return all
		},
		Sender: func(name string) task.Sender {
			if p := v.poolNamed(name); p != nil {
				return taskPool{v, p}
			}
			return nil
		}}
}

func (t taskPool) Info() task.Server { return routes.TaskServer(t.pool) }

func (t taskPool) IsConnected() bool {
	_, ok := t.pool.Server().Connected()[t.pool]
	return ok
}

func (t taskPool) Connect(ctx context.Context, at task.Place) error {
	if t.Info().Revision != "" {
		return nil
	}
	s, err := t.pool.AcquireCall(ctx, at.Class, at.Instance)
	if err != nil {
		return err
	}
	s.ReleaseCall(at.Instance)
	return nil
}

func (t taskPool) Send(ctx context.Context, req *mcp.Request, at task.Place) (mcp.Result, task.Place, error) {
	if at.AnyClass {
		at = task.Place{Class: t.pool.Class(req)}
	}
	o := &driver.ForwardOptions{Principal: t.view.principal, Caller: at.Waiter}
	if info := t.Info(); info.Form() == task.Extended && task.FormOf(req) == task.Session {
		o.Capabilities = t.pool.DeclareTasks(req) // the server must know that its client supports tasks
	}
	s, res, roots, err := t.pool.Forward(ctx, req, at.Class, upstream.Earlier{Conn: at.Instance, Roots: at.Roots}, o)
	if s != nil {
		at.Instance, at.Roots = s.ID(), roots
	}
	return res, at, err
}

// A taskView publishes results for the caller of a view.
type taskView struct{ *View }

func (v taskView) Result(server, method string, raw []byte) []byte {
	return v.publish(server, v.poolNamed(server), method, raw)
}

func (v taskView) Questions(server string, raw []byte) []byte {
	if v.table.Servers().Single {
		server = ""
	}
	return result.PublicQuestions(raw, server)
}

// task serves a method of tasks, in the form of the caller.
func (v *View) task(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	form := task.FormOf(req)
	switch {
	case form == task.None, form == task.Extended && (req.Method == task.MethodResult || req.Method == task.MethodList),
		form == task.Session && req.Method == task.MethodUpdate:
		if task.IsModern(req.Revision()) && form == task.None {
			return nil, driver.MissingClientCapability(json.RawMessage(`{"extensions":{"` + task.Extension + `":{}}}`))
		}
		return nil, mcp.Errorf(mcp.CodeMethodNotFound, "method not found: %s", req.Method)
	case req.Method == task.MethodList:
		return v.listTasks(ctx, req)
	}
	var p *upstream.Pool
	t, err := v.tasks.Named(req)
	if err == nil {
		if p = v.poolNamed(t.Server); p == nil { // removed meanwhile
			err = task.ErrUnknown
		}
	}
	if err == nil && v.caller.ReadOnly && changesTask(req) {
		err = task.ErrUnknown
	}
	if err != nil {
		return nil, v.refused(req, policy.ActionOther, "", err)
	}
	return v.send(ctx, req, &call.Call{Kind: policy.ActionOther, Pool: p, About: aboutTask(t),
		Local: func(ctx context.Context) (mcp.Result, error) { return v.tasks.Serve(ctx, req, t) }})
}

// listTasks serves tasks/list.
func (v *View) listTasks(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return v.tasks.List(req, &task.Listing{Cursors: v.table.Cursors(req), Decide: v.decideTask,
		Send: func(server string, req *mcp.Request, serve task.Serve) (mcp.Result, error) {
			p := v.poolNamed(server)
			if p == nil {
				return nil, task.ErrUnknown
			}
			return v.send(ctx, req, &call.Call{Kind: policy.ActionOther, Pool: p, Local: serve})
		},
		Failed: func(server string, err error) {
			v.host.opts.Logger.DebugContext(ctx, "host: tasks not listed", "server", server, "error", err)
		}})
}

// aboutTask returns the task of a call; t may be nil.
func aboutTask(t *task.Task) *call.Task {
	if t == nil {
		return nil
	}
	return &call.Task{Server: t.Server, Tool: t.Tool, Digest: t.Digest}
}

// changesTask reports whether a request ends a task or answers its questions.
func changesTask(req *mcp.Request) bool {
	return req.Method == task.MethodUpdate || req.Method == task.MethodCancel ||
		jsonscan.Has(req.Params, "inputResponses")
}

// resultAction returns the action about the result of a request. If the request concerns a task,
// the action names the tool that created the task, with the tool's definition unless the definition
// changed since.
func (v *View) resultAction(ctx context.Context, a *policy.Action, t *call.Task) *policy.Action {
	if t == nil {
		return a
	}
	about := *a
	about.Target, about.Definition, about.Digest = t.Tool, nil, [32]byte{}
	m := v.table.Latest()
	if m == nil { // after a restart
		m, _ = v.table.Current(ctx) // if this fails, the definition is unknown
	}
	if m != nil && t.Tool != "" {
		item := m.Catalogue.Original(catalogue.Tools, t.Server, t.Tool)
		if item != nil && task.DigestText(item) == t.Digest {
			about.Definition, about.Digest = item.Raw, item.Digest
		}
	}
	return &about
}
