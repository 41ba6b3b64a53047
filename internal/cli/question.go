package cli

import (
	"context"
	"errors"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/browser"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// modelName is what answers call the model when it is the user.
const modelName = "human"

// elicit answers a form: from the answers file, by asking on the terminal, or by declining.
func (p *program) elicit(ctx context.Context, q *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	if err := p.given.isFor(ctx, q.Message); err != nil {
		return nil, err
	}
	if err := p.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer p.endTurn()
	if p.given != nil {
		r, err := p.given.form(ctx, p, q)
		return r, p.given.settle(ctx, err)
	}
	if a := p.answers.forForm(q); a != nil {
		p.screen.printf("%s asks: %s\n  answered from %s: %s", p.who(), cleanLine(q.Message), p.flags.answers, a.action())
		return a.form(), nil
	}
	if p.leavesOpen && !p.mayAsk() {
		return nil, errLeftOpen
	}
	if !p.mayAsk() {
		p.screen.printf("%s asks: %s\n  declined: %s", p.who(), cleanLine(q.Message), p.whyNot())
		return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
	}
	fields, err := newForm(q.RequestedSchema)
	if err != nil {
		return nil, err
	}
	p.screen.printf("\n%s asks:\n%s\n  (%s refuses, %s dismisses)", p.who(), indent(clean(q.Message), "  "), wordDecline, wordCancel)
	return settled(p.fill(ctx, fields))
}

// settled makes an answer of the ways in which a user leaves a question.
func settled(r *mcp.ElicitResult, err error) (*mcp.ElicitResult, error) {
	switch {
	case errors.Is(err, errDeclined):
		return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
	case errors.Is(err, errDismissed):
		return &mcp.ElicitResult{Action: mcp.ElicitCancel}, nil
	}
	return r, err
}

// elicitURL asks whether a page may be opened, and opens it. Nothing is opened without the user's own yes.
//
// Spec: client/elicitation (2025-11-25, 2026-07-28), Safe URL Handling.
func (p *program) elicitURL(ctx context.Context, q *mcp.ElicitParams) (*mcp.ElicitResult, error) {
	if err := p.given.isFor(ctx, q.Message); err != nil {
		return nil, err
	}
	if err := p.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer p.endTurn()
	page, err := browser.Check(q.URL)
	if err != nil {
		p.screen.printf("%s wants a page opened: %s\n  declined: %v", p.who(), cleanLine(q.URL), err)
		return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
	}
	if p.given != nil {
		r, err := p.given.page(q)
		return r, p.given.settle(ctx, err)
	}
	if a := p.answers.forPage(q); a != nil {
		p.screen.printf("%s wants this page opened: %s\n  answered from %s: %s; open it yourself", p.who(), clean(page.String()), p.flags.answers, a.action())
		return &mcp.ElicitResult{Action: a.action()}, nil
	}
	if p.leavesOpen && !p.mayAsk() {
		return nil, errLeftOpen
	}
	if !p.mayAsk() {
		p.screen.printf("%s wants this page opened: %s\n  declined: %s", p.who(), clean(page.String()), p.whyNot())
		return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
	}
	p.screen.printf("\n%s wants you to open a page:\n%s\n\n  %s\n  at the host %s", p.who(), indent(clean(q.Message), "  "), clean(page.String()), page.Host)
	yes, err := p.confirm(ctx, "Open it in your browser? (y)es, (n)o, "+wordCancel, "n")
	switch {
	case err != nil:
		return settled(nil, err)
	case yes != "y":
		return &mcp.ElicitResult{Action: mcp.ElicitDecline}, nil
	}
	if err := p.open(ctx, page.String()); err != nil {
		p.screen.printf("  It could not be opened (%v): open it yourself.", err)
	}
	p.screen.status("waiting for the server to go on …")
	return &mcp.ElicitResult{Action: mcp.ElicitAccept}, nil
}

// sample has the user, or the answers file, play the model.
func (p *program) sample(ctx context.Context, q *mcp.SampleParams) (*mcp.SampleResult, error) {
	if err := p.given.isFor(ctx, p.conversation(q)); err != nil {
		return nil, err
	}
	if err := p.takeTurn(ctx); err != nil {
		return nil, err
	}
	defer p.endTurn()
	refused := mcp.Errorf(wire.CodeUserRejected, "the user refused the sampling request")
	if p.given != nil {
		r, err := p.given.sample(ctx, p)
		if err = p.given.settle(ctx, err); err == nil && r == nil {
			err = refused
		}
		return r, err
	}
	if a := p.answers.forSample(q); a != nil {
		p.screen.printf("%s asks for a model's answer\n  answered from %s: %s", p.who(), p.flags.answers, a.action())
		if a.action() != mcp.ElicitAccept {
			return nil, refused
		}
		return a.sample(), nil
	}
	if p.leavesOpen && !p.mayAsk() {
		return nil, errLeftOpen
	}
	if !p.mayAsk() {
		p.screen.printf("%s asks for a model's answer\n  declined: %s", p.who(), p.whyNot())
		return nil, refused
	}
	p.screen.printf("\n%s asks for a model's answer. You are the model.\n%s\n\n  Answer, and end with a line that is a single dot (%s refuses):",
		p.who(), indent(p.conversation(q), "  "), wordDecline)
	text, err := p.paragraph(ctx)
	if errors.Is(err, errDeclined) || errors.Is(err, errDismissed) {
		return nil, refused
	}
	if err != nil {
		return nil, err
	}
	return textResult(text, modelName), nil
}

func textResult(text, model string) *mcp.SampleResult {
	return &mcp.SampleResult{Role: mcp.RoleAssistant, Content: []mcp.Content{mcp.Text(text)}, Model: model, StopReason: "endTurn"}
}

// conversation shows what the model would see.
func (p *program) conversation(q *mcp.SampleParams) string {
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

// paragraph reads lines up to one with a dot, or to the end of the input.
func (p *program) paragraph(ctx context.Context) (string, error) {
	var lines []string
	for size := 0; size < maxInput; {
		line, err := p.answerLine(ctx)
		if errors.Is(err, errDismissed) && len(lines) > 0 || err == nil && line == "." {
			return strings.Join(lines, "\n"), nil
		}
		if err != nil {
			return "", err
		}
		lines = append(lines, line)
		size += len(line) + 1
	}
	return strings.Join(lines, "\n"), nil
}

// takeTurn waits for the terminal: questions of one server can come side by side, and there is one user.
func (p *program) takeTurn(ctx context.Context) error {
	select {
	case p.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *program) endTurn() { <-p.turn }

// mayAsk reports whether there is somebody to ask.
func (p *program) mayAsk() bool { return p.interactive && !p.flags.noInput }

// whyNot says why nobody is asked.
func (p *program) whyNot() string {
	if p.flags.noInput {
		return "--no-input is set (--answers FILE can answer)"
	}
	return "there is no terminal to ask at (--answers FILE can answer)"
}
