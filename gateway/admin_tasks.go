package gateway

import (
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/host/status"
)

func taskRoutes() []*adminRoute {
	return []*adminRoute{
		getRoute("/tasks", "Tasks of callers, the newest first, as their servers last described them",
			(*adminRequest).tasks),
		getRoute("/tasks/{name}", "A task as its server describes it now, unless the server is stopped",
			func(r *adminRequest, _ *noQuery) (*taskEntry, error) { return r.task("tasks/get") }),
		postRoute("/tasks/{name}", "result", "Read the result of a task, which the audit log records",
			func(r *adminRequest, _ *noBody) (*taskEntry, error) { return r.task("tasks/result") }),
		postRoute("/tasks/{name}", "cancel", "Ask the server of a task to end it",
			func(r *adminRequest, _ *noBody) (*taskEntry, error) { return r.task("tasks/cancel") }),
	}
}

// A taskPage is a page of tasks.
type taskPage struct {
	Tasks      []taskEntry `json:"tasks"`
	NextCursor int         `json:"nextCursor,omitzero" jsonschema:"absent on the last page"`
}

// A taskEntry is a task with its caller.
type taskEntry struct {
	status.Task
	Handle string          `json:"handle,omitzero" jsonschema:"ID as its caller knows it; only for the caller"`
	Caller *adminCaller    `json:"caller"`
	Result json.RawMessage `json:"result,omitzero" jsonschema:"of the call, or its JSON-RPC error; not trusted"`
}

func (r *adminRequest) tasks(q *pageQuery) (*taskPage, error) {
	all, next := page(r.host().Operator().Tasks.Tasks(), q.Cursor, limitOr(q.Limit))
	res := &taskPage{[]taskEntry{}, next}
	for i := range all {
		res.Tasks = append(res.Tasks, *r.entry(&all[i], nil))
	}
	return res, nil
}

func (r *adminRequest) task(method string) (*taskEntry, error) {
	t, result, err := r.host().Operator().Task(r.Context(), r.name, method)
	res := r.entry(&t, result)
	r.detail = map[string]any{"server": t.Server, "tool": t.Tool, "owner": res.Caller}
	return res, err
}

// entry returns a task, with its handle for the caller of the task.
func (r *adminRequest) entry(t *status.Task, result json.RawMessage) *taskEntry {
	e := &taskEntry{Task: *t, Caller: newAdminCaller(t.Owner), Result: result}
	if t.Owner != nil && t.Owner.Key() == r.principal().Key() {
		e.Handle = t.Handle
	}
	return e
}
