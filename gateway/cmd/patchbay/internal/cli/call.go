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

func callCommand(f *factory, tools listing[*mcp.Tool]) *cobra.Command {
	var asTask bool
	cmd := serverCommand(f, "call [TOOL] [ARGUMENT…]", "Call a tool, or list the tools", tools.names,
		func(ctx context.Context, c *mcp.Client, words []string) error {
			switch {
			case len(words) == 0 && asTask:
				return usage(errors.New("missing TOOL: --task starts a tool"))
			case len(words) == 0:
				return listOrShow(f, tools)(ctx, c, nil)
			}
			tool, arguments, err := prepareCall(ctx, f, c, "call", words)
			switch {
			case err != nil:
				return err
			case asTask:
				return startTask(ctx, f, c, tool, arguments)
			}
			return call(ctx, f, c, tool, arguments)
		})
	cmd.Flags().BoolVar(&asTask, "task", false, "start a task, print its id, and do not wait for the result")
	return completeArguments(f, cmd, toolArguments)
}

// prepareCall returns a tool and its arguments. verb is the command, for the usage in errors.
func prepareCall(
	ctx context.Context, f *factory, c *mcp.Client, verb string, words []string,
) (*mcp.Tool, stdjson.RawMessage, error) {
	tools, err := collect(c.Tools(ctx))
	if err != nil {
		return nil, nil, err
	}
	tool, err := find(tools, words[0], "tool", toolName)
	if err != nil {
		reportFailed(f)
		if !mayLack(f, tools, words[0]) {
			return nil, nil, err
		}
		tool = &mcp.Tool{Name: words[0], InputSchema: stdjson.RawMessage(`{"type":"object"}`)}
	}
	a, err := f.Ask.newArguments(ctx, words[1:], tool.InputSchema)
	if err != nil {
		parameters, _ := parametersOf(tool.InputSchema)
		return nil, nil, wrongArguments(ctx, f, err, verb, signature(tool.Name, parameters))
	}
	f.Ask.warnUndeclared(a)
	return tool, a.object(), nil
}

// call calls a tool and prints its result. A task has a note until it ends: the program may be
// killed.
func call(ctx context.Context, f *factory, c *mcp.Client, tool *mcp.Tool, arguments stdjson.RawMessage) error {
	var taskNote atomic.Pointer[note]
	f.Client.taskStarted = func(h *tasks.Handle) {
		taskNote.Store(noteTask(f, &tasks.Task{ID: h.ID()}, tool.Name))
	}
	result, err := c.CallTool(ctx, tool.Name, arguments)
	n := taskNote.Load()
	switch {
	case n != nil && err != nil && ctx.Err() != nil:
		return interruptedTask(ctx, f, n)
	case n != nil:
		n.remove()
		err = explainCancelled(ctx, tasks.Resume(c, n.ID), err)
	}
	if err != nil {
		return err
	}
	return endCall(f, result)
}

// interruptedTask returns the error of an interrupted task. It keeps the note of one that may go
// on.
func interruptedTask(ctx context.Context, f *factory, n *note) error {
	code, what := exitInterrupted, "interrupted"
	if errors.Is(context.Cause(ctx), errTimeLimit) {
		code, what = exitTimeout, fmt.Sprintf("call: not complete within %v (--timeout)", f.Flags.timeout)
	}
	if f.Client.taskCancelled.Load() {
		n.remove()
		return &coded{code, errors.New(what + "; the task was cancelled")}
	}
	return &coded{code, fmt.Errorf("%s; the task could not be cancelled and may go on: %s", what,
		taskCommandLine(f, "get", n.ID))}
}

// endCall prints the result of a tool. It returns an error if the tool failed.
func endCall(f *factory, result *mcp.CallToolResult) error {
	f.IO.Err.done()
	if err := showResult(f, result); err != nil {
		return err
	}
	if result.IsError {
		return &coded{exitOfTool(result), errShown}
	}
	return nil
}

// wrongArguments adds the usage of a tool or prompt to an error.
func wrongArguments(ctx context.Context, f *factory, err error, verb, line string) error {
	if ctx.Err() != nil {
		return err
	}
	if f.shell != nil {
		return usage(errors.Join(err, errors.New("usage: "+verb+" "+line)))
	}
	return usage(errors.Join(err, errors.New("usage: patchbay "+verb+" TARGET "+line)))
}

func showResult(f *factory, r *mcp.CallToolResult) error {
	if f.Flags.json {
		f.IO.Out.result(r)
		for _, c := range r.Content {
			if err := saveContent(f, c); err != nil {
				return err
			}
		}
		return nil
	}
	if r.IsError {
		f.IO.Err.printf("%s the tool failed", f.IO.prefix())
		for _, c := range r.Content {
			f.IO.Err.printf("%s", clean(describe(c)))
		}
		return nil
	}
	if value := structured(r); value != nil && f.IO.Out.terminal {
		f.IO.Out.write(laidOut(value, f.IO.Out.width()) + "\n")
		return nil
	}
	for _, c := range r.Content {
		if err := show(f, c); err != nil {
			return err
		}
	}
	if len(r.Content) == 0 && r.StructuredContent != nil {
		f.IO.Out.value(r.StructuredContent)
	}
	return nil
}

func startTask(ctx context.Context, f *factory, c *mcp.Client, tool *mcp.Tool, arguments stdjson.RawMessage) error {
	h, err := tasks.Start(ctx, c, tool.Name, arguments)
	if err != nil {
		return err
	}
	f.IO.Err.done()
	if h.ID() == "" {
		result, err := h.Wait(ctx) // returns at once
		if err != nil {
			return err
		}
		f.IO.Err.printf("The server returned the result at once, without a task.")
		return endCall(f, result)
	}
	t, err := h.Get(ctx)
	if err != nil {
		t = &tasks.Task{ID: h.ID(), Status: tasks.StatusWorking, Created: time.Now()} // it exists: it was just created
	}
	noteTask(f, t, tool.Name)
	if f.Flags.json {
		f.IO.Out.value(map[string]any{"task": newTaskReport(t, tool.Name)})
		return nil
	}
	f.IO.Out.println(h.ID())
	f.IO.Err.printf("Started. To wait for the result: %s", taskCommandLine(f, "watch", h.ID()))
	if at := f.Client.current.Load(); at.command != nil && f.shell == nil {
		f.IO.Err.printf("The server exits now, and the task ends with it unless the server stores its tasks.")
	}
	return nil
}

func noteTask(f *factory, t *tasks.Task, tool string) *note {
	at := f.Client.current.Load()
	n := &note{Key: at.key(), Target: at.public(), ID: t.ID, Tool: tool, Started: time.Now()}
	if t.TTL > 0 {
		n.Expires = n.Started.Add(t.TTL)
	}
	if err := n.save(); err != nil {
		f.IO.Err.printf("patchbay: cannot save a note of the task: %s", clean(err.Error()))
	}
	return n
}
