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
	var place *reservation
	if c.wants { // whatever the handler does, a task tells of it: there is no room for that afterwards
		if place, err = m.reserve(ctx, req); err != nil {
			return nil, err
		}
		defer place.release()
	}
	res, err := next.ServeMCP(context.WithValue(ctx, callingKey{}, c), req)
	if err == nil && res.ResultType() == mcp.ResultInputRequired {
		return res, nil // the call's own questions come first
	}
	switch {
	case c.begun.Load():
		if place == nil {
			if place, err = m.reserve(ctx, req); err != nil {
				return nil, err
			}
			defer place.release()
		}
		return m.create(ctx, c, place)
	case err != nil:
		return nil, c.unreached(err)
	case c.wants:
		return m.createDone(ctx, c, place, res)
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
func (m *Manager) create(ctx context.Context, c *calling, place *reservation) (mcp.Result, error) {
	j := newJob(ctx, c)
	r := m.admit(j.Owner, j.ID)
	if r == nil {
		return nil, errBusy("the server is shutting down")
	}
	if r.slot {
		j.Started, r.job = true, j
	}
	if err := m.storeNew(ctx, j, place); err != nil {
		m.dismiss(r)
		if errors.Is(err, errTooLarge) {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: too large for a task")
		}
		return nil, err
	}
	told := *j // as it is now: the run goes on with j
	m.launch(r)
	m.log.DebugContext(ctx, "tasks: created", "task", short(j.ID), "tool", j.Tool)
	return m.created(c.request, &told), nil
}

// storeNew stores a new task, if its client still waits for the answer: else nobody would ever know its id.
func (m *Manager) storeNew(ctx context.Context, j *job, place *reservation) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rec, err := j.seal()
	if err != nil {
		return err
	}
	storing, cancel := detached(ctx)
	defer cancel()
	m.storing.RLock()
	err = m.store.Create(storing, rec)
	place.release()
	m.storing.RUnlock()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		m.abandon(ctx, j.Owner, j.ID) // it may be there all the same
		return err
	}
	j.Done, j.Expires, j.Version = rec.Done, rec.Expires, 1
	m.deadlines.set(j)
	return nil
}

// abandon deletes a task that nobody may know. If the store cannot do that now, the sweep does it.
func (m *Manager) abandon(ctx context.Context, owner, id string) {
	ctx, cancel := detached(ctx)
	defer cancel()
	if err := m.store.Delete(ctx, owner, id); err != nil {
		m.log.ErrorContext(ctx, "tasks: a task that was given up could not be deleted, and will be", "task", short(id), "error", err)
		m.deadlines.abandon(owner, id, time.Now().Add(sweepEvery))
	}
}

// createDone makes a task of a call that is finished already, for a client that asked for a task and expects one.
//
// Spec: basic/utilities/tasks (2025-11-25), Creating Tasks.
func (m *Manager) createDone(ctx context.Context, c *calling, place *reservation, res mcp.Result) (mcp.Result, error) {
	given := mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return res, nil })
	answer := mcp.Answer(ctx, given, c.request)
	if answer.Error != nil {
		return nil, answer.Error
	}
	result := answer.Result
	j := newJob(ctx, c)
	told := *j // every task begins as one that works
	j.finish(j.Created)
	j.Result, j.IsError = result, isToolError(result)
	if err := m.storeNew(ctx, j, place); err != nil {
		return nil, err
	}
	return m.created(c.request, &told), nil
}

// newJob returns the job of a call that was not stored yet.
func newJob(ctx context.Context, c *calling) *job {
	o, req := c.tool.Load(), c.request
	if o == nil {
		o = c.offer // whose handler was not reached
	}
	var so mcp.Detached // what the call was answered so far
	call := req.Detach(ctx, &so)
	ttl := o.TTL
	if c.ttl > 0 {
		ttl = min(ttl, c.ttl)
	}
	now := time.Now().Truncate(time.Millisecond)
	j := &job{Record: Record{Owner: req.Principal.Key(), ID: rand.Text(), Created: now}, grown: true}
	j.state = state{
		Format: recordFormat, Tool: o.name, Caller: ownerOf(req.Principal), Phase: phaseWorking,
		Updated: now.UnixMilli(), TTL: max(ttl.Milliseconds(), 1), Poll: max(o.PollInterval.Milliseconds(), 1),
		Params: call.Params, Memory: so.State, Answers: so.Responses,
	}
	return j
}
