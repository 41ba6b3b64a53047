package tasks

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// middleware stands around what the server does.
func (m *Manager) middleware(next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		switch req.Method {
		case "tools/call":
			return m.call(ctx, req, next)
		case "tools/list":
			res, err := next.ServeMCP(ctx, req)
			return m.listed(req, res), err
		case "server/discover":
			res, err := next.ServeMCP(ctx, req)
			return m.discovered(req, res), err
		}
		return next.ServeMCP(ctx, req)
	})
}

// call serves a tools/call, which becomes a task if its handler begins one.
func (m *Manager) call(ctx context.Context, req *mcp.Request, next mcp.Handler) (mcp.Result, error) {
	if req.Detached() != nil {
		return next.ServeMCP(ctx, req)
	}
	c, err := m.calling(req)
	if err != nil {
		return nil, err
	}
	res, err := next.ServeMCP(context.WithValue(ctx, callingKey{}, c), req)
	if err == nil && res.ResultType() == mcp.ResultInputRequired {
		return res, nil // the call's own questions come first
	}
	switch {
	case c.begun.Load():
		return m.create(ctx, c)
	case err != nil:
		return nil, c.unreached(err)
	case c.wants && c.tool.Load() != nil:
		return m.createDone(ctx, c, res)
	}
	return res, nil
}

// calling says what a client can take for an answer to its call.
func (m *Manager) calling(req *mcp.Request) (*calling, error) {
	switch dialectOf(req) {
	case dialectExtension:
		return &calling{request: req, takes: declared(req), refusal: mcp.MissingCapability(capability)}, nil
	case dialect2025:
		return m.calling2025(req)
	}
	return &calling{request: req, refusal: errNoTasks(req)}, nil
}

// create makes a task of a call, and the result that tells the client of it.
//
// Spec: tasks extension, Task Creation.
func (m *Manager) create(ctx context.Context, c *calling) (mcp.Result, error) {
	o, req := c.tool.Load(), c.request
	release, err := m.reserve(ctx, req.Principal.Key())
	if err != nil {
		return nil, err
	}
	defer release()
	j := newJob(ctx, c)
	r := m.admit(j.Owner, j.ID)
	if r == nil {
		return nil, errBusy("the server is shutting down")
	}
	if r.slot {
		j.Started, r.job = true, j
	}
	rec, err := j.seal()
	if err != nil {
		m.dismiss(r)
		if errors.Is(err, errTooLarge) {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: too large for a task")
		}
		return nil, err
	}
	j.Expires = rec.Expires
	storing, cancel := detached(ctx)
	defer cancel()
	if err := m.store.Create(storing, rec); err != nil {
		m.dismiss(r)
		// It may be there all the same, and nobody would know its id.
		_ = m.store.Delete(storing, j.Owner, j.ID)
		return nil, err
	}
	j.Version = 1
	m.deadlines.set(j)
	told := *j // as it is now: the run goes on with j
	m.launch(r)
	m.log.DebugContext(ctx, "tasks: created", "task", short(j.ID), "tool", o.name)
	return m.created(req, &told), nil
}

// createDone makes a task of a call that is finished already, for a client that asked for a task and expects one.
//
// Spec: basic/utilities/tasks (2025-11-25), Creating Tasks.
func (m *Manager) createDone(ctx context.Context, c *calling, res mcp.Result) (mcp.Result, error) {
	given := mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return res, nil })
	result, fault := mcp.AppendResult(nil, ctx, given, c.request)
	if fault != nil {
		return nil, fault
	}
	release, err := m.reserve(ctx, c.request.Principal.Key())
	if err != nil {
		return nil, err
	}
	defer release()
	j := newJob(ctx, c)
	told := *j // every task begins as one that works
	j.finish(j.Created)
	j.Result, j.IsError = result, isToolError(result)
	rec, err := j.seal()
	if err != nil {
		return nil, err
	}
	j.Done, j.Expires = true, rec.Expires
	storing, cancel := detached(ctx)
	defer cancel()
	if err := m.store.Create(storing, rec); err != nil {
		return nil, err
	}
	m.deadlines.set(j)
	return m.created(c.request, &told), nil
}

// newJob gives the job of a call that was not stored yet.
func newJob(ctx context.Context, c *calling) *job {
	o, req := c.tool.Load(), c.request
	var so mcp.Detached // what the call was answered so far
	call := req.Detach(ctx, &so)
	ttl := o.TTL
	if c.ttl > 0 {
		ttl = min(ttl, c.ttl)
	}
	now := time.Now().Truncate(time.Millisecond)
	j := &job{Record: Record{Owner: req.Principal.Key(), ID: rand.Text(), Created: now}}
	j.state = state{
		Format: recordFormat, Tool: o.name, Caller: ownerOf(req.Principal), Phase: phaseWorking,
		Updated: now.UnixMilli(), TTL: max(ttl.Milliseconds(), 1), Poll: max(o.PollInterval.Milliseconds(), 1),
		Params: call.Params, Memory: so.State, Answers: so.Responses,
	}
	return j
}

// reserve makes sure that the owner may have one more task. What it gives is to be called once the task is stored or given up.
func (m *Manager) reserve(ctx context.Context, owner string) (release func(), err error) {
	m.mu.Lock()
	m.reserved[owner]++
	m.reservedAll++
	own, all := m.reserved[owner], m.reservedAll
	m.mu.Unlock()
	release = func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.reservedAll--
		if m.reserved[owner]--; m.reserved[owner] == 0 {
			delete(m.reserved, owner)
		}
	}
	ctx, cancel := detached(ctx)
	defer cancel()
	err = m.room(ctx, owner, own, all)
	var full *mcp.Error
	if errors.As(err, &full) {
		if _, expiredErr := m.store.DeleteExpired(ctx, time.Now(), maxDelete); expiredErr == nil {
			err = m.room(ctx, owner, own, all)
		}
	}
	if err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// room reports whether there is room for so many more tasks of the owner, and of all owners.
func (m *Manager) room(ctx context.Context, owner string, own, all int) error {
	n, err := m.store.Count(ctx, owner, false)
	if err != nil {
		return err
	}
	if n+own > m.opts.MaxPerPrincipal {
		return errBusy("too many tasks: wait until some have expired")
	}
	if n, err = m.store.Count(ctx, "", true); err != nil {
		return err
	}
	if n+all > m.opts.MaxTasks {
		return errBusy("the server has too many tasks")
	}
	return nil
}
