package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Commands that end any prompt.
const (
	commandDecline = ":decline"
	commandCancel  = ":cancel"
)

// Errors of a prompt that the user has left.
var (
	errDeclined  = errors.New("declined by the user")
	errCancelled = errors.New("cancelled by the user")
)

// prompt calls ask, which shows text and returns a line, until parse accepts it. Errors of parse are
// shown.
func prompt[T any](ctx context.Context, a *asker, text string,
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
		a.IO.Err.printf("  %s", cleanLine(err.Error()))
	}
}

// promptText shows text and returns a line.
func (a *asker) promptText(ctx context.Context, text string) (string, error) {
	a.IO.Err.prompt(text)
	return a.promptLine(ctx)
}

func (a *asker) promptLine(ctx context.Context) (string, error) {
	return a.commandOf(a.IO.In.readLine(ctx))
}

// commandOf returns a line that was read, or the error of a command in it.
func (a *asker) commandOf(line string, err error) (string, error) {
	switch {
	case errors.Is(err, io.EOF):
		a.IO.Err.printf("")
		return "", errCancelled
	case err != nil:
		return "", err
	}
	switch strings.TrimSpace(line) {
	case commandDecline:
		return "", errDeclined
	case commandCancel:
		return "", errCancelled
	}
	return line, nil
}

// promptParagraph reads lines up to a single dot or the end of the input.
func (a *asker) promptParagraph(ctx context.Context) (string, error) {
	var lines []string
	for size := 0; size < maxInput; {
		line, err := a.promptLine(ctx)
		if errors.Is(err, errCancelled) && len(lines) > 0 || err == nil && line == "." {
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

// confirm asks a yes-or-no question. byDefault, y or n, is the answer of an empty line.
func (a *asker) confirm(ctx context.Context, question, byDefault string) (bool, error) {
	text := fmt.Sprintf("%s [%s] ", question, byDefault)
	return prompt(ctx, a, text, a.promptText, func(line string) (bool, error) {
		if line = strings.TrimSpace(line); line == "" {
			line = byDefault
		}
		return parseYesNo(line)
	})
}

func parseYesNo(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "y", "yes", "true":
		return true, nil
	case "n", "no", "false":
		return false, nil
	}
	return false, fmt.Errorf("got %q, want y or n", text)
}

// openPage opens a page in the user's browser, and reports whether that worked. If not, it asks the
// user to do so.
func (a *asker) openPage(ctx context.Context, page string) bool {
	err := a.open(ctx, page)
	if err == nil || ctx.Err() != nil {
		return true
	}
	a.IO.Err.printf("Could not open a browser: open the page yourself.")
	if a.Flags.verbose {
		a.IO.Err.printf("  %s", strings.ReplaceAll(cleanLine(err.Error()), page, "the page"))
	}
	return false
}

func (s *streams) mayPrompt() bool { return s.Interactive && !s.Flags.noInput }

func (a *asker) whyNoPrompt() string {
	if a.idle {
		return "no command is running"
	}
	if a.Flags.noInput {
		return "--no-input is set (use --answers FILE to answer)"
	}
	return "stdin and stderr are not a terminal (use --answers FILE to answer)"
}
