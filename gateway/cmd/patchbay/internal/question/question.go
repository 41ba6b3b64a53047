// Package question answers elicitation and sampling: from a file, from a command, or by asking the user.
package question

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/argument"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
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
	// summary returns the question on a single line.
	summary() string
	// Arguments returns the words with which `patchbay task answer` answers it.
	Arguments() []string
	// parse returns the answer that these words give.
	parse(ctx context.Context, p *Asker, given *Given) (*answer, error)
	// fits reports whether an entry of the answers file can answer it.
	fits(a *answer) bool
	// prompt asks the user on the terminal.
	prompt(ctx context.Context, p *Asker) (*answer, error)
}

// A formQuestion is an elicitation in form mode.
type formQuestion struct{ *mcp.ElicitRequestParams }

// A pageQuestion is an elicitation in URL mode.
type pageQuestion struct{ *mcp.ElicitRequestParams }

// answerQuestion returns the answer of the command line, of the answers file or of the user, in
// this order. Without any, it declines, or fails with errLeftOpen if p.leaveOpen is set.
func (p *Asker) answerQuestion(ctx context.Context, q question) (*answer, error) {
	if other := p.active(); other != p {
		ctx, cancel := other.whileRunning(ctx)
		defer cancel()
		return other.answerQuestion(ctx, q)
	}
	if p.Given != nil && !p.Given.selects(q) {
		<-ctx.Done() // another program may answer it
		return nil, context.Cause(ctx)
	}
	unlock, err := p.lockTerminal(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if p.Given != nil {
		a, err := p.Given.answer(ctx, p, q)
		return a, p.Given.done(ctx, err)
	}
	if a := p.Answers.find(q); a != nil {
		note := string(a.action())
		if _, isPage := q.(pageQuestion); isPage && a.action() == mcp.ElicitAccept {
			note += "; the page is not opened: open it yourself"
		}
		p.IO.Err.Printf("%s asks: %s\n  answered from %s: %s", p.server(), q.summary(), p.Flags.Answers, note)
		return a, nil
	}
	if s, ok := q.(samplingQuestion); ok && p.Sampler != nil {
		return p.answerWithCommand(ctx, s)
	}
	switch {
	case p.IO.MayPrompt():
	case p.leaveOpen:
		return nil, ErrLeftOpen
	default:
		p.IO.Err.Printf("%s asks: %s\n  declined: %s", p.server(), q.summary(), p.WhyNoPrompt())
		return &answer{Action: mcp.ElicitDecline}, nil
	}
	resume := p.PauseLimit()
	a, err := q.prompt(ctx, p)
	resume()
	switch {
	case errors.Is(err, ErrDeclined):
		return &answer{Action: mcp.ElicitDecline}, nil
	case errors.Is(err, ErrCancelled):
		return &answer{Action: mcp.ElicitCancel}, nil
	}
	return a, err
}

// Elicit answers an elicitation in form mode.
func (p *Asker) Elicit(ctx context.Context, params *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	a, err := p.answerQuestion(ctx, formQuestion{params})
	if err != nil {
		return nil, err
	}
	return a.elicitResult(), nil
}

// ElicitURL answers an elicitation in URL mode. The page is opened only if the user agrees. Spec:
// client/elicitation (2025-11-25, 2026-07-28), Safe URL Handling.
func (p *Asker) ElicitURL(ctx context.Context, params *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	q := pageQuestion{params}
	if _, err := oauthclient.CheckPage(params.URL); err != nil {
		p.IO.Err.Printf("%s asks: %s\n  declined: %v", p.server(), q.summary(), err)
		return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
	}
	a, err := p.answerQuestion(ctx, q)
	if err != nil {
		return nil, err
	}
	return a.elicitResult(), nil
}

// Sample answers a sampling request.
func (p *Asker) Sample(ctx context.Context, params *mcp.CreateMessageParams) (*mcp.CreateMessageResult, error) {
	a, err := p.answerQuestion(ctx, samplingQuestion{params})
	if err != nil {
		return nil, err
	}
	return a.sampleResult()
}

// ParseQuestion returns the question of an input request.
func ParseQuestion(r mcp.InputRequest) (question, error) {
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
		return nil, fmt.Errorf("%w: invalid input request %q: %w", mcp.ErrInvalidResult, term.Shorten(r.Method, 60),
			err)
	}
	return q, nil
}

// AnswerInputRequest returns the result that answers an input request of a task.
func (p *Asker) AnswerInputRequest(ctx context.Context, r mcp.InputRequest) (stdjson.RawMessage, error) {
	p.leaveOpen = true
	q, err := ParseQuestion(r)
	if err != nil {
		return nil, err
	}
	var result any
	switch q := q.(type) {
	case formQuestion:
		result, err = p.elicitComplete(ctx, q.ElicitRequestParams)
	case pageQuestion:
		result, err = p.ElicitURL(ctx, q.ElicitRequestParams)
	case samplingQuestion:
		result, err = p.Sample(ctx, q.CreateMessageParams)
	}
	if err != nil {
		return nil, err
	}
	return json.Marshal(result)
}

// elicitComplete answers a form, fills in defaults and validates. A client does so for its
// requests, but not for the requests of a task.
func (p *Asker) elicitComplete(ctx context.Context, params *mcp.ElicitRequestParams) (*mcp.ElicitResult, error) {
	form, err := jsonschema.Compile(params.RequestedSchema)
	if err != nil {
		return nil, fmt.Errorf("%w: requestedSchema: %w", mcp.ErrInvalidResult, err)
	}
	r, err := p.Elicit(ctx, params)
	if err != nil || r.Action != mcp.ElicitAccept {
		return r, err
	}
	r.Content = form.ApplyDefaults(r.Content)
	if err := form.Validate(r.Content); err != nil {
		return nil, exit.UsageError(fmt.Errorf("the answer does not match the form: %w", err))
	}
	return r, nil
}

func (q formQuestion) message() string { return q.Message }

func (q formQuestion) summary() string { return term.CleanLine(q.Message) }

func (q formQuestion) Arguments() (words []string) {
	parameters, _ := argument.ParametersOf(q.RequestedSchema)
	for i := range parameters {
		words = append(words, parameters[i].Bracketed(fieldUsage(&parameters[i])))
	}
	return words
}

// fieldUsage shows how a field is given: in a JSON object, if name=value would be ambiguous.
func fieldUsage(field *argument.Parameter) string {
	name := field.Name
	if name == "" || strings.ContainsAny(name[:1], "-@{") || strings.Contains(name, "=") ||
		strings.HasSuffix(name, ":") {
		return term.ShellWord(fmt.Sprintf("{%s: %s}", rawjson.AppendQuote(nil, name), argument.TypeName(field)))
	}
	return term.ShellWord(name+"=") + argument.TypeName(field)
}

func (q formQuestion) parse(ctx context.Context, p *Asker, given *Given) (*answer, error) {
	a, err := p.newFields(ctx, given.Words, q.RequestedSchema)
	if err != nil {
		return nil, exit.UsageError(errors.Join(err, errors.New("the question: "+q.summary())))
	}
	return &answer{Content: a.Object()}, nil
}

func (q formQuestion) fits(a *answer) bool {
	if a.Field == "" {
		return true
	}
	fields, _ := argument.ParametersOf(q.RequestedSchema)
	return slices.ContainsFunc(fields, func(f argument.Parameter) bool { return f.Name == a.Field })
}

func (q formQuestion) prompt(ctx context.Context, a *Asker) (*answer, error) {
	fields, err := argument.NewForm(q.RequestedSchema)
	if err != nil {
		return nil, err
	}
	a.IO.Err.Printf("\n%s asks:\n%s\n  (%s to decline, %s to cancel)", a.server(),
		term.Indent(term.Clean(q.Message), "  "), commandDecline, commandCancel)
	content, err := a.fillIn(ctx, fields)
	return &answer{Content: content}, err
}

func (q pageQuestion) message() string { return q.Message }

func (q pageQuestion) summary() string { return term.CleanLine(q.Message + " (open " + q.URL + ")") }

func (q pageQuestion) Arguments() []string { return []string{"--action", "accept|decline"} }

func (q pageQuestion) fits(a *answer) bool { return a.Content == nil && a.Field == "" }

func (q pageQuestion) parse(_ context.Context, _ *Asker, given *Given) (*answer, error) {
	if given.Action == "" {
		return nil, exit.UsageError(fmt.Errorf("missing --action: open %s yourself and give --action accept, or give "+
			"--action decline", term.CleanLine(q.URL)))
	}
	return &answer{Action: given.Action}, nil
}

func (q pageQuestion) prompt(ctx context.Context, a *Asker) (*answer, error) {
	page, err := oauthclient.CheckPage(q.URL)
	if err != nil {
		return nil, err
	}
	a.IO.Err.Printf("\n%s asks you to open a page:\n%s\n\n  %s\n  host %s%s",
		a.server(), term.Indent(term.Clean(q.Message), "  "), term.Clean(page.String()), page.Host,
		HostWarning(page.Hostname()))
	yes, err := a.Confirm(ctx, "Open it in your browser? y, n or "+commandCancel, "n")
	switch {
	case err != nil:
		return nil, err
	case !yes:
		return nil, ErrDeclined
	}
	a.OpenPage(ctx, page.String())
	a.IO.Err.Status("waiting for the server …")
	return &answer{Action: mcp.ElicitAccept}, nil
}

// HostWarning returns a line with the warning about a host, or "".
func HostWarning(host string) string {
	if warning := (&mcp.ElicitRequestParams{URL: "https://" + host}).HostWarning(); warning != "" {
		return "\n  warning: " + warning
	}
	return ""
}
