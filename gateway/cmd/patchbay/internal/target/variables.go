package target

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	xterm "golang.org/x/term"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// Variables asks the user once for each input of a server, for [config.Server.Expand].
func (p *Finder) Variables(ctx context.Context, f *configs.File, s *config.Server) (
	lookup func(name string) (string, bool), err error) {
	inputs := map[string]string{}
	for i := range s.Inputs {
		in := &s.Inputs[i]
		if !p.IO.MayPrompt() {
			return nil, fmt.Errorf("server %s of %s needs the input %s: run the command in a terminal, or use "+
				"${env:NAME} in the file", ServerWord(f, s), term.CleanLine(f.Path), term.CleanLine(in.ID))
		}
		value, err := p.AskInput(ctx, ServerWord(f, s), in)
		if err != nil {
			return nil, err
		}
		inputs["input:"+in.ID] = value
	}
	return func(name string) (string, bool) {
		if strings.HasPrefix(name, "input:") {
			value, ok := inputs[name]
			return value, ok
		}
		if value, set, found := p.Vault.Lookup(ctx, name); found {
			return value, set
		}
		return os.LookupEnv(name)
	}, nil
}

// AskInput asks until the answer is valid.
func (p *Finder) AskInput(ctx context.Context, server string, in *config.Input) (string, error) {
	p.IO.Err.Printf("Server %s asks for the input %s", server, term.CleanLine(in.ID))
	if in.Description != "" {
		p.IO.Err.Printf("  %s", term.CleanLine(in.Description))
	}
	for i, option := range in.Options {
		p.IO.Err.Printf("    %d) %s", i+1, term.CleanLine(option))
	}
	what := "text"
	if in.Options != nil {
		what = "value or number"
	}
	if in.Password {
		what = "hidden text"
	}
	if in.Default != "" && !in.Password {
		what += " [" + term.CleanLine(in.Default) + "]"
	}
	for {
		p.IO.Err.Prompt("  " + what + ": ")
		line, err := p.InputLine(ctx, in.Password)
		if err != nil {
			return "", err
		}
		value, err := chooseInput(in, line)
		if err == nil {
			return value, nil
		}
		p.IO.Err.Printf("  %s", term.CleanLine(err.Error()))
	}
}

// chooseInput returns the value that an answer means.
func chooseInput(in *config.Input, line string) (string, error) {
	line = cmp.Or(line, in.Default)
	number, err := strconv.Atoi(line)
	switch {
	case line == "":
		return "", errors.New("empty answer: want text")
	case in.Options == nil || slices.Contains(in.Options, line):
		return line, nil
	case err == nil && number >= 1 && number <= len(in.Options):
		return in.Options[number-1], nil
	}
	return "", fmt.Errorf("got %.64q, want one of the values", line)
}

// InputLine reads a line, which is not shown if it is secret.
func (p *Finder) InputLine(ctx context.Context, secret bool) (string, error) {
	f, isFile := p.IO.In.R.(*os.File)
	if !secret || !isFile || !term.IsTerminal(f) {
		return p.Ask.PromptLine(ctx)
	}
	state, err := xterm.GetState(int(f.Fd()))
	if err != nil {
		return "", err
	}
	type inputLine struct {
		text string
		err  error
	}
	done := make(chan inputLine, 1)
	go func() { // ends with the line, the input or the program
		line, err := xterm.ReadPassword(int(f.Fd()))
		done <- inputLine{string(line), err}
	}()
	select {
	case line := <-done:
		p.IO.Err.Printf("")
		return line.text, line.err
	case <-ctx.Done():
		return "", errors.Join(context.Cause(ctx), xterm.Restore(int(f.Fd()), state))
	}
}
