package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A givenAnswer is the answer on the command line of `patchbay task answer`.
type givenAnswer struct {
	words  []string
	action mcp.ElicitAction

	// The fields below are for tasks of 2025-11-25, which ask by requests to the client. One
	// question that contains about is answered, and no other. report is called once, with the
	// error of that answer: the server does not see it, so that the question stays open.
	about  string
	report func(err error)
	used   bool
}

func taskAnswerCommand(f *factory) *cobra.Command {
	var question, action string
	cmd := taskCommand(f, "answer ID [FIELD…]", "Answer a question of a task",
		func(ctx context.Context, h *tasks.Handle, words []string) error {
			given := &givenAnswer{words: words, action: mcp.ElicitAction(action)}
			if err := given.check(); err != nil {
				return usage(err)
			}
			if len(words) > 0 || action != "" {
				f.Ask.given = given
			}
			return answerTask(ctx, f, h, question)
		})
	cmd.Flags().StringVar(&question, "question", "", "the `key` of the question to answer (2025-11-25: a part of it)")
	cmd.Flags().StringVar(&action, "action", "", "the `action`: accept, decline or cancel")
	return cmd
}

func (g *givenAnswer) check() error {
	if err := checkAction(g.action); err != nil {
		return fmt.Errorf("--action: %w", err)
	}
	if len(g.words) > 0 && g.action != "" && g.action != mcp.ElicitAccept {
		return fmt.Errorf("--action %s does not allow fields", g.action)
	}
	return nil
}

func answerTask(ctx context.Context, f *factory, h *tasks.Handle, only string) error {
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
		return answerDirect(ctx, f, h, only)
	}
	keys, err := questionKeys(f, t, only)
	if err != nil {
		return usage(err)
	}
	answers := map[string]any{}
	for _, key := range keys {
		answer, err := f.Ask.answerInputRequest(ctx, t.InputRequests[key])
		switch {
		case errors.Is(err, errLeftOpen):
			f.IO.Err.printf("left open: %s", cleanLine(describeInput(t.InputRequests[key])))
		case err != nil:
			return fmt.Errorf("question %s: %w", shorten(cleanLine(key), 60), err)
		default:
			answers[key] = answer
		}
	}
	if len(answers) == 0 {
		return usage(errors.New("no question was answered"))
	}
	if err := h.Answer(ctx, answers); err != nil {
		return err
	}
	return showAnswered(ctx, f, h)
}

func questionKeys(f *factory, t *tasks.Task, only string) ([]string, error) {
	keys := keysOf(t)
	if only != "" {
		key, err := find(keys, only, "question", func(key string) string { return key })
		return []string{key}, err
	}
	var lines []string
	for _, key := range keys {
		lines = append(lines, fmt.Sprintf("%s: %s\n  %s", key, describeInput(t.InputRequests[key]),
			answerCommand(f, t, key)))
	}
	switch all := strings.Join(lines, "\n"); {
	case f.Ask.given != nil && len(keys) > 1:
		return nil, fmt.Errorf("the task has %d questions: select one with --question\n%s", len(keys), all)
	case f.Ask.given == nil && !f.IO.mayPrompt() && f.Ask.answers == nil:
		return nil, fmt.Errorf("missing answer: %s\n%s", f.Ask.whyNoPrompt(), all)
	}
	return keys, nil
}

// errLeftOpen is returned for a question without an answer.
var errLeftOpen = errors.New("the question stays open")

// answerDirect answers a task of 2025-11-25, which asks by requests to the client that waits for it.
func answerDirect(ctx context.Context, f *factory, h *tasks.Handle, about string) error {
	const timeout = 10 * time.Second // for the question to arrive
	if f.Ask.given == nil {
		return usage(fmt.Errorf("missing answer: this server does not show the question; give an answer, or run "+
			"%s", taskCommandLine(f, "watch", h.ID())))
	}
	waiting, stop := context.WithCancel(ctx)
	answered, ended := make(chan error, 1), make(chan error, 1)
	f.Ask.given.about, f.Ask.given.report = about, func(err error) { answered <- err }
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
		err = awaitAnswered(ctx, f, h)
	}
	if err != nil {
		return err
	}
	return showAnswered(ctx, f, h)
}

// answerOfEnded returns the error of the answer to a task that has ended with err. The task may have
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

// awaitAnswered waits until the server has processed an answer.
func awaitAnswered(ctx context.Context, f *factory, h *tasks.Handle) error {
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

func showAnswered(ctx context.Context, f *factory, h *tasks.Handle) error {
	if !f.Flags.json {
		f.IO.Err.printf("Answered. To watch the task: %s", taskCommandLine(f, "watch", h.ID()))
		return nil
	}
	t, err := h.Get(ctx)
	if err != nil {
		return err
	}
	return showTask(f, t)
}

// describeInput returns what a task asks, on one line.
func describeInput(r mcp.InputRequest) string {
	const longest = 300
	q, err := parseQuestion(r)
	if err != nil {
		return shorten(cleanLine(r.Method), longest)
	}
	return shorten(q.summary(), longest)
}

// answerCommand returns the command that answers one question of a task.
func answerCommand(f *factory, t *tasks.Task, key string) string {
	var words []string
	if len(t.InputRequests) > 1 {
		words = append(words, "--question", shellWord(key))
	}
	if q, err := parseQuestion(t.InputRequests[key]); err == nil {
		words = append(words, q.arguments()...)
	}
	return taskCommandLine(f, "answer", t.ID, words...)
}

// selects reports whether a question is the one to answer.
func (g *givenAnswer) selects(q question) bool {
	return g.report == nil || strings.Contains(q.message(), g.about)
}

func (g *givenAnswer) answer(ctx context.Context, a *asker, q question) (*answer, error) {
	if g.action != "" && g.action != mcp.ElicitAccept {
		return &answer{Action: g.action}, nil
	}
	return q.parse(ctx, a, g)
}

// done reports how a question was answered. After an error, and for a second question, it waits
// for the end of the connection instead of returning, so that nothing is sent.
func (g *givenAnswer) done(ctx context.Context, err error) error {
	if g.report == nil {
		return err
	}
	first := !g.used
	if g.used = true; first {
		g.report(err)
	}
	if err == nil && first {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
