package cli

import (
	"cmp"
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

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// A field is one field of a form.
type field struct {
	parameter
	check   *jsonschema.Schema
	named   bool    // its heading contains the name even if there is a title
	members []field // of the objects of an array; nil for other types
}

// newForm returns the fields of a form. Spec: client/elicitation, Requested Schema; schema
// PrimitiveSchemaDefinition.
func newForm(requested stdjson.RawMessage) ([]field, error) {
	parameters, _ := parametersOf(requested)
	fields := make([]field, len(parameters))
	for i, p := range parameters {
		check, err := jsonschema.Compile(p.schema)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", p.name, err)
		}
		fields[i] = field{parameter: p, check: check}
	}
	return fields, nil
}

// fillIn prompts for every field until the user confirms. A single yes or no needs no confirmation.
func (a *asker) fillIn(ctx context.Context, fields []field) (stdjson.RawMessage, error) {
	single := len(fields) == 1 && fields[0].isYesNo()
	for {
		content, err := a.askFields(ctx, fields)
		if err != nil || single {
			return content, err
		}
		if len(fields) > 1 {
			a.IO.Err.printf("\n  %s", cleanJSON(string(content)))
		}
		send, err := a.confirm(ctx, "Send this? y, or n to fill in the form again", "y")
		if err != nil || send {
			return content, err
		}
	}
}

// askFields prompts for every field, and returns an object.
func (p *asker) askFields(ctx context.Context, fields []field) (stdjson.RawMessage, error) {
	a := arguments{values: map[string]stdjson.RawMessage{}}
	for i := range fields {
		f := &fields[i]
		p.IO.Err.printf("\n%s", wrap(f.heading(), p.IO.Err.width(), "  "))
		value, err := prompt(ctx, p, f.promptText(), func(ctx context.Context, text string) (string, error) {
			line, err := p.promptText(ctx, text)
			if err == nil && f.members != nil && strings.TrimSpace(line) == "" {
				return p.askObjects(ctx, f)
			}
			return line, err
		}, f.parse)
		if err != nil {
			return nil, err
		}
		if value != nil {
			a.put(f.name, value)
		}
	}
	return a.object(), nil
}

// askObjects prompts for the objects of an array, and returns the array as the JSON that a user would type.
func (a *asker) askObjects(ctx context.Context, f *field) (string, error) {
	var all [][]byte
	for again := true; again; {
		a.IO.Err.printf("\n  %s, object %d:", cleanLine(f.name), len(all)+1)
		object, err := a.askFields(ctx, f.members)
		if err == nil {
			again, err = a.confirm(ctx, "Another object?", "n")
		}
		if err != nil {
			return "", err
		}
		all = append(all, object)
	}
	return string(listOf(all)), nil
}

// heading returns what is shown above the prompt: title, constraints, description and choices.
func (f *field) heading() string {
	var b strings.Builder
	title := cleanLine(cmp.Or(stringMember(f.schema, "title"), f.name))
	if name := cleanLine(f.name); f.named && title != name {
		title = name + ": " + title
	}
	b.WriteString("  " + title)
	var notes []string
	if format := stringMember(f.schema, "format"); format != "" {
		notes = append(notes, format)
	}
	notes = append(notes, f.bounds()...)
	if f.required {
		notes = append(notes, "required")
	}
	if notes != nil {
		b.WriteString(" (" + cleanLine(strings.Join(notes, ", ")) + ")")
	}
	if d := f.description; d != "" {
		b.WriteString("\n" + indent(clean(d), "    "))
	}
	choices := f.choices
	if f.items != nil {
		choices = f.items.choices
	}
	for i, c := range choices {
		fmt.Fprintf(&b, "\n    %d) %s", i+1, cleanLine(c.text()))
		if c.title != "" && c.title != c.text() {
			b.WriteString("  " + cleanLine(c.title))
		}
	}
	return b.String()
}

// promptText returns the prompt of the field: what to type, and the default.
func (f *field) promptText() string {
	what := "text"
	switch {
	case f.members != nil:
		what = "Enter for one object after another, or a JSON array"
	case f.items != nil && !f.separated():
		what = "a JSON array"
	case f.items != nil && f.items.choices == nil:
		what = "values, separated by commas"
	case f.items != nil:
		what = "values or numbers, separated by commas"
	case f.choices != nil:
		what = "value or number"
	case f.isYesNo():
		what = "y or n"
	case f.takes("integer"):
		what = "an integer"
	case f.takes("number"):
		what = "a number"
	case f.takes("string"):
	case f.takes("object"):
		what = "a JSON object"
	case f.takes("array"):
		what = "a JSON array"
	}
	if d := f.defaultValue(); d != nil {
		what += " [" + cleanLine(f.display(d)) + "]"
	} else if !f.required {
		what += " [optional]"
	}
	return "  " + what + ": "
}

// separated reports whether the values of a list may be typed with commas between them. JSON objects
// and arrays contain commas.
func (f *field) separated() bool {
	return f.items != nil && (f.items.choices != nil || !f.items.takes("object") && !f.items.takes("array"))
}

// display returns a default value as it would be typed.
func (f *field) display(value stdjson.RawMessage) string {
	if rawjson.Kind(value) == '[' && (f.items == nil || f.separated()) {
		var all []string
		for element := range rawjson.Elements(value) {
			all = append(all, choice{value: element}.text())
		}
		return strings.Join(all, ", ")
	}
	if f.isYesNo() {
		return map[string]string{"true": "y", "false": "n"}[string(value)]
	}
	return choice{value: value}.text()
}

// parse returns the validated value of a line. An empty line is the default or no value; "" is the
// empty string.
func (f *field) parse(line string) (value stdjson.RawMessage, err error) {
	trimmed := strings.TrimSpace(line)
	switch {
	case trimmed == "" && f.defaultValue() != nil:
		return f.defaultValue(), nil
	case trimmed == "" && !f.required:
		return nil, nil
	case trimmed == "" && !f.separated():
		return nil, errors.New(`a value is required ("" is the empty string)`)
	case f.items != nil && strings.HasPrefix(trimmed, "[") && rawjson.Valid([]byte(trimmed)) == nil:
		value = stdjson.RawMessage(trimmed)
	case f.separated():
		value, err = f.parseList(trimmed)
	case f.choices != nil:
		value, err = pick(f.choices, trimmed)
	case f.isYesNo():
		var yes bool
		yes, err = parseYesNo(trimmed)
		value = strconv.AppendBool(nil, yes)
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

func (f *field) parseList(text string) (stdjson.RawMessage, error) {
	var chosen [][]byte
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
		repeated := slices.ContainsFunc(chosen, func(c []byte) bool { return string(c) == string(value) })
		if f.items.choices == nil || !repeated {
			chosen = append(chosen, value)
		}
	}
	return listOf(chosen), nil
}

// pick returns the choice of a value, a title or a number, in this order.
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
	return nil, fmt.Errorf("got %q, want one of the values or its number", text)
}

// checkFormat checks a string against its format, which JSON Schema treats as an annotation.
func (f *field) checkFormat(value stdjson.RawMessage) error {
	text, err := rawjson.Unquote(value)
	if err != nil {
		return nil // not a string
	}
	format := stringMember(f.schema, "format")
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
		return fmt.Errorf("got %q, want format %s", text, format)
	}
	return nil
}
