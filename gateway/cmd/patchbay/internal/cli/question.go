package cli

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
	"github.com/patchbay-mcp/patchbay/oauth/oauthclient"
)

// A question is a request of the server that the user answers: elicitation or sampling.
type question interface {
	// message returns the text by which --question and the answers file select questions.
	message() string
	// summary returns what the server asks, on one line.
	summary() string
	// arguments returns the words with which `patchbay task answer` answers it.
	arguments() []string
	// parse returns the answer that these words give.
	parse(ctx context.Context, p *asker, given *givenAnswer) (*answer, error)
	// fits reports whether an entry of the answers file can answer it.
	fits(a *answer) bool
	// prompt asks the user on the terminal.
	prompt(ctx context.Context, p *asker) (*answer, error)
}

// A formQuestion is an elicitation in form mode.
type formQuestion struct{ *mcp.ElicitRequestParams }

// A pageQuestion is an elicitation in URL mode.
type pageQuestion struct{ *mcp.ElicitRequestParams }

// A samplingQuestion is a sampling request, in which the user plays the model.
type samplingQuestion struct{ *mcp.CreateMessageParams }

// answerQuestion returns the answer of the command line, of the answers file or of the user, in
// this order. Without any, it declines, or fails with errLeftOpen if p.leaveOpen is set.
func (p *asker) answerQuestion(ctx context.Context, q question) (*answer, error) {
	if other := p.active(); other != p {
		ctx, cancel := other.whileRunning(ctx)
		defer cancel()
		return other.answerQuestion(ctx, q)
	}
	if p.given != nil && !p.given.selects(q) {
		<-ctx.Done() // another program may answer it
		return nil, context.Cause(ctx)
	}
	unlock, err := p.lockTerminal(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if p.given != nil {
		a, err := p.given.answer(ctx, p, q)
		return a, p.given.done(ctx, err)
	}
	if a := p.answers.find(q); a != nil {
		note := string(a.action())
		if _, isPage := q.(pageQuestion); isPage && a.action() == mcp.ElicitAccept {
			note += "; the page is not opened: open it yourself"
		}
		p.IO.Err.printf("%s asks: %s\n  answered from %s: %s", p.server(), q.summary(), p.Flags.answers, note)
		return a, nil
	}
	if s, ok := q.(samplingQuestion); ok && p.sampler != nil {
		return p.answerWithCommand(ctx, s)
	}
	switch {
	case p.IO.mayPrompt():
	case p.leaveOpen:
		return nil, errLeftOpen
	default:
		p.IO.Err.printf("%s asks: %s\n  declined: %s", p.server(), q.summary(), p.whyNoPrompt())
		return &answer{Action: mcp.ElicitDecline}, nil
	}
	resume := p.pauseLimit()
	a, err := q.prompt(ctx, p)
	resume()
	switch {
	case errors.Is(err, errDeclined):
		return &answer{Action: mcp.ElicitDecline}, nil
	case errors.Is(err, errCancelled):
		return &answer{Action: mcp.ElicitCancel}, nil
	}
	return a, err
}

// lockTerminal waits until no other question is asked: a server can ask several at once, and there
// is one user.
func (a *asker) lockTerminal(ctx context.Context) (unlock func(), err error) {
	select {
	case a.lock <- struct{}{}:
		return func() { <-a.lock }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (p *asker) elicit(ctx context.Context, params *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	a, err := p.answerQuestion(ctx, formQuestion{params})
	if err != nil {
		return nil, err
	}
	return a.elicitResult(), nil
}

// elicitURL answers an elicitation in URL mode. The page is opened only if the user agrees. Spec:
// client/elicitation (2025-11-25, 2026-07-28), Safe URL Handling.
func (p *asker) elicitURL(ctx context.Context, params *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	q := pageQuestion{params}
	if _, err := oauthclient.CheckPage(params.URL); err != nil {
		p.IO.Err.printf("%s asks: %s\n  declined: %v", p.server(), q.summary(), err)
		return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
	}
	a, err := p.answerQuestion(ctx, q)
	if err != nil {
		return nil, err
	}
	return a.elicitResult(), nil
}

func (p *asker) sample(ctx context.Context, params *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
	a, err := p.answerQuestion(ctx, samplingQuestion{params})
	if err != nil {
		return nil, err
	}
	if a.action() != mcp.ElicitAccept {
		return nil, mcp.Errorf(driver.CodeUserRejected, "the user refused the sampling request")
	}
	return a.sampleResult(), nil
}

func parseQuestion(r mcp.InputRequest) (question, error) {
	var q question
	var err error
	switch r.Method {
	case driver.MethodElicitationCreate:
		params := &mcp.ElicitRequestParams{}
		err = json.Unmarshal(r.Params, params)
		if q = (formQuestion{params}); params.Mode == "url" {
			q = pageQuestion{params}
		}
	case driver.MethodSamplingCreateMessage:
		params := &mcp.CreateMessageParams{}
		q, err = samplingQuestion{params}, json.Unmarshal(r.Params, params)
	default:
		err = errors.New("unknown method")
	}
	if err != nil {
		return nil, fmt.Errorf("%w: invalid input request %q: %w", mcp.ErrInvalidResult, shorten(r.Method, 60), err)
	}
	return q, nil
}

// answerInputRequest returns the result that answers an input request of a task.
func (a *asker) answerInputRequest(ctx context.Context, r mcp.InputRequest) (stdjson.RawMessage, error) {
	a.leaveOpen = true
	q, err := parseQuestion(r)
	if err != nil {
		return nil, err
	}
	var result any
	switch q := q.(type) {
	case formQuestion:
		result, err = a.elicitComplete(ctx, q.ElicitRequestParams)
	case pageQuestion:
		result, err = a.elicitURL(ctx, q.ElicitRequestParams)
	case samplingQuestion:
		result, err = a.sample(ctx, q.CreateMessageParams)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// elicitComplete answers a form, fills in defaults and validates: a client does that for its
// requests, but not for those of a task.
func (a *asker) elicitComplete(ctx context.Context, params *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	form, err := jsonschema.Compile(params.RequestedSchema)
	if err != nil {
		return nil, fmt.Errorf("%w: requestedSchema: %w", mcp.ErrInvalidResult, err)
	}
	r, err := a.elicit(ctx, params)
	if err != nil || r.Action != mcp.ElicitAccept {
		return r, err
	}
	r.Content = form.ApplyDefaults(r.Content)
	if err := form.Validate(r.Content); err != nil {
		return nil, usage(fmt.Errorf("the answer does not match the form: %w", err))
	}
	return r, nil
}

func (q formQuestion) message() string { return q.Message }
func (q formQuestion) summary() string { return cleanLine(q.Message) }

func (q formQuestion) arguments() (words []string) {
	parameters, _ := parametersOf(q.RequestedSchema)
	for i := range parameters {
		words = append(words, parameters[i].bracketed(fieldUsage(&parameters[i])))
	}
	return words
}

// fieldUsage shows how a field is given: in a JSON object, if name=value would be ambiguous.
func fieldUsage(field *parameter) string {
	name := field.name
	if name == "" || strings.ContainsAny(name[:1], "-@{") || strings.Contains(name, "=") ||
		strings.HasSuffix(name, ":") {
		return shellWord(fmt.Sprintf("{%s: %s}", rawjson.AppendQuote(nil, name), typeName(field)))
	}
	return shellWord(name+"=") + typeName(field)
}

func (q formQuestion) parse(ctx context.Context, p *asker, given *givenAnswer) (*answer, error) {
	a, err := p.newFields(ctx, given.words, q.RequestedSchema)
	if err != nil {
		return nil, usage(errors.Join(err, errors.New("the question: "+q.summary())))
	}
	return &answer{Content: a.object()}, nil
}

func (q formQuestion) fits(a *answer) bool {
	if a.Field == "" {
		return true
	}
	fields, _ := parametersOf(q.RequestedSchema)
	return slices.ContainsFunc(fields, func(f parameter) bool { return f.name == a.Field })
}

func (q formQuestion) prompt(ctx context.Context, a *asker) (*answer, error) {
	fields, err := newForm(q.RequestedSchema)
	if err != nil {
		return nil, err
	}
	a.IO.Err.printf("\n%s asks:\n%s\n  (%s to decline, %s to cancel)", a.server(),
		indent(clean(q.Message), "  "), commandDecline, commandCancel)
	content, err := a.fillIn(ctx, fields)
	return &answer{Content: content}, err
}

func (q pageQuestion) message() string     { return q.Message }
func (q pageQuestion) summary() string     { return cleanLine(q.Message + " (open " + q.URL + ")") }
func (q pageQuestion) arguments() []string { return []string{"--action", "accept|decline"} }
func (q pageQuestion) fits(a *answer) bool { return a.Content == nil && a.Field == "" }

func (q pageQuestion) parse(_ context.Context, _ *asker, given *givenAnswer) (*answer, error) {
	if given.action == "" {
		return nil, usage(fmt.Errorf("missing --action: open %s yourself and give --action accept, or give "+
			"--action decline", cleanLine(q.URL)))
	}
	return &answer{Action: given.action}, nil
}

func (q pageQuestion) prompt(ctx context.Context, a *asker) (*answer, error) {
	page, err := oauthclient.CheckPage(q.URL)
	if err != nil {
		return nil, err
	}
	a.IO.Err.printf("\n%s asks you to open a page:\n%s\n\n  %s\n  host %s%s",
		a.server(), indent(clean(q.Message), "  "), clean(page.String()), page.Host, hostWarning(page.Hostname()))
	yes, err := a.confirm(ctx, "Open it in your browser? y, n or "+commandCancel, "n")
	switch {
	case err != nil:
		return nil, err
	case !yes:
		return nil, errDeclined
	}
	a.openPage(ctx, page.String())
	a.IO.Err.status("waiting for the server …")
	return &answer{Action: mcp.ElicitAccept}, nil
}

// message returns the text of the last message.
func (q samplingQuestion) message() string {
	if len(q.Messages) == 0 {
		return ""
	}
	var last strings.Builder
	for _, c := range q.Messages[len(q.Messages)-1].Content {
		if text, ok := c.(*mcp.TextContent); ok {
			last.WriteString(text.Text)
		}
	}
	return last.String()
}

func (q samplingQuestion) summary() string {
	return cleanLine("sampling, the answer of a language model to: " + shorten(q.message(), 100))
}
func (q samplingQuestion) arguments() []string { return []string{"text=…"} }
func (q samplingQuestion) fits(*answer) bool   { return true }

// samplingSchema is the schema of the words that answer a sampling request.
const samplingSchema = `{"type": "object", "properties": {"text": {"type": "string"}, "model": {"type": "string"}},
	"required": ["text"]}`

func (q samplingQuestion) parse(ctx context.Context, p *asker, given *givenAnswer) (*answer, error) {
	fields, err := p.newFields(ctx, given.words, stdjson.RawMessage(samplingSchema))
	if err != nil {
		return nil, usage(err)
	}
	a := &answer{}
	if err := json.Unmarshal(fields.object(), a); err != nil {
		return nil, usage(err)
	}
	return a, nil
}

func (q samplingQuestion) prompt(ctx context.Context, a *asker) (*answer, error) {
	a.IO.Err.printf("\n%s requests sampling: answer as the language model.\n%s\n\n  Type the answer. End it with a "+
		"line that is a single dot (%s to decline):",
		a.server(), indent(q.conversation(), "  "), commandDecline)
	text, err := a.promptParagraph(ctx)
	return &answer{Text: text}, err
}

func (q samplingQuestion) conversation() string {
	var b strings.Builder
	if q.SystemPrompt != "" {
		b.WriteString("system: " + clean(q.SystemPrompt) + "\n")
	}
	for _, m := range q.Messages {
		for _, c := range m.Content {
			b.WriteString(cleanLine(string(m.Role)) + ": " + clean(describe(c)) + "\n")
		}
	}
	return b.String()
}

// hostWarning returns a line with the warning about a host, or "".
func hostWarning(host string) string {
	if warning := (&mcp.ElicitRequestParams{URL: "https://" + host}).HostWarning(); warning != "" {
		return "\n  warning: " + warning
	}
	return ""
}
