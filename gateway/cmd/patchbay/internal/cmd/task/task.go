// Package task lists, watches, answers and cancels tasks.
package task

import (
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/content"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// completeTasks completes targets, and then the ids of noted tasks. It sends no requests.
func completeTasks(f *cmdutil.Factory, cmd *cobra.Command, args []string, typed string) ([]string,
	cobra.ShellCompDirective) {
	if f.Client.Shell != nil {
		return f.Client.Shell.NotedTasks(args, typed), cobra.ShellCompDirectiveNoFileComp
	}
	switch len(args) {
	case 0:
		return f.Config.TargetNames(typed), cobra.ShellCompDirectiveNoFileComp
	case 1:
		f.Flags.NoInput = true
		t, err := f.Config.Named(cmd.Context(), args[0], target.RefuseTrust)
		if err != nil {
			break
		}
		known, _ := target.NotesOf(t) // ids before an error are useful
		var ids []string
		for _, n := range known {
			ids = append(ids, n.ID)
		}
		return target.Matching(ids, typed), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// A TaskReport is a task in JSON, as `patchbay task get --json` prints it.
type TaskReport struct {
	ID            string                      `json:"id"`
	Status        tasks.Status                `json:"status"`
	Tool          string                      `json:"tool,omitzero"` // if a note contains it
	Message       string                      `json:"message,omitzero"`
	Created       time.Time                   `json:"created,omitzero"`
	Updated       time.Time                   `json:"updated,omitzero"`
	TTL           float64                     `json:"ttlMs,omitzero"`
	PollInterval  float64                     `json:"pollIntervalMs,omitzero"`
	InputRequests map[string]mcp.InputRequest `json:"inputRequests,omitzero"`
	Result        stdjson.RawMessage          `json:"result,omitzero"`
	Error         *mcp.Error                  `json:"error,omitzero"`
}

// NewTaskReport returns the report of a task of a tool.
func NewTaskReport(t *tasks.Task, tool string) *TaskReport {
	return &TaskReport{
		ID: t.ID, Status: t.Status, Tool: tool, Message: t.Message, Created: t.Created, Updated: t.Updated,
		TTL: term.Milliseconds(t.TTL), PollInterval: term.Milliseconds(t.PollInterval),
		InputRequests: t.InputRequests, Result: t.Result, Error: t.Error,
	}
}

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

// Options are the flags of the commands about a task. The first of the Words is its ID.
type Options struct {
	cmdutil.Invocation
	Question string           // of "answer": the key of the question
	Action   mcp.ElicitAction // of "answer"
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

// newCmd returns a command about a task, which calls command with the task unless run replaces it.
func newCmd(
	f *cmdutil.Factory, usageLine, short string, o *Options, run cmdutil.Run[*Options],
	command func(context.Context, *Options, *tasks.Handle) error,
) *cobra.Command {
	cmd := cmdutil.TargetCommand(f, usageLine, short, nil, o, cmdutil.Or(run, cmdutil.Connected(
		func(ctx context.Context, o *Options, c *mcp.Client) error {
			return taskError(command(ctx, o, tasks.Resume(c, o.Words[0])), o.Words[0])
		})))
	cmd.Flags().String("id", "", "the task `ID`, if it begins with a hyphen")
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		return completeTasks(f, cmd, args, typed)
	}
	return cmd
}

func isUnknownTask(err error) bool {
	var said *mcp.Error
	return errors.As(err, &said) && said.Remote() && said.Code == mcp.CodeInvalidParams
}

// taskError adds the meaning of an error for a task.
func taskError(err error, id string) error {
	var said *mcp.Error
	var own *exit.Error
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &said) && said.Code == mcp.CodeMethodNotFound:
		return exit.NotFoundError(fmt.Errorf("the server does not support tasks: %w", err))
	case !isUnknownTask(err):
		return err
	}
	return exit.NotFoundError(fmt.Errorf("unknown task %q, or expired (see patchbay task list): %w", term.Shorten(id,
		100), err))
}

func showTask(f *cmdutil.Factory, t *tasks.Task) error {
	tool := toolOf(f, t.ID)
	if f.PrintedJSON(NewTaskReport(t, tool)) {
		return nil
	}
	showTaskFields(f, t, tool)
	if t.Result == nil {
		return nil
	}
	r, err := finalResult(t)
	if err != nil {
		return err
	}
	if r.IsError {
		f.IO.Out.Println("result   (tool error)")
	} else {
		f.IO.Out.Println("result")
	}
	for _, c := range r.Content {
		f.IO.Out.Println(term.Indent(term.Clean(content.Describe(c)), "  "))
		if err := cmdutil.SaveContent(f, c); err != nil {
			return err
		}
	}
	return nil
}

// finalResult returns the result or the error in the final state of a task.
func finalResult(t *tasks.Task) (*mcp.CallToolResult, error) {
	switch {
	case t.Result != nil:
		r := &mcp.CallToolResult{}
		if err := json.Unmarshal(t.Result, r); err != nil {
			return nil, fmt.Errorf("%w: the result of the task: %w", mcp.ErrInvalidResult, err)
		}
		return r, nil
	case t.Error != nil:
		return nil, &exit.Error{Code: exit.Failure, Err: t.Error}
	case t.Status == tasks.StatusCancelled:
		if t.Message == "" {
			return nil, errors.New("the task was cancelled")
		}
		return nil, fmt.Errorf("the task was cancelled: %s", term.Shorten(t.Message, exit.MaxReason))
	}
	return nil, fmt.Errorf("%w: the task has status %s without a result", mcp.ErrInvalidResult, t.Status)
}

// ExplainCancelled replaces the error of waiting for a task that was cancelled by the reason.
func ExplainCancelled(ctx context.Context, h *tasks.Handle, err error) error {
	if !errors.Is(err, mcp.ErrCancelled) || ctx.Err() != nil {
		return err
	}
	if t, failed := h.Get(ctx); failed == nil && t.Status == tasks.StatusCancelled {
		_, err = finalResult(t)
	}
	return err
}

// maxTaskField limits a shown field of a task, in characters: a status message may be large.
const maxTaskField = 5000

func showTaskFields(f *cmdutil.Factory, t *tasks.Task, tool string) {
	line := func(name, value string) { f.IO.Out.Field(8, name, term.Shorten(value, maxTaskField)) }
	line("task", t.ID)
	line("tool", tool)
	line("status", string(t.Status))
	line("message", t.Message)
	if !t.Created.IsZero() {
		line("created", t.Created.Local().Format(time.DateTime))
	}
	if !t.Updated.IsZero() {
		line("updated", t.Updated.Local().Format(time.DateTime))
	}
	if t.TTL > 0 && !t.Created.IsZero() {
		line("kept", "until "+t.Created.Add(t.TTL).Local().Format(time.DateTime))
	}
	for _, key := range slices.Sorted(maps.Keys(t.InputRequests)) {
		asked := t.InputRequests[key]
		line("asks", key+": "+question.DescribeInput(asked))
		line("", "  "+answerCommand(f, t, key))
	}
	if t.Status == tasks.StatusInputRequired && len(t.InputRequests) == 0 {
		line("asks", "(this server does not show the question; watch the task, or answer it)")
		line("", "  "+TaskCommandLine(f, "watch", t.ID))
		line("", "  "+TaskCommandLine(f, "answer", t.ID, "FIELD=VALUE…"))
	}
	if t.Error != nil {
		line("error", fmt.Sprintf("%s (code %d)", t.Error.Message, t.Error.Code))
	}
}

// toolOf returns the tool of a task whose note contains it, or else "".
func toolOf(f *cmdutil.Factory, id string) string {
	known, _ := target.NotesOf(f.Client.Current.Load()) // without notes the tool is unknown
	for _, n := range known {
		if n.ID == id {
			return n.Tool
		}
	}
	return ""
}

// TaskCommandLine returns a command line for a task at the current target.
func TaskCommandLine(f *cmdutil.Factory, verb, id string, words ...string) string {
	t := f.Client.Current.Load()
	line := []string{"patchbay", "task", verb}
	switch {
	case f.Client.Shell != nil:
		line = []string{"task", verb}
	case t.Command == nil || t.From != "":
		line = append(line, t.Argument(f.Flags.Config))
	}
	if strings.HasPrefix(id, "-") {
		id = "--id=" + id
	}
	line = append(line, term.ShellWord(id))
	line = append(line, words...)
	if t.Command != nil && t.From == "" && f.Client.Shell == nil {
		line = append(line, "--", t.String())
	}
	return strings.Join(line, " ")
}
