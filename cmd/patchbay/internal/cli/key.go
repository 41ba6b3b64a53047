package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"time"
)

// Keys of questions that are not letters.
const (
	keyInterrupt = 0x03 // Ctrl-C, where it is not a signal
	keyEnd       = 0x04 // Ctrl-D
	keyEscape    = 0x1b
	keyDelete    = 0x7f
)

// useKeys lets yes-or-no questions be answered by one key if stdin is a terminal.
func (p *program) useKeys(stdin io.Reader) {
	if f, ok := stdin.(*os.File); ok && p.interactive {
		p.keyMode = func() (func(), error) { return setKeyMode(f.Fd()) }
	}
}

// promptYesNo shows a yes-or-no question and returns the answer as a line: y, n, or empty for the
// Enter key. On a terminal it is one key. What was typed before the question is dropped: it was
// typed for something else. Other keys are ignored, but Enter after one asks again: it ends a word
// such as stop, which is not the default. Until then, y and n are ignored too: they are letters of
// a word such as maybe or any. A colon begins a command, which is a line.
func (p *program) promptYesNo(ctx context.Context, text string) (string, error) {
	if p.keyMode == nil {
		return p.promptText(ctx, text)
	}
	restore, err := p.keyMode()
	if err != nil {
		return p.promptText(ctx, text)
	}
	p.input.discard()
	p.screen.prompt(text) // a program that waits for the text must not answer before
	defer func() { restore() }()
	for ignored, word, hinted := false, false, false; ; {
		key, err := p.input.readKey(ctx)
		if errors.Is(err, io.EOF) || err == nil && (key == keyInterrupt || key == keyEnd) {
			p.screen.printf("")
			return "", errCancelled
		}
		if err != nil {
			return "", err
		}
		switch {
		case strings.IndexByte("yYnN", key) >= 0 && word:
			if !hinted {
				p.screen.print("  (press Enter, then y or n)")
			}
			hinted = true
		case strings.IndexByte("yYnN", key) >= 0:
			p.input.key = time.Now()
			line := strings.ToLower(string(key))
			p.screen.printf("%s", line)
			return line, nil
		case key == '\r' || key == '\n':
			if p.input.skipEnter() {
				continue
			}
			p.screen.printf("")
			if !ignored {
				return "", nil
			}
			ignored, word, hinted = false, false, false
			p.screen.printf("  want y, n, or only Enter")
			p.input.discard()
			p.screen.prompt(text)
		case key == ':':
			restore()
			restore = func() {}
			p.screen.print(":")
			line, err := p.input.readLine(ctx)
			return p.commandOf(":"+line, err)
		case key == keyEscape:
			p.input.skipSequence()
			ignored = true
		default:
			ignored = true
			word = word || key > ' ' && key != keyDelete
		}
	}
}

// skipSequence drops the rest of the escape sequence of a key such as an arrow. It arrives with its
// first byte.
func (in *input) skipSequence() {
	if len(in.buffer) == 0 || in.buffer[0] != '[' && in.buffer[0] != 'O' {
		return
	}
	in.buffer = in.buffer[1:]
	for len(in.buffer) > 0 {
		final := in.buffer[0] >= '@' && in.buffer[0] <= '~'
		if in.buffer = in.buffer[1:]; final {
			return
		}
	}
}
