package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/question"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// NewCmdAnswer returns the command "task answer".
func NewCmdAnswer(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	o := &Options{}
	cmd := newCmd(f, "answer ID [FIELD…]", "Answer a question of a task", o, run, answerTask)
	cmd.Flags().StringVar(&o.Question, "question", "", "the `key` of the question to answer (2025-11-25: a part of it)")
	cmd.Flags().StringVar((*string)(&o.Action), "action", "", "the `action`: accept, decline or cancel")
	return cmd
}

func answerTask(ctx context.Context, o *Options, h *tasks.Handle) error {
	f, given := o.Factory, &question.Given{Words: o.Words[1:], Action: o.Action}
	if err := given.Check(); err != nil {
		return exit.UsageError(err)
	}
	if len(given.Words) > 0 || o.Action != "" {
		f.Ask.Given = given
	}
	t, err := h.Get(ctx)
	if err != nil {
		return err
	}
	switch {
	case t.Status.Final():
		return fmt.Errorf("the task has ended: its status is %s", t.Status)
	case t.Status != tasks.StatusInputRequired:
		return fmt.Errorf("the task has no question now: its status is %s", t.Status)
	case len(t.InputRequests) == 0:
		return answerDirect(ctx, f, h, o.Question)
	}
	keys, err := questionKeys(f, t, o.Question)
	if err != nil {
		return exit.UsageError(err)
	}
	answers := map[string]any{}
	for _, key := range keys {
		answer, err := f.Ask.AnswerInputRequest(ctx, t.InputRequests[key])
		switch {
		case errors.Is(err, question.ErrLeftOpen):
			f.IO.Err.Printf("left open: %s", term.CleanLine(question.DescribeInput(t.InputRequests[key])))
		case err != nil:
			return fmt.Errorf("question %s: %w", term.Shorten(term.CleanLine(key), 60), err)
		default:
			answers[key] = answer
		}
	}
	if len(answers) == 0 {
		return exit.UsageError(errors.New("no question was answered"))
	}
	if err := h.Answer(ctx, answers); err != nil {
		return err
	}
	return showAnswered(ctx, f, h)
}

func questionKeys(f *cmdutil.Factory, t *tasks.Task, only string) ([]string, error) {
	keys := keysOf(t)
	if only != "" {
		key, err := cmdutil.Find(keys, only, "question", func(key string) string { return key })
		return []string{key}, err
	}
	var lines []string
	for _, key := range keys {
		lines = append(lines, fmt.Sprintf("%s: %s\n  %s", key, question.DescribeInput(t.InputRequests[key]),
			answerCommand(f, t, key)))
	}
	switch all := strings.Join(lines, "\n"); {
	case f.Ask.Given != nil && len(keys) > 1:
		return nil, fmt.Errorf("the task has %d questions: select one with --question\n%s", len(keys), all)
	case f.Ask.Given == nil && !f.IO.MayPrompt() && f.Ask.Answers == nil:
		return nil, fmt.Errorf("missing answer: %s\n%s", f.Ask.WhyNoPrompt(), all)
	}
	return keys, nil
}

// answerDirect answers a task of 2025-11-25, which asks by requests to the client that waits for it.
func answerDirect(ctx context.Context, f *cmdutil.Factory, h *tasks.Handle, about string) error {
	const timeout = 10 * time.Second // for the question to arrive
	if f.Ask.Given == nil {
		return exit.UsageError(fmt.Errorf(
			"missing answer: this server does not show the question; give an answer, or run "+
				"%s", TaskCommandLine(f, "watch", h.ID())))
	}
	waiting, stop := context.WithCancel(ctx)
	answered, ended := make(chan error, 1), make(chan error, 1)
	f.Ask.Given.About, f.Ask.Given.Report = about, func(err error) { answered <- err }
	var waits sync.WaitGroup
	waits.Go(func() {
		_, err := h.Wait(waiting)
		ended <- err
	})
	defer func() { stop(); waits.Wait() }()
	var err error
	select {
	case err = <-answered:
	case err = <-ended:
		err = answerOfEnded(answered, err)
	case <-time.After(timeout):
		if err = fmt.Errorf("no question of the task within %v", timeout); about != "" {
			err = fmt.Errorf("no question of the task contains %q", about)
		}
	}
	if err == nil {
		err = awaitAnswered(ctx, h)
	}
	if err != nil {
		return err
	}
	return showAnswered(ctx, f, h)
}

// answerOfEnded returns the error of the answer to a task that ended with err. The task may have
// ended because of the answer, before this command noticed that it was sent.
func answerOfEnded(answered <-chan error, err error) error {
	select {
	case answer := <-answered:
		return answer
	default:
	}
	if err == nil {
		err = errors.New("the task ended without a question")
	}
	return err
}

// awaitAnswered waits until the server processed an answer.
func awaitAnswered(ctx context.Context, h *tasks.Handle) error {
	const interval, timeout = 50 * time.Millisecond, 2 * time.Second
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		t, err := h.Get(ctx)
		if err != nil || t.Status != tasks.StatusInputRequired {
			return err
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil // there is another question
}

func showAnswered(ctx context.Context, f *cmdutil.Factory, h *tasks.Handle) error {
	if !f.Flags.JSON {
		f.IO.Err.Printf("Answered. To watch the task: %s", TaskCommandLine(f, "watch", h.ID()))
		return nil
	}
	t, err := h.Get(ctx)
	if err != nil {
		return err
	}
	return showTask(f, t)
}
