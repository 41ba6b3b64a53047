package cli

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

func (p *program) callCommand(tools listing[*mcp.Tool]) *cobra.Command {
	var asTask bool
	cmd := p.serverCommand("call [TOOL] [ARGUMENT…]", "Call a tool, or list the tools", tools.names,
		func(ctx context.Context, c *mcp.Client, words []string) error {
			switch {
			case len(words) == 0 && asTask:
				return usage(errors.New("missing TOOL: --task starts a tool"))
			case len(words) == 0:
				return listOrShow(p, tools)(ctx, c, nil)
			}
			tool, arguments, err := p.prepareCall(ctx, c, "call", words)
			switch {
			case err != nil:
				return err
			case asTask:
				return p.startTask(ctx, c, tool, arguments)
			}
			return p.call(ctx, c, tool, arguments)
		})
	cmd.Flags().BoolVar(&asTask, "task", false, "start a task, print its id, and do not wait for the result")
	return p.completeArguments(cmd, toolArguments)
}

// prepareCall returns a tool and its arguments. verb is the command, for the usage in errors.
func (p *program) prepareCall(
	ctx context.Context, c *mcp.Client, verb string, words []string,
) (*mcp.Tool, stdjson.RawMessage, error) {
	tools, err := collect(c.Tools(ctx))
	if err != nil {
		return nil, nil, err
	}
	tool, err := find(tools, words[0], "tool", toolName)
	if err != nil {
		p.reportFailed()
		if !p.mayLack(tools, words[0]) {
			return nil, nil, err
		}
		tool = &mcp.Tool{Name: words[0], InputSchema: stdjson.RawMessage(`{"type":"object"}`)}
	}
	a, err := p.newArguments(ctx, words[1:], tool.InputSchema)
	if err != nil {
		parameters, _ := parametersOf(tool.InputSchema)
		return nil, nil, p.wrongArguments(ctx, err, verb, signature(tool.Name, parameters))
	}
	p.warnUndeclared(a)
	return tool, a.object(), nil
}

// call calls a tool and prints its result. A task has a note until it ends: the program may be
// killed.
func (p *program) call(ctx context.Context, c *mcp.Client, tool *mcp.Tool, arguments stdjson.RawMessage) error {
	var taskNote atomic.Pointer[note]
	p.taskStarted = func(h *tasks.Handle) {
		taskNote.Store(p.noteTask(&tasks.Task{ID: h.ID()}, tool.Name))
	}
	result, err := c.CallTool(ctx, tool.Name, arguments)
	n := taskNote.Load()
	switch {
	case n != nil && err != nil && ctx.Err() != nil:
		return p.interruptedTask(ctx, n)
	case n != nil:
		n.remove()
		err = explainCancelled(ctx, tasks.Resume(c, n.ID), err)
	}
	if err != nil {
		return err
	}
	return p.endCall(result)
}

// interruptedTask returns the error of an interrupted task. It keeps the note of one that may go
// on.
func (p *program) interruptedTask(ctx context.Context, n *note) error {
	code, what := exitInterrupted, "interrupted"
	if errors.Is(context.Cause(ctx), errTimeLimit) {
		code, what = exitTimeout, fmt.Sprintf("call: not complete within %v (--timeout)", p.flags.timeout)
	}
	if p.taskCancelled.Load() {
		n.remove()
		return &coded{code, errors.New(what + "; the task was cancelled")}
	}
	return &coded{code, fmt.Errorf("%s; the task could not be cancelled and may go on: %s", what,
		p.taskCommandLine("get", n.ID))}
}

// endCall prints the result of a tool. It returns an error if the tool failed.
func (p *program) endCall(result *mcp.CallToolResult) error {
	p.screen.done()
	if err := p.showResult(result); err != nil {
		return err
	}
	if result.IsError {
		return &coded{exitOfTool(result), errShown}
	}
	return nil
}

// wrongArguments adds the usage of a tool or prompt to an error.
func (p *program) wrongArguments(ctx context.Context, err error, verb, line string) error {
	if ctx.Err() != nil {
		return err
	}
	if p.shell != nil {
		return usage(errors.Join(err, errors.New("usage: "+verb+" "+line)))
	}
	return usage(errors.Join(err, errors.New("usage: patchbay "+verb+" TARGET "+line)))
}

func (p *program) showResult(r *mcp.CallToolResult) error {
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
		p.screen.printf("%s the tool failed", p.prefix())
		for _, c := range r.Content {
			p.screen.printf("%s", clean(describe(c)))
		}
		return nil
	}
	if value := structured(r); value != nil && p.output.terminal {
		p.output.write(laidOut(value, p.output.width()) + "\n")
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

func (p *program) startTask(ctx context.Context, c *mcp.Client, tool *mcp.Tool, arguments stdjson.RawMessage) error {
	h, err := tasks.Start(ctx, c, tool.Name, arguments)
	if err != nil {
		return err
	}
	p.screen.done()
	if h.ID() == "" {
		result, err := h.Wait(ctx) // returns at once
		if err != nil {
			return err
		}
		p.screen.printf("The server returned the result at once, without a task.")
		return p.endCall(result)
	}
	t, err := h.Get(ctx)
	if err != nil {
		t = &tasks.Task{ID: h.ID(), Status: tasks.StatusWorking, Created: time.Now()} // it exists: it was just created
	}
	p.noteTask(t, tool.Name)
	if p.flags.json {
		p.output.value(map[string]any{"task": newTaskReport(t, tool.Name)})
		return nil
	}
	p.output.println(h.ID())
	p.screen.printf("Started. To wait for the result: %s", p.taskCommandLine("watch", h.ID()))
	if at := p.current.Load(); at.command != nil && p.shell == nil {
		p.screen.printf("The server exits now, and the task ends with it unless the server stores its tasks.")
	}
	return nil
}

func (p *program) noteTask(t *tasks.Task, tool string) *note {
	at := p.current.Load()
	n := &note{Key: at.key(), Target: at.public(), ID: t.ID, Tool: tool, Started: time.Now()}
	if t.TTL > 0 {
		n.Expires = n.Started.Add(t.TTL)
	}
	if err := n.save(); err != nil {
		p.screen.printf("patchbay: cannot save a note of the task: %s", clean(err.Error()))
	}
	return n
}
