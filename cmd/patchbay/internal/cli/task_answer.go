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

const helpTaskAnswer = `Answer what a task asks. The fields of a form are given as arguments of tools are (see help
arguments), the answer of a language model as text=… and model=…; --action declines or
dismisses instead, or agrees to visit a page. Where the task asks several things at once,
--question says which one is answered; patchbay task get shows them. Servers of revision
2025-11-25 do not show what a task asks before it is answered; there --question is a part of
the question.

Without an answer on the command line the questions are asked on the terminal, or answered
from --answers. What is not answered stays open.`

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

func (p *program) taskAnswerVerb() *cobra.Command {
	var question, action string
	cmd := &cobra.Command{
		Use:   "answer TARGET ID [FIELD…] | answer ID [FIELD…] -- COMMAND…",
		Short: "Answer what a task asks",
		Long:  helpTaskAnswer,
		Example: `  patchbay task answer http://127.0.0.1:8765/mcp ID publish=true note=hello
  patchbay task answer http://127.0.0.1:8765/mcp ID '{"publish": true}'
  patchbay task answer http://127.0.0.1:8765/mcp ID --action decline`,
	}
	cmd.Flags().StringVar(&question, "question", "", "the `key` of the question that is answered, or a part of it")
	cmd.Flags().StringVar(&action, "action", "", "accept, decline or cancel")
	return p.taskVerb(cmd, func(ctx context.Context, h *tasks.Handle, words []string) error {
		given := &givenAnswer{words: words, action: mcp.ElicitAction(action)}
		if err := given.check(); err != nil {
			return usage(err)
		}
		if len(given.words) > 0 || action != "" {
			p.given = given
		}
		return p.answerTask(ctx, h, question)
	}, -1)
}

func (g *givenAnswer) check() error {
	if err := checkAction(g.action); err != nil {
		return fmt.Errorf("--action: %w", err)
	}
	if len(g.words) > 0 && g.action != "" && g.action != mcp.ElicitAccept {
		return fmt.Errorf("--action %s has no fields", g.action)
	}
	return nil
}

// answerTask answers what a task asks now.
func (p *program) answerTask(ctx context.Context, h *tasks.Handle, only string) error {
	t, err := h.Get(ctx)
	if err != nil {
		return err
	}
	switch {
	case t.Status.Final():
		return fmt.Errorf("the task asks nothing any more: it is %s", t.Status)
	case t.Status != tasks.StatusInputRequired:
		return fmt.Errorf("the task asks nothing now: it is %s", t.Status)
	case len(t.InputRequests) == 0:
		return p.answerDirect(ctx, h, only)
	}
	keys, err := p.chosen(t, only)
	if err != nil {
		return usage(err)
	}
	answers := map[string]any{}
	for _, key := range keys {
		answer, err := p.answerInputRequest(ctx, t.InputRequests[key])
		switch {
		case errors.Is(err, errLeftOpen):
			p.screen.printf("left open: %s", cleanLine(describeInput(t.InputRequests[key])))
		case err != nil:
			return fmt.Errorf("question %s: %w", shorten(cleanLine(key), 60), err)
		default:
			answers[key] = answer
		}
	}
	if len(answers) == 0 {
		return usage(errors.New("none of the task's questions is answered"))
	}
	if err := h.Answer(ctx, answers); err != nil {
		return err
	}
	return p.showAnswered(ctx, h)
}

// chosen returns the keys of the questions to answer.
func (p *program) chosen(t *tasks.Task, only string) ([]string, error) {
	keys := keysOf(t)
	if only != "" {
		key, err := find(keys, only, "question", func(key string) string { return key })
		return []string{key}, err
	}
	var lines []string
	for _, key := range keys {
		lines = append(lines, fmt.Sprintf("%s: %s\n  %s", key, describeInput(t.InputRequests[key]), p.answerCommand(t, key)))
	}
	switch all := strings.Join(lines, "\n"); {
	case p.given != nil && len(keys) > 1:
		return nil, fmt.Errorf("the task asks %d things, and --question does not say which one is answered:\n%s", len(keys), all)
	case p.given == nil && !p.mayPrompt() && p.answers == nil:
		return nil, fmt.Errorf("no answer is given, and %s:\n%s", p.whyNoPrompt(), all)
	}
	return keys, nil
}

// errLeftOpen says that nobody was there to answer a question.
var errLeftOpen = errors.New("the question is left open")

// answerDirect answers what a task asks by requests of its own while somebody waits for its result, as tasks of 2025-11-25
// do. What it will ask is not known before, and several questions come in any order.
func (p *program) answerDirect(ctx context.Context, h *tasks.Handle, about string) error {
	const timeout = 10 * time.Second // for a question that the task says it has
	if p.given == nil {
		return usage(fmt.Errorf("a task of this server asks whoever watches it: %s, or give the answer here", p.taskCommandLine("watch", h.ID())))
	}
	waiting, stop := context.WithCancel(ctx)
	answered, ended := make(chan error, 1), make(chan error, 1)
	p.given.about, p.given.report = about, func(err error) { answered <- err }
	var waits sync.WaitGroup
	waits.Go(func() {
		_, err := h.Wait(waiting)
		ended <- err
	})
	defer func() { stop(); waits.Wait() }()
	select {
	case err := <-ended:
		if err == nil {
			err = errors.New("the task has ended without a question")
		}
		return err
	case err := <-answered:
		if err != nil {
			return err
		}
	case <-time.After(timeout):
		if about == "" {
			return fmt.Errorf("the task says that it asks something, and has asked nothing within %v", timeout)
		}
		return fmt.Errorf("the task asks nothing that has %q in it", about)
	}
	if err := p.awaitTaken(ctx, h); err != nil {
		return err
	}
	return p.showAnswered(ctx, h)
}

// awaitTaken waits until the server has taken an answer: the task waits for it no more.
func (p *program) awaitTaken(ctx context.Context, h *tasks.Handle) error {
	const pause, most = 50 * time.Millisecond, 2 * time.Second
	for end := time.Now().Add(most); time.Now().Before(end); {
		t, err := h.Get(ctx)
		if err != nil || t.Status != tasks.StatusInputRequired {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil // it asks the next question already
}

// showAnswered says that an answer was sent.
func (p *program) showAnswered(ctx context.Context, h *tasks.Handle) error {
	if !p.flags.json {
		p.screen.printf("Answered. %s shows how it goes on.", p.taskCommandLine("watch", h.ID()))
		return nil
	}
	t, err := h.Get(ctx)
	if err != nil {
		return err
	}
	return p.showTask(t)
}

// describeInput says on one line what a task asks.
func describeInput(r mcp.InputRequest) string {
	const longest = 300
	q, err := parseQuestion(r)
	if err != nil {
		return shorten(cleanLine(r.Method), longest)
	}
	return shorten(q.summary(), longest)
}

// answerAnyCommand returns the command that answers a question that the server does not show.
func (p *program) answerAnyCommand(id string) string {
	return p.taskCommandLine("answer", id, "FIELD=VALUE…")
}

// answerCommand returns the command that answers one question of a task.
func (p *program) answerCommand(t *tasks.Task, key string) string {
	var words []string
	if len(t.InputRequests) > 1 {
		words = append(words, "--question", shellWord(key))
	}
	if q, err := parseQuestion(t.InputRequests[key]); err == nil {
		words = append(words, q.arguments()...)
	}
	return p.taskCommandLine("answer", t.ID, words...)
}

// selects reports whether a question is the one to answer.
func (g *givenAnswer) selects(q question) bool {
	return g.report == nil || strings.Contains(q.message(), g.about)
}

func (g *givenAnswer) answer(ctx context.Context, p *program, q question) (*answer, error) {
	if g.action != "" && g.action != mcp.ElicitAccept {
		return &answer{Action: g.action}, nil
	}
	return q.parse(ctx, p, g)
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
