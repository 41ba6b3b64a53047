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
// ([ToolOptions.Again]); otherwise the task has failed, with an error that says so.
//
// Call it once, after the tools are registered and before the server serves. Records that cannot be read are logged and left
// as they are; the error is one of the store.
func (m *Manager) Recover(ctx context.Context) error {
	working, err := m.unfinished(ctx)
	if err != nil {
		return fmt.Errorf("tasks: recover: %w", err)
	}
	for _, r := range working {
		err := m.adopt(ctx, r.Owner, r.ID)
		switch {
		case err == nil, errors.Is(err, errUnknownTask):
		case ctx.Err() != nil:
			return fmt.Errorf("tasks: recover: %w", context.Cause(ctx))
		default: // who asks for it takes it up
			m.log.ErrorContext(ctx, "tasks: a task could not be taken up", "task", short(r.ID), "error", err)
		}
	}
	m.deadlines.cleanLater(time.Now())
	return nil
}

// unfinished takes up the deadlines of all unfinished tasks, and gives those that are working, without their Data. A store
// may be unable to change a record while it gives the next.
func (m *Manager) unfinished(ctx context.Context) (working []Record, err error) {
	for r, err := range m.store.Unfinished(ctx) {
		if err != nil && r.ID == "" {
			return nil, err
		}
		if err != nil {
			m.unreadable(ctx, r.ID, err)
			continue
		}
		m.deadlines.add(r.Owner, r.ID, r.Expires)
		j, err := openHead(r)
		if err != nil {
			m.unreadable(ctx, r.ID, err)
			continue
		}
		if j.Phase == phaseWorking {
			working = append(working, Record{Owner: r.Owner, ID: r.ID})
		}
	}
	return working, nil
}

func (m *Manager) unreadable(ctx context.Context, id string, err error) {
	m.log.ErrorContext(ctx, "tasks: a task cannot be read, and is left as it is", "task", short(id), "error", err)
}

// adopt takes up a task that is working without a run: one that an earlier process has left.
func (m *Manager) adopt(ctx context.Context, owner, id string) error {
	var r *run
	due := false
	j, err := m.change(ctx, owner, id, func(j *job, now time.Time) error {
		if due = false; j.Phase != phaseWorking || r == nil && !m.lost(id) {
			return errUnchanged
		}
		if r == nil {
			if r = m.admit(owner, id); r == nil {
				return errUnchanged
			}
		}
		o := m.offered(j.Tool)
		switch {
		case o == nil:
			j.fail(now, errNoTool(j.Tool))
			return nil
		case j.Started && !o.Again:
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
	m.proceed(r, j, due, err)
	return public(err)
}

// proceed launches the run that a change has made due, or gives it up: r is nil if there is none. When nobody knows whether
// the change was made, the run finds out.
func (m *Manager) proceed(r *run, j *job, due bool, err error) {
	switch {
	case r == nil:
		return
	case errors.Is(err, errDoubt) && due:
	case err != nil || !due:
		m.dismiss(r)
		return
	case r.slot:
		r.job = j
	}
	m.launch(r)
}

// cutOff is what becomes of a run that the manager has ended.
func (m *Manager) cutOff(j *job, now time.Time) {
	if o := m.offered(j.Tool); o == nil || !o.Again {
		j.fail(now, errCutOff)
		return
	}
	j.Started = false // to begin anew is no accident that counts
}
