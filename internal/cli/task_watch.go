package cli

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func (p *program) taskWatchVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "watch TARGET ID | watch ID -- COMMAND…",
		Short: "Show how a task goes, until it ends, and its result",
		Long: `Show each change of a task on standard error until it ends, and then its result, as call does.
Questions are asked on the terminal, or answered from --answers. Without both they are shown
and left open, for patchbay task answer. The task goes on if this is interrupted.`,
		Example: `  patchbay task watch http://127.0.0.1:8765/mcp ID`,
	}
	return p.ofTask(cmd, func(ctx context.Context, h *tasks.Handle, _ []string) error { return p.watchTask(ctx, h) }, 0)
}

func (p *program) watchTask(ctx context.Context, h *tasks.Handle) error {
	var result *mcp.ToolResult
	var err error
	if p.mayAsk() || p.answers != nil {
		result, err = p.attend(ctx, h)
	} else {
		var last *tasks.Task
		if last, err = p.showChanges(ctx, h); err == nil {
			result, err = endOf(last)
		}
	}
	if ctx.Err() != nil {
		p.screen.printf("The task goes on. %s watches it again.", p.taskLine("watch", h.ID()))
	}
	if err != nil {
		return err
	}
	p.screen.done()
	return p.endCall(result)
}

// attend shows how a task goes and answers what it asks.
func (p *program) attend(ctx context.Context, h *tasks.Handle) (*mcp.ToolResult, error) {
	t, err := h.Get(ctx)
	switch {
	case err != nil:
		return nil, err
	case t.Status.Final():
		p.showChange(t, p.toolOf(t.ID))
		return endOf(t)
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var showing sync.WaitGroup
	showing.Go(func() { _, _ = p.showChanges(watching, h) }) // what goes wrong, Wait tells
	result, err := h.Wait(silently(ctx))
	stop()
	showing.Wait()
	if isUnknownTask(err) { // it was known a moment ago: the error is its own
		err = &coded{exitFailure, err}
	}
	return result, calledOff(ctx, h, err)
}

// silently returns a context whose requests show no progress: the changes of the task are shown already.
func silently(ctx context.Context) context.Context {
	return mcp.WithCallOptions(ctx, mcp.CallOptions{})
}

// showChanges shows how a task goes until it ends, and gives it as it is then.
func (p *program) showChanges(ctx context.Context, h *tasks.Handle) (*tasks.Task, error) {
	tool := p.toolOf(h.ID())
	var before *tasks.Task
	for t, err := range h.Updates(ctx) {
		if err != nil {
			return nil, err
		}
		if before == nil || t.Status != before.Status || t.Message != before.Message || !slices.Equal(keysOf(t), keysOf(before)) {
			p.showChange(t, tool)
		}
		before = t
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if before == nil || !before.Status.Final() {
		return nil, errors.New("the server tells no more of the task")
	}
	return before, nil
}

func keysOf(t *tasks.Task) []string { return slices.Sorted(maps.Keys(t.InputRequests)) }

func (p *program) showChange(t *tasks.Task, tool string) {
	if p.flags.json {
		report := newTaskReport(t, tool)
		report.Result = nil // comes last, as that of a call
		p.output.value(map[string]any{"task": report})
		return
	}
	const longest = 200
	line := string(t.Status)
	if t.Message != "" && t.Status != tasks.StatusFailed { // which the error tells as well
		line += ": " + shorten(t.Message, longest)
	}
	p.screen.printf("%s", cleanLine(line))
	if p.mayAsk() {
		return // the questions themselves come next
	}
	if t.Status == tasks.StatusInputRequired && len(t.InputRequests) == 0 && p.answers == nil {
		p.screen.printf("  it asks whoever watches it at a terminal, or answers it unseen\n    %s", cleanLine(p.answerUnseen(t.ID)))
	}
	for _, key := range keysOf(t) {
		p.screen.printf("  it asks %s\n    %s", cleanLine(questionWords(t.InputRequests[key])), cleanLine(p.answerWith(t, key)))
	}
}
