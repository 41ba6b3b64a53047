package cli

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/ext/tasks"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
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

// A givenAnswer is one from the command line.
type givenAnswer struct {
	words  []string
	action mcp.ElicitAction

	// settled, if it is set, is told once whether the answer could be given. Then the question came as a request of the
	// server's, and the answer to one that does not fit would be an error: nothing is answered instead.
	settled func(err error)
	about   string // a part of the question that is answered then; empty for whichever comes first
	used    bool
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
	return p.ofTask(cmd, func(ctx context.Context, h *tasks.Handle, words []string) error {
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
	if err := (&answer{Action: g.action}).checkAction(); err != nil {
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
		answer, err := p.answerQuestion(ctx, t.InputRequests[key])
		switch {
		case errors.Is(err, errLeftOpen):
			p.screen.printf("left open: %s", cleanLine(questionWords(t.InputRequests[key])))
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
		lines = append(lines, fmt.Sprintf("%s: %s\n  %s", key, questionWords(t.InputRequests[key]), p.answerWith(t, key)))
	}
	switch all := strings.Join(lines, "\n"); {
	case p.given != nil && len(keys) > 1:
		return nil, fmt.Errorf("the task asks %d things, and --question does not say which one is answered:\n%s", len(keys), all)
	case p.given == nil && !p.mayAsk() && p.answers == nil:
		return nil, fmt.Errorf("no answer is given, and %s:\n%s", p.whyNot(), all)
	}
	return keys, nil
}

// errLeftOpen says that nobody was there to answer a question.
var errLeftOpen = errors.New("the question is left open")

// answerDirect answers what a task asks by requests of its own while somebody waits for its result, as tasks of 2025-11-25
// do. What it will ask is not known before, and several questions come in any order.
func (p *program) answerDirect(ctx context.Context, h *tasks.Handle, about string) error {
	const patience = 10 * time.Second // for a question that the task says it has
	if p.given == nil {
		return usage(fmt.Errorf("a task of this server asks whoever watches it: %s, or give the answer here", p.taskLine("watch", h.ID())))
	}
	waiting, stop := context.WithCancel(ctx)
	answered, ended := make(chan error, 1), make(chan error, 1)
	p.given.about, p.given.settled = about, func(err error) { answered <- err }
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
	case <-time.After(patience):
		if about == "" {
			return fmt.Errorf("the task says that it asks something, and has asked nothing within %v", patience)
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
		p.screen.printf("Answered. %s shows how it goes on.", p.taskLine("watch", h.ID()))
		return nil
	}
	t, err := h.Get(ctx)
	if err != nil {
		return err
	}
	return p.showTask(t)
}

// questionWords tells what a task asks.
func questionWords(q mcp.InputRequest) string {
	const longest = 300
	var asked mcp.ElicitParams
	switch {
	case q.Method == wire.MethodSamplingCreateMessage:
		return "for the answer of a language model"
	case q.Method != wire.MethodElicitationCreate || json.Unmarshal(q.Params, &asked) != nil:
		return "for " + shorten(q.Method, longest)
	case asked.URL != "":
		return shorten(asked.Message, longest) + " " + asked.URL
	}
	return shorten(asked.Message, longest)
}

// answerUnseen returns the command that answers a question that is not shown before.
func (p *program) answerUnseen(id string) string { return p.taskLine("answer", id, "FIELD=VALUE…") }

// answerWith returns the command that answers a question.
func (p *program) answerWith(t *tasks.Task, key string) string {
	var fields []string
	if len(t.InputRequests) > 1 {
		fields = append(fields, "--question", shellWord(key))
	}
	q, asked := t.InputRequests[key], mcp.ElicitParams{}
	switch {
	case q.Method == wire.MethodSamplingCreateMessage:
		fields = append(fields, "text=…")
	case json.Unmarshal(q.Params, &asked) == nil && asked.URL != "":
		fields = append(fields, "--action", "accept|decline")
	default:
		parameters, _ := parametersOf(asked.RequestedSchema)
		for i := range parameters {
			word := fieldWord(&parameters[i])
			if !parameters[i].required {
				word = "[" + word + "]"
			}
			fields = append(fields, word)
		}
	}
	return p.taskLine("answer", t.ID, fields...)
}

// fieldWord tells how a field is written: as a JSON object, if its name would be read as something else than a name.
func fieldWord(field *parameter) string {
	name := field.name
	if name == "" || strings.ContainsAny(name[:1], "-@{") || strings.Contains(name, "=") || strings.HasSuffix(name, ":") {
		return shellWord(fmt.Sprintf("{%s: %s}", jsonscan.AppendQuote(nil, name), kindWord(field)))
	}
	return shellWord(name+"=") + kindWord(field)
}

// answerQuestion returns the answer to a question of a task, as it is sent.
func (p *program) answerQuestion(ctx context.Context, q mcp.InputRequest) (stdjson.RawMessage, error) {
	p.leavesOpen = true
	switch q.Method {
	case wire.MethodElicitationCreate:
		return p.answerElicitation(ctx, q.Params)
	case wire.MethodSamplingCreateMessage:
		var asked mcp.SampleParams
		if err := json.Unmarshal(q.Params, &asked); err != nil {
			return nil, fmt.Errorf("%w: the params of sampling cannot be read", mcp.ErrInvalidResult)
		}
		r, err := p.sample(ctx, &asked)
		if err != nil {
			return nil, err
		}
		return json.Marshal(r)
	}
	return nil, fmt.Errorf("%w: nobody can be asked for %q", mcp.ErrInvalidResult, shorten(q.Method, 60))
}

// answerElicitation has the user answer, and completes and checks what a form was filled in with.
func (p *program) answerElicitation(ctx context.Context, params stdjson.RawMessage) (stdjson.RawMessage, error) {
	var asked mcp.ElicitParams
	if err := json.Unmarshal(params, &asked); err != nil {
		return nil, fmt.Errorf("%w: the params of an elicitation cannot be read", mcp.ErrInvalidResult)
	}
	if asked.Mode == "url" {
		r, err := p.elicitURL(ctx, &asked)
		if err != nil {
			return nil, err
		}
		return json.Marshal(r)
	}
	form, err := schema.Compile(asked.RequestedSchema)
	if err != nil {
		return nil, fmt.Errorf("%w: requestedSchema: %w", mcp.ErrInvalidResult, err)
	}
	r, err := p.elicit(ctx, &asked)
	if err != nil {
		return nil, err
	}
	if r.Action == mcp.ElicitAccept {
		r.Content = form.ApplyDefaults(r.Content)
		if err := form.Validate(r.Content); err != nil {
			return nil, usage(fmt.Errorf("the answer is not what was asked for: %w", err))
		}
	}
	return json.Marshal(r)
}

// isFor waits, with the error of ctx, if a question is one that somebody else may answer.
func (g *givenAnswer) isFor(ctx context.Context, question string) error {
	if g == nil || g.settled == nil || strings.Contains(question, g.about) {
		return nil
	}
	<-ctx.Done()
	return context.Cause(ctx)
}

// settle says how a question was answered.
func (g *givenAnswer) settle(ctx context.Context, err error) error {
	if g.settled == nil {
		return err
	}
	again := g.used
	if g.used = true; !again {
		g.settled(err)
	}
	if err == nil && !again {
		return nil
	}
	<-ctx.Done() // with the connection: the question stays open
	return context.Cause(ctx)
}

// form returns the answer to a form.
func (g *givenAnswer) form(ctx context.Context, p *program, q *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	if g.action != "" && g.action != mcp.ElicitAccept {
		return &mcp.ElicitResult{Action: g.action}, nil
	}
	a, err := p.newFields(ctx, g.words, q.RequestedSchema)
	if err != nil {
		return nil, usage(errors.Join(err, errors.New("it asks: "+cleanLine(q.Message))))
	}
	return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: a.object()}, nil
}

// page returns the answer to a page.
func (g *givenAnswer) page(q *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	if g.action == "" {
		return nil, usage(fmt.Errorf("it wants a page visited, %s: open it yourself and give --action accept, or --action decline", cleanLine(q.URL)))
	}
	return &mcp.ElicitResult{Action: g.action}, nil
}

// samplingFields is what the answer of a model is given as.
const samplingFields = `{"type": "object", "properties": {"text": {"type": "string"}, "model": {"type": "string"}},
	"required": ["text"]}`

// sample returns the answer of a model; nil refuses.
func (g *givenAnswer) sample(ctx context.Context, p *program) (*mcp.SampleResult, error) {
	if g.action != "" && g.action != mcp.ElicitAccept {
		return nil, nil
	}
	a, err := p.newFields(ctx, g.words, stdjson.RawMessage(samplingFields))
	if err != nil {
		return nil, usage(err)
	}
	var said answer
	if err := json.Unmarshal(a.object(), &said); err != nil {
		return nil, usage(err)
	}
	return said.sample(), nil
}
