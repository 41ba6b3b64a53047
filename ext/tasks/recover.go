package tasks

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// maxRestarts is how many times a run is restarted after the process ended, since the run
// itself may crash the process.
const maxRestarts = 5

var errInterrupted = mcp.Errorf(mcp.CodeInternalError,
	"the server was restarted while the task was running, and the tool cannot be restarted")

func errNoTool(tool string) *mcp.Error {
	return mcp.Errorf(mcp.CodeInternalError, "the server no longer offers the tool %q as a task", tool)
}

// Recover continues the tasks that an earlier process left in the store. Tasks that wait for input
// keep waiting. Tasks whose handler was not called yet run. A task whose handler was interrupted
// runs again if its tool is [ToolOptions.Restartable], and fails otherwise.
//
// Other servers that share the store keep their tasks. Later, the server takes over the tasks of
// each server whose lease ends, in the same way. For the time of a lease it takes over no running
// tasks, since a store may have lost only its leases.
//
// Call Recover once, after the tools are registered and before the server serves. It returns an
// error if the store cannot be read. Single records that cannot be read are logged and left
// unchanged.
func (s *Server) Recover(ctx context.Context) error {
	working, holders, err := s.loadUnfinished(ctx)
	if err != nil {
		return fmt.Errorf("tasks: recover: %w", err)
	}
	for _, j := range working {
		if s.hasRun(j.ID) || !s.hasEnded(j, holders) {
			continue
		}
		err := s.recoverTask(ctx, j.Owner, j.ID, j.Holder)
		switch {
		case err == nil, errors.Is(err, errUnknownTask):
		case ctx.Err() != nil:
			return fmt.Errorf("tasks: recover: %w", context.Cause(ctx))
		default: // readHead or tick tries again
			if !errors.Is(err, errRecord) {
				s.recoverLater()
			}
			s.log.ErrorContext(ctx, "tasks: a task could not be recovered", "task", short(j.ID), "error", err)
		}
	}
	s.deadlines.scheduleCleanup(time.Now())
	return nil
}

// loadUnfinished sets the deadlines of all unfinished tasks, and returns the Owner, ID, Holder and
// Started of the tasks that are working, with the holders of all leases. The tasks are recovered after the
// iteration, because a store may not allow both at once.
func (s *Server) loadUnfinished(ctx context.Context) (working []*job, holders []string, err error) {
	for r, err := range s.store.Unfinished(ctx) {
		if err != nil && r.ID == "" {
			return nil, nil, err
		}
		var j *job
		if err == nil {
			s.deadlines.add(r.Owner, r.ID, r.Expires, false)
			j, err = openHead(r)
		}
		switch {
		case err != nil:
			s.log.ErrorContext(ctx, "tasks: a task cannot be read and is left unchanged", "task", short(r.ID),
				"error", err)
		case j.Phase == phaseWorking:
			working = append(working, &job{Record: Record{Owner: r.Owner, ID: r.ID},
				state: state{Holder: j.Holder, Started: j.Started}})
		}
	}
	holders, err = s.holders(ctx)
	return working, holders, err
}

// recoverTask starts a run of a task that is working without a run, under the lease of a holder
// that is over.
func (s *Server) recoverTask(ctx context.Context, owner, id, holder string) error {
	var r *run
	ready := false
	j, err := s.change(ctx, owner, id, func(j *job, now time.Time) error {
		if ready = false; j.Phase != phaseWorking || j.Holder != holder {
			return errUnchanged
		}
		if r == nil && !s.hasRun(id) {
			r = s.newRun(owner, id)
		}
		if r == nil {
			return errUnchanged
		}
		t := s.tool(j.Tool)
		switch {
		case t == nil:
			j.fail(now, errNoTool(j.Tool))
			return nil
		case j.Started && !t.Restartable:
			j.fail(now, errInterrupted)
			return nil
		case j.Started && j.Restarts >= maxRestarts:
			j.fail(now, mcp.Errorf(mcp.CodeInternalError,
				"the task was interrupted %d times by the end of the server", j.Restarts+1))
			return nil
		case j.Started:
			j.Restarts++
		}
		ready = true
		j.Started, j.Holder = r.running, r.holder
		return nil
	})
	s.startChanged(r, j, ready, err)
	return clientError(err)
}

// startChanged starts the run that a change made ready, or ends it; r may be nil. If it is
// uncertain whether the change was stored, the run reads the task again.
func (s *Server) startChanged(r *run, j *job, ready bool, err error) {
	switch {
	case r == nil:
		return
	case errors.Is(err, errUncertain) && ready:
	case err != nil || !ready:
		s.endRun(r)
		if err != nil && !errors.Is(err, errTooLarge) { // the store may make the change later
			s.recoverLater()
		}
		return
	case r.running:
		r.job = j
	}
	s.startRun(r)
}

// recoverLater makes tick recover tasks.
func (s *Server) recoverLater() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lease.ended = true
}
