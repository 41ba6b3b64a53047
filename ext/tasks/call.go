package tasks

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

func (s *Server) middleware(next mcp.Handler) mcp.Handler {
	return mcp.HandlerFunc(func(ctx context.Context, req *mcp.Request) (mcp.Result, error) {
		if req.Method == methodCall {
			return s.call(ctx, req, next)
		}
		res, err := next.ServeMCP(ctx, req)
		switch r := res.(type) {
		case *mcp.ListToolsResult:
			res = s.form(req).listTools(r)
		case *mcp.DiscoverResult:
			res = s.form(req).discover(req, r)
		}
		return res, err
	})
}

// call serves a tools/call, which becomes a task if its handler begins a task.
func (s *Server) call(ctx context.Context, req *mcp.Request, next mcp.Handler) (mcp.Result, error) {
	if req.Detached() != nil {
		return next.ServeMCP(ctx, req)
	}
	form := s.form(req)
	c, err := form.call(req)
	if err != nil {
		return nil, err
	}
	c.form = form
	var quota *reservation
	if c.mustBeTask { // reserved before the handler acts, since the result must be stored in any case
		if quota, err = s.reserve(ctx, req); err != nil {
			return nil, err
		}
		defer quota.release()
	}
	res, err := next.ServeMCP(context.WithValue(ctx, pendingCallKey{}, c), req)
	if err == nil && res.ResultType() == driver.ResultInputRequired {
		return res, nil // questions that were asked before Begin
	}
	switch {
	case c.begun.Load():
		if quota == nil {
			if quota, err = s.reserve(ctx, req); err != nil {
				return nil, err
			}
			defer quota.release()
		}
		return s.create(ctx, c, quota)
	case err != nil:
		return nil, c.errNotReached(err)
	case c.mustBeTask:
		return s.createDone(ctx, c, quota, res)
	}
	return res, nil
}

// create makes a task of a call and starts it. It returns the result for the call. Spec: tasks
// extension, Task Creation.
func (s *Server) create(ctx context.Context, c *pendingCall, quota *reservation) (mcp.Result, error) {
	if err := s.join(ctx); err != nil {
		return nil, err
	}
	j := newJob(ctx, c)
	r := s.newRun(j.Owner, j.ID)
	if r == nil {
		return nil, errShutdown
	}
	j.Holder = r.holder
	if r.running {
		j.Started, r.job = true, j
	}
	if err := s.storeNew(ctx, j, quota); err != nil {
		s.endRun(r)
		if errors.Is(err, errTooLarge) {
			return nil, mcp.Errorf(mcp.CodeInvalidParams, "params: too large for a task")
		}
		return nil, err
	}
	created := *j // the run changes j
	s.startRun(r)
	s.log.DebugContext(ctx, "tasks: created", "task", short(j.ID), "tool", j.Tool)
	return c.form.created(&created), nil
}

// storeNew stores a new task, unless its call ended: the client would never learn the id.
func (s *Server) storeNew(ctx context.Context, j *job, quota *reservation) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	rec, err := j.encode()
	if err != nil {
		return err
	}
	storeCtx, cancel := storeContext(ctx)
	defer cancel()
	s.creating.RLock()
	err = s.store.Create(storeCtx, rec)
	quota.release()
	s.creating.RUnlock()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		s.discard(ctx, j.Owner, j.ID) // the store may contain it in spite of the error
		return err
	}
	j.Done, j.Expires, j.Version = rec.Done, rec.Expires, 1
	s.deadlines.update(j)
	s.saw(j.ID, j.Version)
	return nil
}

// discard deletes a task whose id no client knows. If the store fails, sweep tries again.
func (s *Server) discard(ctx context.Context, owner, id string) {
	ctx, cancel := storeContext(ctx)
	defer cancel()
	if err := s.store.Delete(ctx, owner, id); err != nil {
		s.log.ErrorContext(ctx, "tasks: a discarded task could not be deleted and is deleted later", "task",
			short(id), "error", err)
		s.deadlines.add(owner, id, time.Now().Add(sweepInterval), true)
	}
}

// createDone makes a task of a call whose result exists already, for a client that asked for a
// task. Spec: basic/utilities/tasks (2025-11-25), Creating Tasks.
func (s *Server) createDone(ctx context.Context, c *pendingCall, quota *reservation, res mcp.Result) (mcp.Result,
	error) {
	handler := mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return res, nil })
	response := mcp.Driver(handler).Respond(ctx, c.request)
	if response.Error != nil {
		return nil, response.Error
	}
	j := newJob(ctx, c)
	created := *j // a task is created with the status working
	j.finish(j.Created)
	j.Result, j.IsError = response.Result, isToolError(response.Result)
	if err := s.storeNew(ctx, j, quota); err != nil {
		return nil, err
	}
	return c.form.created(&created), nil
}

func newJob(ctx context.Context, c *pendingCall) *job {
	t, req := c.tool.Load(), c.request
	if t == nil {
		t = c.requested // the handler was not reached
	}
	var before mcp.Detached // the questions of the call that were answered before it became a task
	call := req.Detach(ctx, &before)
	ttl := t.TTL
	if c.ttl > 0 {
		ttl = min(ttl, c.ttl)
	}
	now := time.Now().Truncate(time.Millisecond)
	j := &job{Record: Record{Owner: req.Principal.Key(), ID: rand.Text(), Created: now}, needsHeadroom: true}
	j.state = state{
		Format: recordFormat, Tool: t.name, Caller: ownerOf(req.Principal), Phase: phaseWorking,
		Updated: now.UnixMilli(), TTL: max(ttl.Milliseconds(), 1), Poll: max(t.PollInterval.Milliseconds(), 1),
		Params: call.Params, Memory: before.State, Answers: before.Responses,
	}
	return j
}

// cancelTask ends a task for good. It returns the task, and whether this call ended it.
func (s *Server) cancelTask(ctx context.Context, owner, id string) (j *job, ended bool, err error) {
	if _, err = s.readHead(ctx, owner, id); err != nil {
		return nil, false, err
	}
	j, err = s.change(ctx, owner, id, func(j *job, now time.Time) error {
		if ended = !j.Done; !ended {
			return errUnchanged
		}
		j.finish(now)
		j.Cancelled, j.Message = true, "cancelled by the client"
		return nil
	})
	if err != nil {
		return nil, false, clientError(err)
	}
	if j.Cancelled { // also if an earlier attempt was stored although the store returned an error
		s.stopRun(id, mcp.ErrCancelled)
	}
	if ended {
		s.log.DebugContext(ctx, "tasks: cancelled", "task", short(id), "tool", j.Tool)
	}
	return j, ended, nil
}
