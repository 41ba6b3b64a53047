package argument

import (
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// Values returns the values of an enum or a boolean, also as elements of an array.
func (p *Parameter) Values() (all []string) {
	if p.Items != nil && p.choices == nil {
		p = p.Items
	}
	for _, c := range p.choices {
		all = append(all, c.Text())
	}
	if p.IsYesNo() {
		all = []string{"true", "false"}
	}
	return all
}

// IsYesNo reports whether the values are true and false, apart from null, and no listed choices.
func (p *Parameter) IsYesNo() bool {
	others := slices.ContainsFunc(p.types, func(t string) bool { return t != "boolean" && t != "null" })
	return p.choices == nil && p.takes("boolean") && !others
}

// A Field describes a field of a form.
type Field struct {
	Parameter
	check   *jsonschema.Schema
	named   bool    // its heading contains the name even if there is a title
	Members []Field // of the objects of an array; nil for other types
}

// NewForm returns the fields of a form. Spec: client/elicitation, Requested Schema; schema
// PrimitiveSchemaDefinition.
func NewForm(requested stdjson.RawMessage) ([]Field, error) {
	parameters, _ := ParametersOf(requested)
	fields := make([]Field, len(parameters))
	for i, p := range parameters {
		check, err := jsonschema.Compile(p.schema)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", p.Name, err)
		}
		fields[i] = Field{Parameter: p, check: check}
	}
	return fields, nil
}

// Heading returns the text above the prompt: title, constraints, description and choices.
func (f *Field) Heading() string {
	var b strings.Builder
	title := term.CleanLine(cmp.Or(rawjson.GetString(f.schema, "title"), f.Name))
	if name := term.CleanLine(f.Name); f.named && title != name {
		title = name + ": " + title
	}
	b.WriteString("  " + title)
	var notes []string
	if format := rawjson.GetString(f.schema, "format"); format != "" {
		notes = append(notes, format)
	}
	notes = append(notes, form.Bounds(f.schema)...)
	if f.required {
		notes = append(notes, "required")
	}
	if notes != nil {
		b.WriteString(" (" + term.CleanLine(strings.Join(notes, ", ")) + ")")
	}
	if d := f.description; d != "" {
		b.WriteString("\n" + term.Indent(term.Clean(d), "    "))
	}
	choices := f.choices
	if f.Items != nil {
		choices = f.Items.choices
	}
	for i, c := range choices {
		fmt.Fprintf(&b, "\n    %d) %s", i+1, term.CleanLine(c.Text()))
		if c.Title != "" && c.Title != c.Text() {
			b.WriteString("  " + term.CleanLine(c.Title))
		}
	}
	return b.String()
}

// PromptText returns the prompt of the field, which contains the type and the default.
func (f *Field) PromptText() string {
	what := "text"
	switch {
	case f.Members != nil:
		what = "Enter for one object after another, or a JSON array"
	case f.Items != nil && !f.separated():
		what = "a JSON array"
	case f.Items != nil && f.Items.choices == nil:
		what = "values, separated by commas"
	case f.Items != nil:
		what = "values or numbers, separated by commas"
	case f.choices != nil:
		what = "value or number"
	case f.IsYesNo():
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
		what += " [" + term.CleanLine(f.display(d)) + "]"
	} else if !f.required {
		what += " [optional]"
	}
	return "  " + what + ": "
}

// separated reports whether the values of a list may be typed with commas between them. JSON objects
// and arrays contain commas.
func (f *Field) separated() bool {
	return f.Items != nil && (f.Items.choices != nil || !f.Items.takes("object") && !f.Items.takes("array"))
}

// display returns a default value as it would be typed.
func (f *Field) display(value stdjson.RawMessage) string {
	if rawjson.Kind(value) == '[' && (f.Items == nil || f.separated()) {
		var all []string
		for element := range rawjson.Elements(value) {
			all = append(all, form.Choice{Value: element}.Text())
		}
		return strings.Join(all, ", ")
	}
	if f.IsYesNo() {
		return map[string]string{"true": "y", "false": "n"}[string(value)]
	}
	return form.Choice{Value: value}.Text()
}

// Parse returns the validated value of a line: "" is an empty string, an empty line the default.
func (f *Field) Parse(line string) (value stdjson.RawMessage, err error) {
	trimmed := strings.TrimSpace(line)
	switch {
	case trimmed == "" && f.defaultValue() != nil:
		return f.defaultValue(), nil
	case trimmed == "" && !f.required:
		return nil, nil
	case trimmed == "" && !f.separated():
		return nil, errors.New(`a value is required ("" is the empty string)`)
	case f.Items != nil && strings.HasPrefix(trimmed, "[") && rawjson.Valid([]byte(trimmed)) == nil:
		value = stdjson.RawMessage(trimmed)
	case f.separated():
		value, err = f.parseList(trimmed)
	case f.choices != nil:
		value, err = pick(f.choices, trimmed)
	case f.IsYesNo():
		var yes bool
		yes, err = ParseYesNo(trimmed)
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
	return value, form.CheckFormat(rawjson.GetString(f.schema, "format"), value)
}

func (f *Field) parseList(text string) (stdjson.RawMessage, error) {
	var chosen [][]byte
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		var value stdjson.RawMessage
		var err error
		if f.Items.choices != nil {
			value, err = pick(f.Items.choices, part)
		} else {
			value, err = f.Items.coerce(part)
		}
		if err != nil {
			return nil, err
		}
		repeated := slices.ContainsFunc(chosen, func(c []byte) bool { return string(c) == string(value) })
		if f.Items.choices == nil || !repeated {
			chosen = append(chosen, value)
		}
	}
	return ListOf(chosen), nil
}

// pick returns the choice of a value, a title or a number, in this order.
func pick(choices []form.Choice, text string) (stdjson.RawMessage, error) {
	for _, c := range choices {
		if c.Text() == text {
			return c.Value, nil
		}
	}
	for _, c := range choices {
		if c.Title != "" && strings.EqualFold(c.Title, text) {
			return c.Value, nil
		}
	}
	if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= len(choices) {
		return choices[n-1].Value, nil
	}
	return nil, fmt.Errorf("got %q, want one of the values or its number", text)
}

// ParseYesNo returns the answer to a question for yes or no.
func ParseYesNo(text string) (bool, error) {
	switch strings.ToLower(text) {
	case "y", "yes", "true":
		return true, nil
	case "n", "no", "false":
		return false, nil
	}
	return false, fmt.Errorf("got %q, want y or n", text)
}
