package peer

import "context"

type taskKey struct{}

// WithTask returns ctx for serving a request that names the task with this id as the one that it
// belongs to.
func WithTask(ctx context.Context, id string) context.Context {
	if id == "" {
		return ctx
	}
	return context.WithValue(ctx, taskKey{}, id)
}

// Task returns the id of [WithTask], "" without a task.
func Task(ctx context.Context) string {
	id, _ := ctx.Value(taskKey{}).(string)
	return id
}
