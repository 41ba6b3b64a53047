package cli

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func (p *program) callCommand() *cobra.Command {
	var asTask bool
	cmd := &cobra.Command{
		Use:   "call TARGET TOOL [ARGUMENT…] | call TOOL [ARGUMENT…] -- COMMAND…",
		Short: "Call a tool",
		Long: `Call a tool. What it gives is printed on standard output; if it fails, what it says about
that is printed on standard error, and the exit code is 5. See help arguments for the
arguments.

A server may carry a call on as a task, which can take hours: the result is waited for all
the same, and an interrupt calls the task off. With --task it is not waited for: the id of
the task is printed, and the task goes on at the server (see help task).`,
		Example: `  patchbay call http://127.0.0.1:8765/mcp add a=1 b=2
  patchbay call http://127.0.0.1:8765/mcp add '{"a": 1, "b": 2}'
  echo '{"a": 1}' | patchbay call http://127.0.0.1:8765/mcp add - b=2
  patchbay call deploy environment=staging --answers yes.json -- ./server
  patchbay call --task http://127.0.0.1:8765/mcp crunch seconds=600`,
		ValidArgsFunction: p.completeNames(toolNames),
		RunE: p.verb(func(ctx context.Context, c *mcp.Client, words []string) error {
			tool, arguments, err := p.prepareCall(ctx, c, words)
			switch {
			case err != nil:
				return err
			case asTask:
				return p.startTask(ctx, c, tool, arguments)
			}
			return p.call(ctx, c, tool, arguments)
		}, 1, -1),
	}
	cmd.Flags().BoolVar(&asTask, "task", false, "start a task, print its id and do not wait for it")
	return cmd
}

// prepareCall finds a tool, and makes its arguments of the words behind it.
func (p *program) prepareCall(ctx context.Context, c *mcp.Client, words []string) (*mcp.Tool, stdjson.RawMessage, error) {
	tools, err := collect(c.Tools(ctx))
	if err != nil {
		return nil, nil, err
	}
	tool, err := find(tools, words[0], "tool", toolName)
	if err != nil {
		return nil, nil, err
	}
	a, err := p.newArguments(ctx, words[1:], tool.InputSchema)
	if err != nil {
		return nil, nil, p.wrongArguments(ctx, err, "call", toolLine(tool))
	}
	return tool, a.object(), nil
}

// call calls a tool. Should a task come of it, it is remembered as long as it is waited for: the program may be killed.
func (p *program) call(ctx context.Context, c *mcp.Client, tool *mcp.Tool, arguments stdjson.RawMessage) error {
	var begun atomic.Pointer[note]
	p.taskStarted = func(h *tasks.Handle) {
		begun.Store(p.noteTask(&tasks.Task{ID: h.ID()}, tool.Name))
	}
	result, err := c.CallTool(ctx, tool.Name, arguments)
	n := begun.Load()
	switch {
	case n != nil && err != nil && ctx.Err() != nil:
		return p.interruptedTask(n)
	case n != nil:
		n.forget()
		err = explainCancelled(ctx, tasks.Resume(c, n.ID), err)
	}
	if err != nil {
		return err
	}
	return p.endCall(result)
}

// interruptedTask says what has become of the task of a call that the user has interrupted. One that may go on stays remembered.
func (p *program) interruptedTask(n *note) error {
	if p.cancelled.Load() {
		n.forget()
		return &coded{exitInterrupted, errors.New("interrupted; the task is called off")}
	}
	return &coded{exitInterrupted, fmt.Errorf("interrupted; the task could not be called off, and may go on: %s", p.taskCommandLine("get", n.ID))}
}

// endCall prints what a tool gave, and says whether it failed.
func (p *program) endCall(result *mcp.ToolResult) error {
	p.screen.done()
	if err := p.showResult(result); err != nil {
		return err
	}
	if result.IsError {
		return &coded{exitTool, errShown}
	}
	return nil
}

// wrongArguments says how the arguments would be right.
func (p *program) wrongArguments(ctx context.Context, err error, verb, line string) error {
	if ctx.Err() != nil {
		return err
	}
	return usage(errors.Join(err, errors.New("usage: patchbay "+verb+" TARGET "+line)))
}

// showResult prints what a tool gave.
func (p *program) showResult(r *mcp.ToolResult) error {
	if p.flags.json {
		p.output.result(r)
		for _, c := range r.Content {
			if err := p.saveContent(c); err != nil {
				return err
			}
		}
		return nil
	}
	if r.IsError {
		p.screen.printf("patchbay: the tool failed")
		for _, c := range r.Content {
			p.screen.printf("%s", clean(describe(c)))
		}
		return nil
	}
	for _, c := range r.Content {
		if err := p.show(c); err != nil {
			return err
		}
	}
	if len(r.Content) == 0 && r.StructuredContent != nil {
		p.output.value(r.StructuredContent)
	}
	return nil
}
