package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxRestarts is how often a run is repeated that the end of a process cut off: it may be what ends the process.
const maxRestarts = 5

// errCutOff is the error of a task whose run was cut off.
var errCutOff = mcp.Errorf(mcp.CodeInternalError,
	"the server was restarted while the task ran, and its tool does not say that it may run again")

// errNoTool is the error of a task whose tool is gone.
func errNoTool(tool string) *mcp.Error {
	return mcp.Errorf(mcp.CodeInternalError, "the server does not offer the tool %q as a task any more", tool)
}

// Recover takes up the tasks that an earlier process left in the store. Those that wait for answers go on waiting. Those
// that had not begun to run do so now. A run that was cut off begins anew if its tool says that it may
// ([ToolOptions.Restartable]); otherwise the task has failed, with an error that says so.
//
// Call it once, after the tools are registered and before the server serves. Records that cannot be read are logged and left
// as they are; the error is one of the store.
func (s *Server) Recover(ctx context.Context) error {
	working, err := s.unfinished(ctx)
	if err != nil {
		return fmt.Errorf("tasks: recover: %w", err)
	}
	for _, r := range working {
		err := s.adopt(ctx, r.Owner, r.ID)
		switch {
		case err == nil, errors.Is(err, errUnknownTask):
		case ctx.Err() != nil:
			return fmt.Errorf("tasks: recover: %w", context.Cause(ctx))
		default: // who asks for it takes it up
			s.log.ErrorContext(ctx, "tasks: a task could not be taken up", "task", short(r.ID), "error", err)
		}
	}
	s.deadlines.cleanLater(time.Now())
	return nil
}

// unfinished takes up the deadlines of all unfinished tasks, and gives those that are working, without their Data. A store
// may be unable to change a record while it gives the next.
func (s *Server) unfinished(ctx context.Context) (working []Record, err error) {
	for r, err := range s.store.Unfinished(ctx) {
		if err != nil && r.ID == "" {
			return nil, err
		}
		if err != nil {
			s.unreadable(ctx, r.ID, err)
			continue
		}
		s.deadlines.add(r.Owner, r.ID, r.Expires)
		j, err := openHead(r)
		if err != nil {
			s.unreadable(ctx, r.ID, err)
			continue
		}
		if j.Phase == phaseWorking {
			working = append(working, Record{Owner: r.Owner, ID: r.ID})
		}
	}
	return working, nil
}

func (s *Server) unreadable(ctx context.Context, id string, err error) {
	s.log.ErrorContext(ctx, "tasks: a task cannot be read, and is left as it is", "task", short(id), "error", err)
}

// adopt takes up a task that is working without a run: one that an earlier process has left.
func (s *Server) adopt(ctx context.Context, owner, id string) error {
	var r *run
	due := false
	j, err := s.change(ctx, owner, id, func(j *job, now time.Time) error {
		if due = false; j.Phase != phaseWorking || r == nil && !s.lost(id) {
			return errUnchanged
		}
		if r == nil {
			if r = s.admit(owner, id); r == nil {
				return errUnchanged
			}
		}
		o := s.offered(j.Tool)
		switch {
		case o == nil:
			j.fail(now, errNoTool(j.Tool))
			return nil
		case j.Started && !o.Restartable:
			j.fail(now, errCutOff)
			return nil
		case j.Started && j.Restarts >= maxRestarts:
			j.fail(now, mcp.Errorf(mcp.CodeInternalError, "the task was cut off %d times by the end of the server", j.Restarts+1))
			return nil
		case j.Started:
			j.Restarts++
		}
		due = true
		j.Started = r.slot
		return nil
	})
	s.proceed(r, j, due, err)
	return public(err)
}

// proceed launches the run that a change has made due, or gives it up: r is nil if there is none. When nobody knows whether
// the change was made, the run finds out.
func (s *Server) proceed(r *run, j *job, due bool, err error) {
	switch {
	case r == nil:
		return
	case errors.Is(err, errDoubt) && due:
	case err != nil || !due:
		s.dismiss(r)
		return
	case r.slot:
		r.job = j
	}
	s.launch(r)
}

// cutOff is what becomes of a run that the manager has ended.
func (s *Server) cutOff(j *job, now time.Time) {
	if o := s.offered(j.Tool); o == nil || !o.Restartable {
		j.fail(now, errCutOff)
		return
	}
	j.Started = false // to begin anew is no accident that counts
}
