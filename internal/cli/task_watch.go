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
	return &cobra.Command{
		Use:   "watch TARGET ID | watch ID -- COMMAND…",
		Short: "Show how a task goes, until it ends, and its result",
		Long: `Show each change of a task on standard error until it ends, and then its result, as call does.
Questions are asked on the terminal, or answered from --answers. Without both they are shown
and left open, for patchbay task answer. The task goes on if this is interrupted.`,
		Example: `  patchbay task watch http://127.0.0.1:8765/mcp ID`,
		RunE: p.verb(func(ctx context.Context, c *mcp.Client, words []string) error {
			return taskError(p.watchTask(ctx, tasks.Resume(c, words[0])), words[0])
		}, 1, 1),
	}
}

func (p *program) watchTask(ctx context.Context, h *tasks.Handle) error {
	var result *mcp.ToolResult
	var err error
	if p.mayAsk() || p.answers != nil {
		result, err = p.attend(ctx, h)
	} else if err = p.showChanges(ctx, h); err == nil {
		result, err = h.Wait(silently(ctx)) // which has no need to wait
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
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var showing sync.WaitGroup
	showing.Go(func() { _ = p.showChanges(watching, h) }) // what goes wrong, Wait tells
	result, err := h.Wait(silently(ctx))
	stop()
	showing.Wait()
	return result, err
}

// silently gives a context whose requests show no progress: the changes of the task are shown already.
func silently(ctx context.Context) context.Context {
	return mcp.WithCallOptions(ctx, mcp.CallOptions{})
}

// showChanges shows how a task goes until it ends.
func (p *program) showChanges(ctx context.Context, h *tasks.Handle) error {
	tool, before := p.toolOf(h.ID()), &tasks.Task{}
	for t, err := range h.Watch(ctx) {
		if err != nil {
			return err
		}
		if t.Status != before.Status || t.Message != before.Message || !slices.Equal(keysOf(t), keysOf(before)) {
			p.showChange(t, tool)
		}
		before = t
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if !before.Status.Final() {
		return errors.New("the server tells no more of the task")
	}
	return nil
}

func keysOf(t *tasks.Task) []string { return slices.Sorted(maps.Keys(t.InputRequests)) }

func (p *program) showChange(t *tasks.Task, tool string) {
	if p.flags.json {
		p.output.value(map[string]any{"task": newTaskReport(t, tool)})
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
	for _, key := range keysOf(t) {
		p.screen.printf("  it asks %s\n    %s", cleanLine(questionWords(t.InputRequests[key])), cleanLine(p.answerWith(t, key)))
	}
}
