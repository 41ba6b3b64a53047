package question

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"slices"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/argument"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// NewArguments parses the arguments of a tool: key=value, key:=json, key=@file, key:=@file, @file,
// -, or a JSON object. Later arguments win. Values are converted to the types of the schema. An
// argument that the schema does not specify is kept, with a warning: the server may accept it.
func (p *Asker) NewArguments(
	ctx context.Context, words []string, inputSchema stdjson.RawMessage,
) (*argument.List, error) {
	parameters, closed := argument.ParametersOf(inputSchema)
	return p.ReadArguments(ctx, words, &argument.List{Thing: "argument", Owner: "tool", Parameters: parameters,
		Closed: closed, Nested: rawjson.Valid(inputSchema) == nil, Root: inputSchema})
}

// newFields parses the fields of a form in the same way. Fields that its schema does not name are
// errors, even if the schema allows them.
func (p *Asker) newFields(ctx context.Context, words []string, requested stdjson.RawMessage) (*argument.List, error) {
	parameters, _ := argument.ParametersOf(requested)
	return p.ReadArguments(ctx, words, &argument.List{Thing: "field", Parameters: parameters, Closed: true})
}

// ReadArguments parses words into a, and asks the user for missing arguments on a terminal.
func (p *Asker) ReadArguments(ctx context.Context, words []string, a *argument.List) (*argument.List, error) {
	a.Values, a.Lists, a.Wrong = map[string]stdjson.RawMessage{}, map[string]bool{}, map[string]bool{}
	a.Input = p.IO.In
	var errs []error
	for _, word := range words {
		if err := a.Add(ctx, word); err != nil {
			errs = append(errs, err)
		}
	}
	undeclared, unknown := a.Check()
	missing := a.Missing()
	if missing != nil && errs == nil && unknown == nil && a.Owner != "" && p.IO.MayPrompt() {
		given, err := p.askMissing(ctx, a, missing)
		if given || err != nil {
			return a, err
		}
	}
	for i := range missing {
		unknown = append(unknown, missing[i].Missing(a.Thing))
	}
	if errs != nil || unknown != nil {
		return nil, errors.Join(slices.Concat(errs, undeclared, unknown)...)
	}
	return a, nil
}

// WarnUndeclared shows the warnings about arguments that are sent although they are undeclared.
func (p *Asker) WarnUndeclared(a *argument.List) {
	for _, warning := range a.Warnings {
		p.IO.Err.Printf("%s %s", p.IO.Warning(), term.Clean(warning))
	}
}

// askMissing asks for missing arguments in a form, and reports whether the user gave them.
func (p *Asker) askMissing(ctx context.Context, a *argument.List, missing []argument.Absent) (bool, error) {
	unlock, err := p.lockTerminal(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	a.Reader = argument.NewReader(a.Root)
	var all []argument.Absent
	for _, m := range missing {
		all = append(all, a.Leaves(m)...)
	}
	fields, steps := make([]argument.Field, len(all)), map[string][]argument.Step{}
	for i, m := range all {
		fields[i] = a.NewField(m.Parameter)
		fields[i].Members = a.Members(&fields[i])
		steps[m.Name] = m.Steps
	}
	p.IO.Err.Printf("\nThe %s requires %s: (%s to leave)", a.Owner, term.Counted(len(fields), "more "+a.Thing),
		commandCancel)
	content, err := p.fillIn(ctx, fields)
	if errors.Is(err, ErrDeclined) || errors.Is(err, ErrCancelled) {
		return false, nil
	}
	for name, value := range rawjson.Members(content) {
		if err == nil {
			err = a.Set(steps[string(name)], value)
		}
	}
	return err == nil, err
}
