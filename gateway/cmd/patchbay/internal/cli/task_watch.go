package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func watchTask(ctx context.Context, f *factory, h *tasks.Handle, _ []string) error {
	var result *mcp.CallToolResult
	var err error
	if f.IO.mayPrompt() || f.Ask.answers != nil {
		result, err = followTask(ctx, f, h)
	} else {
		var last *tasks.Task
		if last, err = showChanges(ctx, f, h); err == nil {
			result, err = finalResult(last)
		}
	}
	if ctx.Err() != nil {
		f.IO.Err.printf("The task continues. To watch it again: %s", taskCommandLine(f, "watch", h.ID()))
	}
	if err != nil {
		return err
	}
	f.IO.Err.done()
	return endCall(f, result)
}

// followTask shows the changes of a task, and answers its questions.
func followTask(ctx context.Context, f *factory, h *tasks.Handle) (*mcp.CallToolResult, error) {
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
		err = &coded{exitFailure, err}
	}
	return result, explainCancelled(ctx, h, err)
}

// showChanges shows the changes of a task until it ends, and returns its final state.
func showChanges(ctx context.Context, f *factory, h *tasks.Handle) (*tasks.Task, error) {
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

func showChange(f *factory, t *tasks.Task, tool string) {
	if f.Flags.json {
		report := newTaskReport(t, tool)
		report.Result = nil // printed last, as by call
		f.IO.Out.value(map[string]any{"task": report})
		return
	}
	const longest = 200
	line := string(t.Status)
	if t.Message != "" && t.Status != tasks.StatusFailed { // the error has the message
		line += ": " + shorten(t.Message, longest)
	}
	f.IO.Err.printf("%s", cleanLine(line))
	if f.IO.mayPrompt() {
		return // the user is prompted next
	}
	if t.Status == tasks.StatusInputRequired && len(t.InputRequests) == 0 && f.Ask.answers == nil {
		f.IO.Err.printf("  it asks a question, which this server does not show; watch the task on a terminal, or "+
			"answer it:\n    %s", cleanLine(taskCommandLine(f, "answer", t.ID, "FIELD=VALUE…")))
	}
	for _, key := range keysOf(t) {
		f.IO.Err.printf("  it asks: %s\n    %s", cleanLine(describeInput(t.InputRequests[key])),
			cleanLine(answerCommand(f, t, key)))
	}
}
