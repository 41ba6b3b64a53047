package tasks

import (
	"context"
	"iter"
	"maps"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Watch returns the task as it stands, and again whenever that is another, until its last status; it listens to the server
// where that agrees, and asks otherwise. It answers nothing: whoever watches a task that requires input calls Answer, or
// Wait. An error is the last thing given; a server that cannot be reached is given two minutes. When ctx ends, the loop ends
// without an error.
//
// Spec: tasks extension, Task Status Notifications; basic/utilities/tasks (2025-11-25), Getting Tasks.
func (h *Handle) Updates(ctx context.Context) iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		if h.direct != nil {
			t, err := h.Get(ctx)
			yield(t, err)
			return
		}
		p := h.poller()
		p.every = defaultPollInterval
		defer func() { p.stop() }()
		var last *Task
		for {
			s, err := p.next(ctx)
			if err == nil && s.Status.Final() {
				err = p.persist(ctx, func() error { return h.complete(mcp.WithCallOptions(ctx, p.options), s) })
			}
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				yield(nil, err)
				return
			}
			if last == nil || differ(last, &s.Task) {
				given := s.Task
				last = &given
				if !yield(&s.Task, nil) {
					return
				}
			}
			if s.Status.Final() {
				return
			}
			if p.feed == nil {
				p.listen(ctx)
			}
		}
	}
}

// differ reports whether there is news in b for whoever has seen a.
func differ(a, b *Task) bool {
	return a.Status != b.Status || a.Message != b.Message || !a.Updated.Equal(b.Updated) ||
		!maps.EqualFunc(a.InputRequests, b.InputRequests, func(x, y mcp.InputRequest) bool { return x.Method == y.Method && string(x.Params) == string(y.Params) })
}
