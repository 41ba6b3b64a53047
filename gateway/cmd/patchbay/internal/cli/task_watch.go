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

func (p *program) watchTask(ctx context.Context, h *tasks.Handle, _ []string) error {
	var result *mcp.CallToolResult
	var err error
	if p.mayPrompt() || p.answers != nil {
		result, err = p.followTask(ctx, h)
	} else {
		var last *tasks.Task
		if last, err = p.showChanges(ctx, h); err == nil {
			result, err = finalResult(last)
		}
	}
	if ctx.Err() != nil {
		p.screen.printf("The task continues. To watch it again: %s", p.taskCommandLine("watch", h.ID()))
	}
	if err != nil {
		return err
	}
	p.screen.done()
	return p.endCall(result)
}

// followTask shows the changes of a task, and answers its questions.
func (p *program) followTask(ctx context.Context, h *tasks.Handle) (*mcp.CallToolResult, error) {
	t, err := h.Get(ctx)
	switch {
	case err != nil:
		return nil, err
	case t.Status.Final():
		p.showChange(t, p.toolOf(t.ID))
		return finalResult(t)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var showing sync.WaitGroup
	showing.Go(func() { _, _ = p.showChanges(watching, h) })           // Wait returns the error
	result, err := h.Wait(mcp.WithCallOptions(ctx, mcp.CallOptions{})) // no progress: showChanges shows it
	stop()
	showing.Wait()
	if isUnknownTask(err) { // the task exists: this is its own error
		err = &coded{exitFailure, err}
	}
	return result, explainCancelled(ctx, h, err)
}

// showChanges shows the changes of a task until it ends, and returns its final state.
func (p *program) showChanges(ctx context.Context, h *tasks.Handle) (*tasks.Task, error) {
	tool := p.toolOf(h.ID())
	var before *tasks.Task
	for t, err := range h.Updates(ctx) {
		if err != nil {
			return nil, err
		}
		if before == nil || t.Status != before.Status || t.Message != before.Message ||
			!slices.Equal(keysOf(t), keysOf(before)) {
			p.showChange(t, tool)
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

func (p *program) showChange(t *tasks.Task, tool string) {
	if p.flags.json {
		report := newTaskReport(t, tool)
		report.Result = nil // printed last, as by call
		p.output.value(map[string]any{"task": report})
		return
	}
	const longest = 200
	line := string(t.Status)
	if t.Message != "" && t.Status != tasks.StatusFailed { // the error has the message
		line += ": " + shorten(t.Message, longest)
	}
	p.screen.printf("%s", cleanLine(line))
	if p.mayPrompt() {
		return // the user is prompted next
	}
	if t.Status == tasks.StatusInputRequired && len(t.InputRequests) == 0 && p.answers == nil {
		p.screen.printf("  it asks a question, which this server does not show; watch the task on a terminal, or "+
			"answer it:\n    %s", cleanLine(p.taskCommandLine("answer", t.ID, "FIELD=VALUE…")))
	}
	for _, key := range keysOf(t) {
		p.screen.printf("  it asks: %s\n    %s", cleanLine(describeInput(t.InputRequests[key])),
			cleanLine(p.answerCommand(t, key)))
	}
}
