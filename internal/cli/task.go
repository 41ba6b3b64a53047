package cli

import (
	"cmp"
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
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const helpTask = `See what has become of calls that a server carries on by itself: tasks.

patchbay call --task starts one and prints its id. The task goes on at the server, whether
anybody watches it or not; it may wait for an answer. What was started on this machine is
remembered for a while: the server, the id and the tool, and no arguments or results.

The server is named as for the other commands. A command behind two dashes is started anew
each time: that helps only if it finds its tasks again, as patchbay serve --stdio does.`

func (p *program) taskCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "task",
		Aliases: []string{"tasks"},
		Short:   "See, watch, answer and cancel tasks",
		Long:    helpTask,
		Example: `  patchbay call --task http://127.0.0.1:8765/mcp crunch seconds=60
  patchbay task list http://127.0.0.1:8765/mcp
  patchbay task watch http://127.0.0.1:8765/mcp ID`,
		Args: oneOfItsCommands,
		RunE: p.showHelp,
	}
	for _, verb := range []*cobra.Command{p.taskListVerb(), p.taskGetVerb(), p.taskWatchVerb(), p.taskAnswerVerb(), p.taskCancelVerb()} {
		verb.DisableFlagsInUseLine = true
		if verb.ValidArgsFunction == nil {
			verb.ValidArgsFunction = p.completeTasks
		}
		cmd.AddCommand(verb)
	}
	return cmd
}

// completeTasks completes targets, and then the ids of tasks that were started there. Nobody is asked for them.
func (p *program) completeTasks(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	switch len(args) {
	case 0:
		return p.targetNames(typed), cobra.ShellCompDirectiveNoFileComp
	case 1:
		t, err := p.named(args[0])
		if err != nil {
			break
		}
		known, _ := notesOf(t) // what was read before an error helps as well
		var ids []string
		for _, n := range known {
			ids = append(ids, n.ID)
		}
		return matching(ids, typed), cobra.ShellCompDirectiveNoFileComp
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}

// A taskReport is a task as `patchbay task get --json` prints it.
type taskReport struct {
	ID            string                      `json:"id"`
	Status        tasks.Status                `json:"status"`
	Tool          string                      `json:"tool,omitzero"` // if it was started here
	Message       string                      `json:"message,omitzero"`
	Created       time.Time                   `json:"created,omitzero"`
	Updated       time.Time                   `json:"updated,omitzero"`
	TTL           float64                     `json:"ttlMs,omitzero"`
	PollInterval  float64                     `json:"pollIntervalMs,omitzero"`
	InputRequests map[string]mcp.InputRequest `json:"inputRequests,omitzero"`
	Result        stdjson.RawMessage          `json:"result,omitzero"`
	Error         *taskFailure                `json:"error,omitzero"`
}

// A taskFailure is why a task failed.
type taskFailure struct {
	Code    int                `json:"code"`
	Message string             `json:"message"`
	Data    stdjson.RawMessage `json:"data,omitzero"`
}

func newTaskReport(t *tasks.Task, tool string) *taskReport {
	r := &taskReport{
		ID: t.ID, Status: t.Status, Tool: tool, Message: t.Message, Created: t.Created, Updated: t.Updated,
		TTL: milliseconds(t.TTL), PollInterval: milliseconds(t.PollInterval), InputRequests: t.InputRequests, Result: t.Result,
	}
	if t.Error != nil {
		r.Error = &taskFailure{t.Error.Code, t.Error.Message, t.Error.Data}
	}
	return r
}

func (p *program) taskListVerb() *cobra.Command {
	run := p.verb(func(ctx context.Context, c *mcp.Client, _ []string) error { return p.listTasks(ctx, c) }, 0, 0)
	return &cobra.Command{
		Use:   "list [TARGET] | list -- COMMAND…",
		Short: "List the tasks of a server",
		Long: `List the tasks of a server: those that it lists itself, which only servers of revision
2025-11-25 may do; else those that were started on this machine and that it still knows.
Without a target, list what was started on this machine, and ask nobody.`,
		Example: `  patchbay task list
  patchbay task list http://127.0.0.1:8765/mcp`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 && cmd.ArgsLenAtDash() < 0 {
				return p.listNotes()
			}
			return run(cmd, args)
		},
	}
}

// listNotes prints what is remembered.
func (p *program) listNotes() error {
	all, err := notes()
	if err != nil {
		return err
	}
	if p.flags.json {
		list := []map[string]any{}
		for _, n := range all {
			list = append(list, map[string]any{"id": n.ID, "tool": n.Tool, "target": n.Target, "key": n.Key, "started": n.Started})
		}
		p.output.value(map[string]any{"tasks": list})
		return nil
	}
	shared := sharedTargets(all)
	for _, n := range all {
		where := cleanLine(n.Target)
		if shared[n.Target] {
			where += fmt.Sprintf(" (%.6s)", cleanLine(n.Key))
		}
		p.output.printf("%s  %s  %s", cleanLine(n.ID), cleanLine(n.Tool), where)
		p.output.printf("    started %s ago", age(n.Started))
	}
	if len(all) == 0 {
		p.screen.printf("No task was started on this machine; patchbay call --task starts one.")
	}
	return nil
}

// sharedTargets returns the names that several targets have: what tells commands and URLs apart may be secret.
func sharedTargets(all []*note) map[string]bool {
	first, shared := map[string]string{}, map[string]bool{}
	for _, n := range all {
		if key, has := first[n.Target]; has && key != n.Key {
			shared[n.Target] = true
		}
		first[n.Target] = n.Key
	}
	return shared
}

// age tells how long ago something was.
func age(t time.Time) string {
	d := time.Since(t)
	switch {
	case d < time.Minute:
		return max(d, 0).Round(time.Second).String()
	case d < 2*24*time.Hour:
		return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}

// listTasks prints the tasks of a server.
func (p *program) listTasks(ctx context.Context, c *mcp.Client) error {
	known, err := notesOf(p.asked.Load())
	if err != nil {
		p.screen.printf("patchbay: what was started here cannot be read: %s", clean(err.Error()))
	}
	tools := map[string]string{}
	for _, n := range known {
		tools[n.ID] = n.Tool
	}
	var list []*tasks.Task
	if _, listed := jsonscan.Get(c.Capabilities().Tasks, "list"); listed {
		list, err = collect(tasks.List(ctx, c))
	} else {
		list, err = p.lookUp(ctx, c, known)
	}
	if err == nil || len(list) > 0 {
		p.showTasks(list, tools)
	}
	return err
}

// lookUp asks for the tasks that were started here, some at a time. Those that the server does not know any more are
// forgotten. With an error come those that were found all the same.
func (p *program) lookUp(ctx context.Context, c *mcp.Client, known []*note) ([]*tasks.Task, error) {
	const atOnce = 4
	found := make([]*tasks.Task, len(known))
	failed := make([]error, len(known))
	room := make(chan struct{}, atOnce)
	var asking sync.WaitGroup
	for i, n := range known {
		room <- struct{}{}
		asking.Go(func() {
			defer func() { <-room }()
			found[i], failed[i] = tasks.Resume(c, n.ID).Get(ctx)
			if isUnknownTask(failed[i]) {
				n.forget()
				failed[i] = nil
			}
		})
	}
	asking.Wait()
	var err error
	for i, n := range known {
		if failed[i] != nil && err == nil {
			err = fmt.Errorf("task %q: %w", shorten(n.ID, 100), failed[i]) // the others fail for the same reason, mostly
		}
	}
	return slices.DeleteFunc(found, func(t *tasks.Task) bool { return t == nil }), err
}

func (p *program) showTasks(list []*tasks.Task, tools map[string]string) {
	if p.flags.json {
		reports := []*taskReport{}
		for _, t := range list {
			reports = append(reports, newTaskReport(t, tools[t.ID]))
		}
		p.output.value(map[string]any{"tasks": reports})
		return
	}
	for _, t := range list {
		p.output.printf("%s  %s  %s", cleanLine(t.ID), cmp.Or(cleanLine(tools[t.ID]), "-"), cleanLine(string(t.Status)))
		line := "started " + age(t.Created) + " ago"
		if t.Message != "" {
			line += "; " + shorten(cleanLine(t.Message), 200)
		}
		p.output.printf("    %s", line)
	}
	if len(list) == 0 {
		p.screen.printf("No tasks; patchbay call --task starts one.")
	}
}

func (p *program) taskGetVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get TARGET ID | get ID -- COMMAND…",
		Short: "Show a task as it is now",
		Long: `Show a task as it is now: its status, what it asks and how that is answered, and its result if
there is one. Whatever the status is, the exit code is 0 if the server knows the task.`,
		Example: `  patchbay task get http://127.0.0.1:8765/mcp ID`,
	}
	return p.ofTask(cmd, func(ctx context.Context, h *tasks.Handle, _ []string) error {
		t, err := h.Get(ctx)
		if err != nil {
			return err
		}
		return p.showTask(t)
	}, 0)
}

func (p *program) taskCancelVerb() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cancel TARGET ID | cancel ID -- COMMAND…",
		Short: "Call a task off",
		Long: `Call a task off, and show what has become of it. A server may take a while to end it, or may
finish it all the same.`,
		Example: `  patchbay task cancel http://127.0.0.1:8765/mcp ID`,
	}
	return p.ofTask(cmd, func(ctx context.Context, h *tasks.Handle, _ []string) error {
		refused := h.Cancel(ctx) // as servers of 2025-11-25 do for a task that has ended
		if refused != nil && !isUnknownTask(refused) {
			return refused
		}
		t, err := h.Get(ctx)
		if err != nil {
			return err
		}
		if err := p.showTask(t); err != nil || refused == nil {
			return err
		}
		return &coded{exitFailure, refused} // it is known
	}, 0)
}

// ofTask makes a verb of a function that is about one task: it finds the id among the words of the command line. most is how
// many further words there may be; less than 0 is any number.
func (p *program) ofTask(cmd *cobra.Command, run func(ctx context.Context, h *tasks.Handle, words []string) error, most int) *cobra.Command {
	var id string
	cmd.Flags().StringVar(&id, "id", "", "the `ID`, if it begins with a hyphen")
	about := func(ctx context.Context, c *mcp.Client, id string, words []string) error {
		return taskError(run(ctx, tasks.Resume(c, id), words), id)
	}
	behindID := most
	if most >= 0 {
		behindID++
	}
	flagged := p.verb(func(ctx context.Context, c *mcp.Client, words []string) error { return about(ctx, c, id, words) }, 0, most)
	plain := p.verb(func(ctx context.Context, c *mcp.Client, words []string) error {
		return about(ctx, c, words[0], words[1:])
	}, 1, behindID)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("id") {
			return flagged(cmd, args)
		}
		return plain(cmd, args)
	}
	return cmd
}

// isUnknownTask reports whether a server says that there is no such task.
func isUnknownTask(err error) bool {
	var said *mcp.Error
	return errors.As(err, &said) && said.Remote() && said.Code == mcp.CodeInvalidParams
}

// taskError says what an error of a server means for a task.
func taskError(err error, id string) error {
	var said *mcp.Error
	var own *coded
	switch {
	case errors.As(err, &own):
		return err
	case errors.As(err, &said) && said.Code == mcp.CodeMethodNotFound:
		return notFound(fmt.Errorf("the server has no tasks: %w", err))
	case !isUnknownTask(err):
		return err
	}
	return notFound(fmt.Errorf("the server knows no task %q of yours, or no longer (patchbay task list names those started here): %w", shorten(id, 100), err))
}

// showTask prints all that is known of a task.
func (p *program) showTask(t *tasks.Task) error {
	tool := p.toolOf(t.ID)
	if p.flags.json {
		p.output.value(newTaskReport(t, tool))
		return nil
	}
	p.describeTask(t, tool)
	if t.Result == nil {
		return nil
	}
	r, err := endOf(t)
	if err != nil {
		return err
	}
	if r.IsError {
		p.output.line("result   the tool failed")
	} else {
		p.output.line("result")
	}
	for _, c := range r.Content {
		p.output.line(indent(clean(describe(c)), "  "))
		if err := p.saveContent(c); err != nil {
			return err
		}
	}
	return nil
}

// endOf returns what a task has ended with, as the server has told it: asked once more, it might say something else.
func endOf(t *tasks.Task) (*mcp.ToolResult, error) {
	switch {
	case t.Result != nil:
		r := &mcp.ToolResult{}
		if err := json.Unmarshal(t.Result, r); err != nil {
			return nil, fmt.Errorf("%w: the result of the task: %w", mcp.ErrInvalidResult, err)
		}
		return r, nil
	case t.Error != nil:
		return nil, &coded{exitFailure, t.Error}
	case t.Status == tasks.StatusCancelled:
		if t.Message == "" {
			return nil, errors.New("the task was cancelled")
		}
		return nil, fmt.Errorf("the task was cancelled: %s", shorten(t.Message, maxReason))
	}
	return nil, fmt.Errorf("%w: the task is %s, and has no result", mcp.ErrInvalidResult, t.Status)
}

// calledOff has the error of a wait say, if it is that, that the task was cancelled, and why.
func calledOff(ctx context.Context, h *tasks.Handle, err error) error {
	if !errors.Is(err, mcp.ErrCancelled) || ctx.Err() != nil {
		return err
	}
	if t, failed := h.Get(ctx); failed == nil && t.Status == tasks.StatusCancelled {
		_, err = endOf(t)
	}
	return err
}

// maxReason is how much is shown of why a task was cancelled, in characters.
const maxReason = 500

// maxTaskLine is how much is shown of a single thing that a server says of a task, in characters: a status message may be as
// large as any answer.
const maxTaskLine = 5000

func (p *program) describeTask(t *tasks.Task, tool string) {
	line := func(name, value string) {
		if value != "" {
			p.output.line(fmt.Sprintf("%-8s %s", name, cleanLine(shorten(value, maxTaskLine))))
		}
	}
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
		line("asks", key+": "+questionWords(asked))
		line("", "  "+p.answerWith(t, key))
	}
	if t.Status == tasks.StatusInputRequired && len(t.InputRequests) == 0 {
		line("asks", "whoever watches it, or answers it unseen:")
		line("", "  "+p.taskLine("watch", t.ID))
		line("", "  "+p.answerUnseen(t.ID))
	}
	if t.Error != nil {
		line("error", fmt.Sprintf("%s (code %d)", t.Error.Message, t.Error.Code))
	}
}

// toolOf returns the tool of a task that was started here.
func (p *program) toolOf(id string) string {
	known, _ := notesOf(p.asked.Load()) // what cannot be read is not shown
	for _, n := range known {
		if n.ID == id {
			return n.Tool
		}
	}
	return ""
}

// taskLine returns the command line for a task at the server that is talked to.
func (p *program) taskLine(verb, id string, words ...string) string {
	t := p.asked.Load()
	line := []string{"patchbay", "task", verb}
	if t.command == nil || t.from != "" {
		line = append(line, t.words(p.flags.config))
	}
	if strings.HasPrefix(id, "-") {
		id = "--id=" + id
	}
	line = append(line, shellWord(id))
	line = append(line, words...)
	if t.command != nil && t.from == "" {
		line = append(line, "--")
		for _, word := range t.command {
			line = append(line, shellWord(word))
		}
	}
	return strings.Join(line, " ")
}
