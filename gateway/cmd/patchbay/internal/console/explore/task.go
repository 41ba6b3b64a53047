package explore

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	tasklist "github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// taskCancelTimeout bounds the request that cancels a task after its run was cancelled.
const taskCancelTimeout = 5 * time.Second

// actTask opens the run that waits for a task of the person, in which the person answers the questions of the task. It
// starts a run if another client started the task.
func (e *explorer) actTask(r *page.Request) (*page.Outcome, error) {
	t, err := tasklist.Find(r, r.PostFormValue("task"))
	if err != nil {
		return nil, err
	}
	if t.Handle == "" {
		return nil, page.Problem(http.StatusForbidden, "", "only the caller of a task may answer its questions")
	}
	for _, waiting := range e.runs.of(t.Server, r.Principal) {
		if s := waiting.snapshot(); s.Task == t.Handle && !s.Phase.Ended() {
			return &page.Outcome{Location: waiting.Place()}, nil
		}
	}
	known := e.catalogues.of(t.Server, r.Principal).find(kindTools, t.Tool)
	next := &run{Server: t.Server, Item: cmp.Or(known, &item{Kind: kindTools, Name: t.Tool}), Input: []byte("{}"),
		Timeout: defaultRunTimeout, AsTask: true, Resumed: t.Handle}
	return e.begin(r, next)
}

// sendTask calls a tool as a task, or resumes a task, and waits for the result. It cancels a task that it created if
// the run is cancelled.
func (r *run) sendTask(ctx context.Context, client *mcp.Client) (err error) {
	handle := tasks.Resume(client, r.Resumed)
	if r.Resumed == "" {
		if handle, err = tasks.Start(ctx, client, r.Item.Name, r.Input); err != nil {
			return err
		}
	}
	if handle.ID() != "" {
		r.update(func(s *runState) { s.Task, s.TaskState = handle.ID(), "working" })
		updates, stop := context.WithCancel(ctx)
		defer stop()
		r.site.Background(func(context.Context) { r.showTask(updates, handle) })
	}
	result, err := handle.Wait(ctx)
	if ctx.Err() != nil && handle.ID() != r.Resumed {
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
