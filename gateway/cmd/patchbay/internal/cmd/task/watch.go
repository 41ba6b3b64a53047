package task

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// watchTask waits for a task and prints its result.
func watchTask(ctx context.Context, o *Options, h *tasks.Handle) error {
	f := o.Factory
	var result *mcp.CallToolResult
	var err error
	if f.IO.MayPrompt() || f.Ask.Answers != nil {
		result, err = followTask(ctx, f, h)
	} else {
		var last *tasks.Task
		if last, err = showChanges(ctx, f, h); err == nil {
			result, err = finalResult(last)
		}
	}
	if ctx.Err() != nil {
		f.IO.Err.Printf("The task continues. To watch it again: %s", TaskCommandLine(f, "watch", h.ID()))
	}
	if err != nil {
		return err
	}
	f.IO.Err.Done()
	return cmdutil.EndCall(f, result)
}

// followTask shows the changes of a task, and answers its questions.
func followTask(ctx context.Context, f *cmdutil.Factory, h *tasks.Handle) (*mcp.CallToolResult, error) {
	t, err := h.Get(ctx)
	switch {
	case err != nil:
		return nil, err
	case t.Status.Final():
		showChange(f, t, toolOf(f, t.ID))
		return finalResult(t)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var showing sync.WaitGroup
	showing.Go(func() { _, _ = showChanges(watching, f, h) })          // Wait returns the error
	result, err := h.Wait(mcp.WithCallOptions(ctx, mcp.CallOptions{})) // no progress: showChanges shows it
	stop()
	showing.Wait()
	if isUnknownTask(err) { // the task exists: this is its own error
		err = &exit.Error{Code: exit.Failure, Err: err}
	}
	return result, ExplainCancelled(ctx, h, err)
}

// showChanges shows the changes of a task until it ends, and returns its final state.
func showChanges(ctx context.Context, f *cmdutil.Factory, h *tasks.Handle) (*tasks.Task, error) {
	tool := toolOf(f, h.ID())
	var before *tasks.Task
	for t, err := range h.Updates(ctx) {
		if err != nil {
			return nil, err
		}
		if before == nil || t.Status != before.Status || t.Message != before.Message ||
			!slices.Equal(keysOf(t), keysOf(before)) {
			showChange(f, t, tool)
		}
		before = t
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if before == nil || !before.Status.Final() {
		return nil, errors.New("the server ended the updates of the task")
	}
	return before, nil
}

func keysOf(t *tasks.Task) []string { return slices.Sorted(maps.Keys(t.InputRequests)) }

func showChange(f *cmdutil.Factory, t *tasks.Task, tool string) {
	if f.Flags.JSON {
		report := NewTaskReport(t, tool)
		report.Result = nil // printed last, as by call
		f.IO.Out.Value(map[string]any{"task": report})
		return
	}
	const longest = 200
	line := string(t.Status)
	if t.Message != "" && t.Status != tasks.StatusFailed { // the error contains the message
		line += ": " + term.Shorten(t.Message, longest)
	}
	f.IO.Err.Printf("%s", term.CleanLine(line))
	if f.IO.MayPrompt() {
		return // the user is prompted next
	}
	if t.Status == tasks.StatusInputRequired && len(t.InputRequests) == 0 && f.Ask.Answers == nil {
		f.IO.Err.Printf("  it asks a question, which this server does not show; watch the task on a terminal, or "+
			"answer it:\n    %s", term.CleanLine(TaskCommandLine(f, "answer", t.ID, "FIELD=VALUE…")))
	}
	for _, key := range keysOf(t) {
		f.IO.Err.Printf("  it asks: %s\n    %s", term.CleanLine(question.DescribeInput(t.InputRequests[key])),
			term.CleanLine(answerCommand(f, t, key)))
	}
}
