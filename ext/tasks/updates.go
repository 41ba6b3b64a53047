package tasks

import (
	"context"
	"iter"
	"maps"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Updates returns an iterator over the states of the task: the current one, and a new one whenever
// the task has changed, up to its final status. It subscribes to the task where the server supports
// it, and polls otherwise. It does not answer questions: call Answer or Wait for a task with
// [StatusInputRequired].
//
// The iteration ends with the first error. A server that cannot be reached is tried for two
// minutes. When ctx ends, the iteration ends without an error.
//
// Spec: tasks extension, Task Status Notifications; basic/utilities/tasks (2025-11-25), Getting
// Tasks.
func (h *Handle) Updates(ctx context.Context) iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		if h.direct != nil {
			yield(h.Get(ctx))
			return
		}
		p := h.poller()
		defer func() { p.unsubscribe() }()
		var last *Task
		for {
			t, err := p.next(ctx)
			if err == nil && t.Status.Final() {
				err = p.retry(ctx,
					func() error { return p.form.fetchOutcome(mcp.WithCallOptions(ctx, p.options), h, t) })
			}
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				yield(nil, err)
				return
			}
			if last == nil || hasChanged(last, &t.Task) {
				yielded := t.Task // a copy, since the caller may change what it gets
				last = &yielded
				if !yield(&t.Task, nil) {
					return
				}
			}
			if t.Status.Final() {
				return
			}
			if p.subscription == nil {
				p.subscribe(ctx)
			}
		}
	}
}

func hasChanged(before, after *Task) bool {
	same := func(a, b mcp.InputRequest) bool { return a.Method == b.Method && string(a.Params) == string(b.Params) }
	return before.Status != after.Status || before.Message != after.Message || !before.Updated.Equal(after.Updated) ||
		!maps.EqualFunc(before.InputRequests, after.InputRequests, same)
}
