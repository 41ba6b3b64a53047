package task

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
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

// Options are the flags of the commands about a task. The first of the Words is its ID.
type Options struct {
	cmdutil.Invocation
	Question string           // of "answer": the key of the question
	Action   mcp.ElicitAction // of "answer"
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

// watchTask waits for a task and prints its result.
func watchTask(ctx context.Context, o *Options, h *tasks.Handle) error {
	f := o.Factory
	var result *mcp.CallToolResult
	var err error
	if f.IO.MayPrompt() || f.Ask.Answers != nil {
		result, err = followTask(ctx, f, h)
	} else {
		var last *tasks.Task
		if last, err = showChanges(ctx, f, h); err == nil {
			result, err = finalResult(last)
		}
	}
	if ctx.Err() != nil {
		f.IO.Err.Printf("The task continues. To watch it again: %s", TaskCommandLine(f, "watch", h.ID()))
	}
	if err != nil {
		return err
	}
	f.IO.Err.Done()
	return cmdutil.EndCall(f, result)
}

// followTask shows the changes of a task, and answers its questions.
func followTask(ctx context.Context, f *cmdutil.Factory, h *tasks.Handle) (*mcp.CallToolResult, error) {
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
		err = &exit.Error{Code: exit.Failure, Err: err}
	}
	return result, ExplainCancelled(ctx, h, err)
}

// showChanges shows the changes of a task until it ends, and returns its final state.
func showChanges(ctx context.Context, f *cmdutil.Factory, h *tasks.Handle) (*tasks.Task, error) {
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

func showChange(f *cmdutil.Factory, t *tasks.Task, tool string) {
	if f.Flags.JSON {
		report := NewTaskReport(t, tool)
		report.Result = nil // printed last, as by call
		f.IO.Out.Value(map[string]any{"task": report})
		return
	}
	const longest = 200
	line := string(t.Status)
	if t.Message != "" && t.Status != tasks.StatusFailed { // the error contains the message
		line += ": " + term.Shorten(t.Message, longest)
	}
	f.IO.Err.Printf("%s", term.CleanLine(line))
	if f.IO.MayPrompt() {
		return // the user is prompted next
	}
	if t.Status == tasks.StatusInputRequired && len(t.InputRequests) == 0 && f.Ask.Answers == nil {
		f.IO.Err.Printf("  it asks a question, which this server does not show; watch the task on a terminal, or "+
			"answer it:\n    %s", term.CleanLine(TaskCommandLine(f, "answer", t.ID, "FIELD=VALUE…")))
	}
	for _, key := range keysOf(t) {
		f.IO.Err.Printf("  it asks: %s\n    %s", term.CleanLine(question.DescribeInput(t.InputRequests[key])),
			term.CleanLine(answerCommand(f, t, key)))
	}
}

// answerCommand returns the command that answers a question of a task.
func answerCommand(f *cmdutil.Factory, t *tasks.Task, key string) string {
	var words []string
	if len(t.InputRequests) > 1 {
		words = append(words, "--question", term.ShellWord(key))
	}
	if q, err := question.ParseQuestion(t.InputRequests[key]); err == nil {
		words = append(words, q.Arguments()...)
	}
	return TaskCommandLine(f, "answer", t.ID, words...)
}
