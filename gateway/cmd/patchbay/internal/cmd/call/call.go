// Package call calls tools.
package call

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/argument"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/list"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmd/task"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Options are the flags of "call".
type Options struct {
	cmdutil.Invocation
	Task bool // start a task and do not wait for it
}

// NewCmdCall returns the command "call".
func NewCmdCall(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	names := list.Tools(f).Names
	cmd := cmdutil.TargetCommand(f, "call [TOOL] [ARGUMENT…]", "Call a tool, or list the tools", names, o,
		cmdutil.Or(run, cmdutil.Connected(callOrList)))
	cmd.Flags().BoolVar(&o.Task, "task", false, "start a task, print its id, and do not wait for the result")
	return cmdutil.CompleteArguments(f, cmd, cmdutil.ToolArguments)
}

func callOrList(ctx context.Context, o *Options, c *mcp.Client) error {
	switch {
	case len(o.Words) == 0 && o.Task:
		return exit.UsageError(errors.New("missing TOOL: --task starts a tool"))
	case len(o.Words) == 0:
		return list.Show(ctx, &list.Options{Invocation: o.Invocation}, c, list.Tools(o.Factory))
	}
	tool, arguments, err := PrepareCall(ctx, &o.Invocation, c, "call")
	switch {
	case err != nil:
		return err
	case o.Task:
		return startTask(ctx, o.Factory, c, tool, arguments)
	}
	return call(ctx, o.Factory, c, tool, arguments)
}

// PrepareCall returns the tool and the arguments that Words contain. verb is for errors.
func PrepareCall(
	ctx context.Context, o *cmdutil.Invocation, c *mcp.Client, verb string,
) (*mcp.Tool, stdjson.RawMessage, error) {
	tools, err := cmdutil.Collect(c.Tools(ctx))
	if err != nil {
		return nil, nil, err
	}
	tool, err := cmdutil.Find(tools, o.Words[0], "tool", cmdutil.ToolName)
	if err != nil {
		cmdutil.ReportFailed(o.Factory)
		if !cmdutil.MayLack(o.Factory, tools, o.Words[0]) {
			return nil, nil, err
		}
		tool = &mcp.Tool{Name: o.Words[0], InputSchema: stdjson.RawMessage(`{"type":"object"}`)}
	}
	a, err := o.Ask.NewArguments(ctx, o.Words[1:], tool.InputSchema)
	if err != nil {
		parameters, _ := argument.ParametersOf(tool.InputSchema)
		return nil, nil, cmdutil.WrongArguments(ctx, o.Factory, err, verb, argument.Signature(tool.Name, parameters))
	}
	o.Ask.WarnUndeclared(a)
	return tool, a.Object(), nil
}

// call calls a tool and prints its result. A note of a task survives the death of the program.
func call(ctx context.Context, f *cmdutil.Factory, c *mcp.Client, tool *mcp.Tool, arguments stdjson.RawMessage) error {
	var taskNote atomic.Pointer[target.Note]
	f.Client.TaskStarted = func(h *tasks.Handle) {
		taskNote.Store(noteTask(f, &tasks.Task{ID: h.ID()}, tool.Name))
	}
	result, err := c.CallTool(ctx, tool.Name, arguments)
	n := taskNote.Load()
	switch {
	case n != nil && err != nil && ctx.Err() != nil:
		return interruptedTask(ctx, f, n)
	case n != nil:
		n.Remove()
		err = task.ExplainCancelled(ctx, tasks.Resume(c, n.ID), err)
	}
	if err != nil {
		return err
	}
	return cmdutil.EndCall(f, result)
}

// interruptedTask returns the error of an interrupted task, whose note stays while it may go on.
func interruptedTask(ctx context.Context, f *cmdutil.Factory, n *target.Note) error {
	code, what := exit.Interrupted, "interrupted"
	if errors.Is(context.Cause(ctx), connect.ErrTimeLimit) {
		code, what = exit.Timeout, fmt.Sprintf("call: not complete within %v (--timeout)", f.Flags.Timeout)
	}
	if f.Client.TaskCancelled.Load() {
		n.Remove()
		return &exit.Error{Code: code, Err: errors.New(what + "; the task was cancelled")}
	}
	return &exit.Error{Code: code, Err: fmt.Errorf("%s; the task could not be cancelled and may go on: %s", what,
		task.TaskCommandLine(f, "get", n.ID))}
}

func startTask(ctx context.Context, f *cmdutil.Factory, c *mcp.Client, tool *mcp.Tool,
	arguments stdjson.RawMessage) error {
	h, err := tasks.Start(ctx, c, tool.Name, arguments)
	if err != nil {
		return err
	}
	f.IO.Err.Done()
	if h.ID() == "" {
		result, err := h.Wait(ctx) // returns at once
		if err != nil {
			return err
		}
		f.IO.Err.Printf("The server returned the result at once, without a task.")
		return cmdutil.EndCall(f, result)
	}
	t, err := h.Get(ctx)
	if err != nil {
		t = &tasks.Task{ID: h.ID(), Status: tasks.StatusWorking, Created: time.Now()} // it exists: it was just created
	}
	noteTask(f, t, tool.Name)
	if f.PrintedJSON(map[string]any{"task": task.NewTaskReport(t, tool.Name)}) {
		return nil
	}
	f.IO.Out.Println(h.ID())
	f.IO.Err.Printf("Started. To wait for the result: %s", task.TaskCommandLine(f, "watch", h.ID()))
	if at := f.Client.Current.Load(); at.Command != nil && f.Client.Shell == nil {
		f.IO.Err.Printf("The server exits now, and the task ends with it unless the server stores its tasks.")
	}
	return nil
}

func noteTask(f *cmdutil.Factory, t *tasks.Task, tool string) *target.Note {
	at := f.Client.Current.Load()
	n := &target.Note{Key: at.Key(), Target: at.Public(), ID: t.ID, Tool: tool, Started: time.Now()}
	if t.TTL > 0 {
		n.Expires = n.Started.Add(t.TTL)
	}
	if err := n.Save(); err != nil {
		f.IO.Err.Printf("patchbay: cannot save a note of the task: %s", term.Clean(err.Error()))
	}
	return n
}
