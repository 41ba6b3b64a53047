package question

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/argument"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// Commands that end any prompt.
const (
	commandDecline = ":decline"
	commandCancel  = ":cancel"
)

// Errors of a prompt that the user left.
var (
	ErrDeclined  = errors.New("declined by the user")
	ErrCancelled = errors.New("cancelled by the user")
)

// Prompt calls ask, which shows text and returns a line, until parse accepts it. It shows errors.
func Prompt[T any](ctx context.Context, a *Asker, text string,
	ask func(ctx context.Context, text string) (string, error), parse func(line string) (T, error)) (T, error) {
	for {
		line, err := ask(ctx, text)
		if err != nil {
			var zero T
			return zero, err
		}
		value, err := parse(line)
		if err == nil {
			return value, nil
		}
		a.IO.Err.Printf("  %s", term.CleanLine(err.Error()))
	}
}

// PromptText shows text and returns a line.
func (p *Asker) PromptText(ctx context.Context, text string) (string, error) {
	p.IO.Err.Prompt(text)
	return p.PromptLine(ctx)
}

// PromptLine reads a line, or returns the error of a command such as :cancel.
func (p *Asker) PromptLine(ctx context.Context) (string, error) {
	return p.commandOf(p.IO.In.ReadLine(ctx))
}

// commandOf returns a line that was read, or the error of a command in it.
func (p *Asker) commandOf(line string, err error) (string, error) {
	switch {
	case errors.Is(err, io.EOF):
		p.IO.Err.Printf("")
		return "", ErrCancelled
	case err != nil:
		return "", err
	}
	switch strings.TrimSpace(line) {
	case commandDecline:
		return "", ErrDeclined
	case commandCancel:
		return "", ErrCancelled
	}
	return line, nil
}

// promptParagraph reads lines up to a single dot or the end of the input.
func (p *Asker) promptParagraph(ctx context.Context) (string, error) {
	var lines []string
	for size := 0; size < term.MaxInput; {
		line, err := p.PromptLine(ctx)
		if errors.Is(err, ErrCancelled) && len(lines) > 0 || err == nil && line == "." {
			break
		}
		if err != nil {
			return "", err
		}
		lines = append(lines, line)
		size += len(line) + 1
	}
	return strings.Join(lines, "\n"), nil
}

// Confirm asks a yes-or-no question. byDefault, y or n, is the answer of an empty line.
func (p *Asker) Confirm(ctx context.Context, question, byDefault string) (bool, error) {
	text := fmt.Sprintf("%s [%s] ", question, byDefault)
	return Prompt(ctx, p, text, p.PromptText, func(line string) (bool, error) {
		if line = strings.TrimSpace(line); line == "" {
			line = byDefault
		}
		return argument.ParseYesNo(line)
	})
}

// OpenPage opens a page in the user's browser, or asks the user to do so. It reports success.
func (p *Asker) OpenPage(ctx context.Context, page string) bool {
	err := p.Open(ctx, page)
	if err == nil || ctx.Err() != nil {
		return true
	}
	p.IO.Err.Printf("Could not open a browser: open the page yourself.")
	if p.Flags.Verbose {
		p.IO.Err.Printf("  %s", strings.ReplaceAll(term.CleanLine(err.Error()), page, "the page"))
	}
	return false
}

// WhyNoPrompt returns why the user is not asked.
func (p *Asker) WhyNoPrompt() string {
	if p.Idle {
		return "no command is running"
	}
	if p.Flags.NoInput {
		return "--no-input is set (use --answers FILE to answer)"
	}
	return "stdin and stderr are not a terminal (use --answers FILE to answer)"
}
