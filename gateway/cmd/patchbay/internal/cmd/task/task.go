// Package task lists, watches, answers and cancels tasks.
package task

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// NewCmdTask returns the command "task" with its subcommands.
func NewCmdTask(f *cmdutil.Factory) *cobra.Command {
	cmd := cmdutil.WithSubcommands(f, "task", "Show, watch, answer and cancel tasks", NewCmdList(f, nil),
		NewCmdGet(f, nil), NewCmdWatch(f, nil), NewCmdAnswer(f, nil), NewCmdCancel(f, nil))
	cmd.Aliases = []string{"tasks"}
	return cmd
}

// NewCmdList returns the command "task list".
func NewCmdList(f *cmdutil.Factory, run cmdutil.Run[*cmdutil.Invocation]) *cobra.Command {
	o := &cmdutil.Invocation{}
	run = cmdutil.Or(run, listTasksOrNotes)
	cmd := cmdutil.TargetCommand(f, "list", "List the tasks of a server", nil, o, run)
	if f.Client.Shell != nil {
		return cmd
	}
	cmd.Use, cmd.ValidArgsFunction = "list [TARGET] | list -- COMMAND…", func(cmd *cobra.Command, args []string,
		typed string) ([]string, cobra.ShellCompDirective) {
		return completeTasks(f, cmd, args, typed)
	}
	return cmdutil.OptionalTarget(cmd, o, run)
}

func listTasksOrNotes(ctx context.Context, o *cmdutil.Invocation) error {
	if o.Target == nil {
		return listNotes(o.Factory)
	}
	return cmdutil.Connected(listTasks)(ctx, o)
}

// listNotes prints all notes.
func listNotes(f *cmdutil.Factory) error {
	all, err := target.Notes()
	if err != nil {
		return err
	}
	if f.Flags.JSON {
		list := []map[string]any{}
		for _, n := range all {
			list = append(list, map[string]any{"id": n.ID, "tool": n.Tool, "target": n.Target, "key": n.Key,
				"started": n.Started})
		}
		f.IO.Out.Value(map[string]any{"tasks": list})
		return nil
	}
	shared := sharedTargets(all)
	for _, n := range all {
		where := term.CleanLine(n.Target)
		if shared[n.Target] {
			where += fmt.Sprintf(" (%.6s)", term.CleanLine(n.Key))
		}
		f.IO.Out.Printf("%s  %s  %s", term.CleanLine(n.ID), term.CleanLine(n.Tool), where)
		f.IO.Out.Printf("    started %s ago", ago(n.Started))
	}
	if len(all) == 0 {
		f.IO.Err.Printf("No tasks. Start one with patchbay call --task.")
	}
	return nil
}

// sharedTargets returns the names of several targets that differ in secret parts.
func sharedTargets(all []*target.Note) map[string]bool {
	first, shared := map[string]string{}, map[string]bool{}
	for _, n := range all {
		if key, has := first[n.Target]; has && key != n.Key {
			shared[n.Target] = true
		}
		first[n.Target] = n.Key
	}
	return shared
}

// ago returns the time since t in words.
func ago(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return max(d, 0).Round(time.Second).String()
	case d < 2*24*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

func listTasks(ctx context.Context, o *cmdutil.Invocation, c *mcp.Client) error {
	noted, err := target.NotesOf(o.Target)
	if err != nil {
		o.IO.Err.Printf("patchbay: cannot read the notes of started tasks: %s", term.Clean(err.Error()))
	}
	tools := map[string]string{}
	for _, n := range noted {
		tools[n.ID] = n.Tool
	}
	var list []*tasks.Task
	if _, listed := rawjson.Get(c.Capabilities().Tasks, "list"); listed {
		list, err = cmdutil.Collect(tasks.List(ctx, c))
	} else {
		list, err = getNoted(ctx, c, noted)
	}
	if err == nil || len(list) > 0 {
		showTasks(o.Factory, list, tools)
	}
	return err
}

// getNoted returns the noted tasks that the server knows, also with an error, and removes others.
func getNoted(ctx context.Context, c *mcp.Client, noted []*target.Note) (found []*tasks.Task, first error) {
	for _, n := range noted {
		t, err := tasks.Resume(c, n.ID).Get(ctx)
		var said *mcp.Error
		switch {
		case err == nil:
			found = append(found, t)
		case isUnknownTask(err):
			n.Remove()
		default:
			first = cmp.Or(first, fmt.Errorf("task %q: %w", term.Shorten(n.ID, 100), err))
			if !errors.As(err, &said) {
				return found, first // the connection failed
			}
		}
	}
	return found, first
}

func showTasks(f *cmdutil.Factory, list []*tasks.Task, tools map[string]string) {
	if f.Flags.JSON {
		reports := []*TaskReport{}
		for _, t := range list {
			reports = append(reports, NewTaskReport(t, tools[t.ID]))
		}
		f.IO.Out.Value(map[string]any{"tasks": reports})
		return
	}
	for _, t := range list {
		f.IO.Out.Printf("%s  %s  %s", term.CleanLine(t.ID), cmp.Or(term.CleanLine(tools[t.ID]), "-"),
			term.CleanLine(string(t.Status)))
		line := "started " + ago(t.Created) + " ago"
		if t.Message != "" {
			line += "; " + term.Shorten(term.CleanLine(t.Message), 200)
		}
		f.IO.Out.Printf("    %s", line)
	}
	if len(list) == 0 {
		f.IO.Err.Printf("No tasks. Start one with patchbay call --task.")
	}
}

// getTask prints a task.
func getTask(ctx context.Context, o *Options, h *tasks.Handle) error {
	t, err := h.Get(ctx)
	if err != nil {
		return err
	}
	return showTask(o.Factory, t)
}

// cancelTask cancels a task.
func cancelTask(ctx context.Context, o *Options, h *tasks.Handle) error {
	refused := h.Cancel(ctx) // an error for a task that ended, in 2025-11-25
	if refused != nil && !isUnknownTask(refused) {
		return refused
	}
	t, err := h.Get(ctx)
	if err != nil {
		return err
	}
	if err := showTask(o.Factory, t); err != nil || refused == nil {
		return err
	}
	return &exit.Error{Code: exit.Failure, Err: refused} // the task exists
}

// NewCmdGet returns the command "task get".
func NewCmdGet(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	return newCmd(f, "get ID", "Show a task", &Options{}, run, getTask)
}

// NewCmdWatch returns the command "task watch".
func NewCmdWatch(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	return newCmd(f, "watch ID", "Wait for a task and print its result", &Options{}, run, watchTask)
}

// NewCmdCancel returns the command "task cancel".
func NewCmdCancel(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	return newCmd(f, "cancel ID", "Cancel a task", &Options{}, run, cancelTask)
}
