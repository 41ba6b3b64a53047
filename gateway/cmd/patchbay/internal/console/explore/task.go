package explore

import (
	"context"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// taskCancelTimeout bounds the request that cancels a task after its run was cancelled.
const taskCancelTimeout = 5 * time.Second

// sendTask calls a tool as a task, and waits for the result. It cancels the task if the run is
// cancelled.
func (r *run) sendTask(ctx context.Context, client *mcp.Client) error {
	handle, err := tasks.Start(ctx, client, r.Item.Name, r.Input)
	if err != nil {
		return err
	}
	if handle.ID() != "" {
		r.update(func(s *runState) { s.Task, s.TaskState = handle.ID(), "working" })
		updates, stop := context.WithCancel(ctx)
		defer stop()
		r.site.Background(func(context.Context) { r.showTask(updates, handle) })
	}
	result, err := handle.Wait(ctx)
	if ctx.Err() != nil && handle.ID() != "" {
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), taskCancelTimeout)
		defer cancel()
		_ = handle.Cancel(end) // the task may have ended
	}
	if result == nil {
		return err
	}
	var req mcp.Request
	raw, encodeErr := req.EncodeResult(result)
	if encodeErr != nil {
		return encodeErr
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.raw = raw
	return err
}

// showTask shows the status of a task until ctx ends.
func (r *run) showTask(ctx context.Context, handle *tasks.Handle) {
	for task, err := range handle.Updates(ctx) {
		if err != nil {
			return // the run shows the error
		}
		text := strings.TrimSuffix(string(task.Status)+": "+task.Message, ": ")
		r.update(func(s *runState) { s.TaskState = text })
	}
}
