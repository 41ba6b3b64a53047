package host

import (
	"context"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/mcpint"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A taskPool is the pool of a server for the tasks of a view.
type taskPool struct {
	view *View
	pool *pool
}

func (v *View) newTasks() *callerTasks {
	return &callerTasks{taskTable: &v.host.tasks, ctx: context.WithValue(v.host.ctx, callerKey{}, v.caller),
		principal: v.caller.Key(), publish: taskView{v},
		senders: func() (all []taskSender) {
			for _, p := range v.pools() {
				all = append(all, taskPool{v, p})
			}
			return all
		},
		sender: func(name string) taskSender {
			if p := v.poolNamed(name); p != nil {
				return taskPool{v, p}
			}
			return nil
		}}
}

func (t taskPool) server() taskServer { return t.pool.taskServer() }

func (t taskPool) connect(ctx context.Context, at taskPlace) error {
	if t.server().revision != "" {
		return nil
	}
	s, err := t.pool.acquireCall(ctx, at.class, at.instance)
	if err != nil {
		return err
	}
	s.releaseCall(at.instance)
	return nil
}

func (t taskPool) send(ctx context.Context, req *mcp.Request, at taskPlace) (mcp.Result, taskPlace, error) {
	if at.anyClass {
		at = taskPlace{class: t.pool.class(req)}
	}
	o := &mcpint.ForwardOptions{Principal: t.view.principal, Caller: at.waiter}
	if info := t.server(); info.form() == extendedTasks && taskFormOf(req) == sessionTasks {
		o.Capabilities = withTasks(req, t.pool) // the server has to know that its client supports tasks
	}
	s, res, roots, err := t.pool.forward(ctx, req, at.class, previousRound{instance: at.instance, roots: at.roots}, o)
	if s != nil {
		at.instance, at.roots = s.ID(), roots
	}
	return res, at, err
}

// taskServer describes the server as it was last connected.
func (p *pool) taskServer() taskServer {
	about := p.lists.About()
	return taskServer{p.up.name, about.Revision, about.Capabilities, p.up.share() == config.ShareShared}
}

func (p *pool) taskForm() taskForm {
	s := p.taskServer()
	return s.form()
}

// A taskView publishes results for the caller of a view.
type taskView struct{ *View }

func (v taskView) result(server, method string, raw []byte) []byte {
	raw = withoutOwnMeta(raw)
	if m := v.latest(); m != nil {
		raw = m.catalogue.MapResult(server, method, raw)
	}
	if p := v.poolNamed(server); p != nil {
		v.note(p, raw)
	}
	return raw
}

func (v taskView) questions(server string, raw []byte) []byte { return v.publicQuestions(raw, server) }

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
	var p *pool
	t, err := v.tasks.named(req)
	if err == nil {
		if p = v.poolNamed(t.Server); p == nil { // removed meanwhile
			err = errUnknownTask
		}
	}
	if err == nil && v.caller.ReadOnly && changesTask(req) {
		err = errUnknownTask
	}
	if err != nil {
		return nil, v.refused(req, ActionOther, "", err)
	}
	return v.send(ctx, req, &call{kind: ActionOther, pool: p, task: t,
		local: func(ctx context.Context) (mcp.Result, error) { return v.tasks.serve(ctx, req, t) }})
}

// listTasks serves tasks/list.
func (v *View) listTasks(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
	return v.tasks.list(req, &taskListing{cursors: v.listCursors(req), decide: v.decideTask,
		send: func(server string, req *mcp.Request, serve taskServe) (mcp.Result, error) {
			p := v.poolNamed(server)
			if p == nil {
				return nil, errUnknownTask
			}
			return v.send(ctx, req, &call{kind: ActionOther, pool: p, local: serve})
		},
		failed: func(server string, err error) {
			v.host.opts.Logger.DebugContext(ctx, "host: tasks not listed", "server", server, "error", err)
		}})
}

// changesTask reports whether a request ends a task or answers its questions.
func changesTask(req *mcp.Request) bool {
	return req.Method == methodTaskUpdate || req.Method == methodTaskCancel ||
		jsonscan.Has(req.Params, "inputResponses")
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

// beginTask declares the task that the caller asks for, or translates it to the form of the server.
func (h *Host) beginTask(next next) next {
	return func(ctx context.Context, c *call) (mcp.Result, error) {
		if c.kind != ActionCall || c.local != nil {
			return next(ctx, c)
		}
		p := c.pool
		if st, continues, err := c.continues(); err != nil {
			return nil, err
		} else if continues {
			if suspended := h.suspendedPool(st.Server, st.Instance); suspended != nil {
				p = suspended
			}
		}
		server := p.taskServer()
		begun, req, err := c.view.tasks.begin(c.request, &server, c.target, c.item)
		if err != nil {
			return nil, err
		}
		c.taskCall, c.sent = begun, req
		return next(ctx, c)
	}
}

// taskResult returns the caller's form of a result that created a task.
func (h *Host) taskResult(_ context.Context, c *call, res mcp.Result, failed error) (mcp.Result, error) {
	if failed != nil || c.taskCall == nil || c.served.conn == nil {
		return res, failed
	}
	at := taskPlace{class: c.served.round.Class}
	if c.served.conn.in.calls {
		at.instance = c.served.conn.ID()
	}
	out, ok, err := c.taskCall.result(taskPool{c.view, c.pool}, at, res)
	if !ok {
		return res, failed
	}
	c.served.conn = nil // the result is complete
	return out, err
}

// keepTask returns the task that a caller of 2025-11-25 has asked for, if a server of the extension has responded
// at once: with the result that the policy and the limits leave. Other results are unchanged.
func (h *Host) keepTask(_ context.Context, c *call, res mcp.Result, failed error) (mcp.Result, error) {
	if failed != nil || c.kind != ActionCall || taskFormOf(c.request) != sessionTasks {
		return res, failed
	}
	s := c.pool.taskServer()
	if !keepsTask(c.request, &s, res) {
		return res, nil
	}
	return c.view.tasks.keep(c.request, s.name, toolID(c.target, c.item), res.(mcp.RawResult))
}

// resultAction returns the action about the result of a request. If the request is about a task, the action
// names the tool that was called, with the tool's definition unless the definition has changed.
func (v *View) resultAction(ctx context.Context, a *Action, t *task) *Action {
	if t == nil {
		return a
	}
	about := *a
	about.Target, about.Definition, about.Digest = t.Tool, nil, [32]byte{}
	m := v.latest()
	if m == nil { // after a restart
		m, _ = v.current(ctx) // if this fails, the definition is unknown
	}
	if m != nil && t.Tool != "" {
		item := m.catalogue.Original(catalogue.Tools, t.Server, t.Tool)
		if item != nil && digestText(item) == t.Digest {
			about.Definition, about.Digest = item.Raw, item.Digest
		}
	}
	return &about
}
