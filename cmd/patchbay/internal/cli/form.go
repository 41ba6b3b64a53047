package cli

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"net/mail"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Words that are commands wherever something is asked.
const (
	wordDecline = ":decline"
	wordCancel  = ":cancel"
)

// Ways in which a user leaves a form.
var (
	errDeclined  = errors.New("declined")
	errDismissed = errors.New("dismissed")
)

// A field is one question of a form.
type field struct {
	parameter
	check *schema.Schema
}

// newForm reads the schema of a form.
//
// Spec: client/elicitation, Requested Schema; schema PrimitiveSchemaDefinition.
func newForm(requested stdjson.RawMessage) ([]field, error) {
	parameters, _ := parametersOf(requested)
	fields := make([]field, len(parameters))
	for i, p := range parameters {
		check, err := schema.Compile(p.schema)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", p.name, err)
		}
		fields[i] = field{p, check}
	}
	return fields, nil
}

// fill asks for every field until the user is content.
func (p *program) fill(ctx context.Context, fields []field) (*mcp.ElicitResult, error) {
	for {
		var a arguments
		a.values = map[string]stdjson.RawMessage{}
		for i := range fields {
			value, err := p.askField(ctx, &fields[i])
			if err != nil {
				return nil, err
			}
			if value != nil {
				a.put(fields[i].name, value)
			}
		}
		content := a.object()
		if len(fields) > 1 {
			p.screen.printf("\n  %s", cleanJSON(string(content)))
		}
		again, err := p.confirm(ctx, "Send it? (y)es, (n)o: fill it in again", "y")
		if err != nil {
			return nil, err
		}
		if again == "y" {
			return &mcp.ElicitResult{Action: mcp.ElicitAccept, Content: content}, nil
		}
	}
}

// askField asks until the answer fits. A field that is left out has no value.
func (p *program) askField(ctx context.Context, f *field) (stdjson.RawMessage, error) {
	p.screen.printf("\n%s", f.heading())
	for {
		p.screen.ask(f.prompt())
		line, err := p.answerLine(ctx)
		if err != nil {
			return nil, err
		}
		value, err := f.read(line)
		if err == nil {
			return value, nil
		}
		p.screen.printf("  %s", cleanLine(err.Error()))
	}
}

// answerLine reads a line that may be a command.
func (p *program) answerLine(ctx context.Context) (string, error) {
	line, err := p.keyboard.line(ctx)
	switch {
	case errors.Is(err, errInputEnds):
		p.screen.printf("")
		return "", errDismissed
	case err != nil:
		return "", err
	}
	switch strings.TrimSpace(line) {
	case wordDecline:
		return "", errDeclined
	case wordCancel:
		return "", errDismissed
	}
	return line, nil
}

// confirm asks for one of the letters y and n.
func (p *program) confirm(ctx context.Context, question, byDefault string) (string, error) {
	for {
		p.screen.ask(fmt.Sprintf("%s [%s] ", question, byDefault))
		line, err := p.answerLine(ctx)
		if err != nil {
			return "", err
		}
		switch strings.ToLower(strings.TrimSpace(line)) {
		case "":
			return byDefault, nil
		case "y", "yes":
			return "y", nil
		case "n", "no":
			return "n", nil
		}
	}
}

// heading tells what is asked for.
func (f *field) heading() string {
	var b strings.Builder
	title := word(f.schema, "title")
	if title == "" {
		title = f.name
	}
	b.WriteString("  " + cleanLine(title))
	var notes []string
	if format := word(f.schema, "format"); format != "" {
		notes = append(notes, format)
	}
	notes = append(notes, f.bounds()...)
	if f.required {
		notes = append(notes, "required")
	}
	if notes != nil {
		b.WriteString(" (" + cleanLine(strings.Join(notes, ", ")) + ")")
	}
	if d := f.description(); d != "" {
		b.WriteString("\n" + indent(clean(d), "    "))
	}
	for i, c := range f.options() {
		fmt.Fprintf(&b, "\n    %d) %s", i+1, cleanLine(c.text()))
		if c.title != "" && c.title != c.text() {
			b.WriteString("  " + cleanLine(c.title))
		}
	}
	return b.String()
}

// bounds are the limits of a value, in words.
func (f *field) bounds() (notes []string) {
	for _, limit := range []struct{ key, phrase string }{
		{"minimum", "at least %s"}, {"exclusiveMinimum", "more than %s"},
		{"maximum", "at most %s"}, {"exclusiveMaximum", "less than %s"},
		{"minLength", "at least %s characters"}, {"maxLength", "at most %s characters"},
		{"minItems", "at least %s of them"}, {"maxItems", "at most %s of them"},
	} {
		if v, ok := jsonscan.Get(f.schema, limit.key); ok && jsonscan.Kind(v) == '0' {
			note := fmt.Sprintf(limit.phrase, v)
			if string(v) == "1" {
				note = strings.TrimSuffix(note, "s")
			}
			notes = append(notes, note)
		}
	}
	return notes
}

// options are the values to choose from, of the field or of the elements of a list.
func (f *field) options() []choice {
	if f.items != nil {
		return f.items.choices
	}
	return f.choices
}

// prompt stands before the answer.
func (f *field) prompt() string {
	what := "text"
	switch {
	case f.items != nil:
		what = "some of them, by commas"
	case f.choices != nil:
		what = "one of them"
	case f.takes("boolean"):
		what = "y or n"
	case f.takes("integer"):
		what = "an integer"
	case f.takes("number"):
		what = "a number"
	}
	if d := f.fallback(); d != nil {
		what += " [" + cleanLine(f.written(d)) + "]"
	} else if !f.required {
		what += " [leave out]"
	}
	return "  " + what + ": "
}

// written shows a default as it would be typed.
func (f *field) written(value stdjson.RawMessage) string {
	if jsonscan.Kind(value) == '[' {
		var all []string
		for element := range jsonscan.Elements(value) {
			all = append(all, choice{value: element}.text())
		}
		return strings.Join(all, ", ")
	}
	if f.takes("boolean") {
		return map[string]string{"true": "y", "false": "n"}[string(value)]
	}
	return choice{value: value}.text()
}

// read makes a value of an answer and holds it to the schema. An empty line is the default, or leaves the field out; ""
// is the empty text.
func (f *field) read(line string) (value stdjson.RawMessage, err error) {
	trimmed := strings.TrimSpace(line)
	switch {
	case trimmed == "" && f.fallback() != nil:
		return f.fallback(), nil
	case trimmed == "" && !f.required:
		return nil, nil
	case trimmed == "" && f.items == nil:
		return nil, errors.New(`an answer is needed ("" is the empty text, ` + wordDecline + " and " + wordCancel + " refuse)")
	case f.items != nil:
		value, err = f.readList(trimmed)
	case f.choices != nil:
		value, err = pick(f.choices, trimmed)
	case f.takes("boolean"):
		value, err = readBoolean(trimmed)
	case f.takes("string") && trimmed == `""`:
		value = stdjson.RawMessage(trimmed)
	default:
		value, err = f.coerce(line)
	}
	if err != nil {
		return nil, err
	}
	if err := f.check.Validate(value); err != nil {
		return nil, err
	}
	return value, f.checkFormat(value)
}

func readBoolean(text string) (stdjson.RawMessage, error) {
	switch strings.ToLower(text) {
	case "y", "yes", "true":
		return stdjson.RawMessage("true"), nil
	case "n", "no", "false":
		return stdjson.RawMessage("false"), nil
	}
	return nil, fmt.Errorf("got %q, want y or n", text)
}

func (f *field) readList(text string) (stdjson.RawMessage, error) {
	var chosen []stdjson.RawMessage
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		var value stdjson.RawMessage
		var err error
		if f.items.choices != nil {
			value, err = pick(f.items.choices, part)
		} else {
			value, err = f.items.coerce(part)
		}
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(chosen, func(c stdjson.RawMessage) bool { return string(c) == string(value) }) {
			chosen = append(chosen, value)
		}
	}
	return listOf(chosen), nil
}

// pick finds a choice by its value, its title or its number, in this order.
func pick(choices []choice, text string) (stdjson.RawMessage, error) {
	for _, c := range choices {
		if c.text() == text {
			return c.value, nil
		}
	}
	for _, c := range choices {
		if c.title != "" && strings.EqualFold(c.title, text) {
			return c.value, nil
		}
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(choices) {
		return choices[n-1].value, nil
	}
	return nil, fmt.Errorf("got %q, want a value of the list or its number", text)
}

// checkFormat holds a text to its format, which a schema only suggests.
func (f *field) checkFormat(value stdjson.RawMessage) error {
	text, err := jsonscan.Unquote(value)
	if err != nil {
		return nil // no text
	}
	format := word(f.schema, "format")
	switch format {
	case "email":
		a, parse := mail.ParseAddress(text)
		if err = parse; err == nil && a.Address != text {
			err = errors.New("more than an address")
		}
	case "uri":
		u, parse := url.Parse(text)
		if err = parse; err == nil && u.Scheme == "" {
			err = errors.New("no scheme")
		}
	case "date":
		_, err = time.Parse(time.DateOnly, text)
	case "date-time":
		_, err = time.Parse(time.RFC3339, text)
	}
	if err != nil {
		return fmt.Errorf("got %q, want a text of the format %s", text, format)
	}
	return nil
}
