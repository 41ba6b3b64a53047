package argument

import (
	"cmp"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// A Parameter is a property of an object schema, prepared for a command line or a form.
type Parameter struct {
	Name     string
	schema   stdjson.RawMessage // with references resolved
	types    []string           // JSON types; empty for any
	choices  []form.Choice      // the allowed values; nil for any
	Items    *Parameter         // the elements of an array; nil for other types
	required bool

	description string
}

// ParametersOf returns the properties of an object schema, and whether it allows no others.
func ParametersOf(schema stdjson.RawMessage) (all []Parameter, closed bool) {
	if rawjson.Valid(schema) != nil {
		return nil, false
	}
	r := NewReader(schema)
	object := r.Resolve(schema)
	additional, has := rawjson.Get(object, "additionalProperties")
	return r.properties(object), has && rawjson.Kind(additional) == 'f'
}

// properties returns the properties of an object schema.
func (r *SchemaReader) properties(object []byte) (all []Parameter) {
	var required []string
	list, _ := rawjson.Get(object, "required")
	for name := range rawjson.Elements(list) {
		if s, err := rawjson.Unquote(name); err == nil {
			required = append(required, s)
		}
	}
	properties, _ := rawjson.Get(object, "properties")
	for name, property := range rawjson.Members(properties) {
		p := r.parameter(string(name), property)
		p.required = slices.Contains(required, p.Name)
		all = append(all, p)
	}
	return all
}

// A SchemaReader reads the parameters of a document.
type SchemaReader struct{ form.Reader }

// NewReader returns a reader of a schema, which must be valid JSON.
func NewReader(schema []byte) *SchemaReader {
	return &SchemaReader{form.Reader{Root: schema, Left: form.MaxSubschemas}}
}

func (r *SchemaReader) parameter(name string, schema []byte) Parameter {
	p := Parameter{Name: name, schema: r.Resolve(schema)}
	p.description = rawjson.GetString(p.schema, "description")
	p.types, p.choices = r.Kinds(p.schema)
	if items := r.element(p.schema, newElement); items != nil && p.takes("array") {
		item := Parameter{schema: r.Resolve(items)} // arrays of arrays are not supported
		item.types, item.choices = r.Kinds(item.schema)
		p.Items = &item
	}
	return p
}

func (p *Parameter) takes(kind string) bool { return slices.Contains(p.types, kind) }

func (p *Parameter) defaultValue() stdjson.RawMessage {
	raw, _ := rawjson.Get(p.schema, "default")
	return raw
}

// want returns the allowed values in words.
func (p *Parameter) want() string {
	if p.choices != nil {
		var all []string
		for _, c := range p.choices {
			all = append(all, c.Text())
		}
		return flags.OneOf(all)
	}
	if len(p.types) == 0 {
		return "any value"
	}
	var words []string
	for _, t := range p.types {
		words = append(words, cmp.Or(typePhrases[t], t))
	}
	text := strings.Join(words, " or ")
	if p.Items != nil && p.Items.choices != nil {
		text += " of " + strings.TrimPrefix(p.Items.want(), "one of ")
	}
	return text
}

var typePhrases = map[string]string{
	"string": "a string", "number": "a number", "integer": "an integer", "boolean": "true or false",
	"object": "a JSON object", "array": "an array",
}

// coerce converts typed text to JSON. The result is a string if the schema allows a string.
func (p *Parameter) coerce(typed string) (stdjson.RawMessage, error) {
	quoted := stdjson.RawMessage(rawjson.AppendQuote(nil, typed))
	if p.choices != nil {
		for _, c := range p.choices {
			if c.Text() == typed || string(c.Value) == typed {
				return c.Value, nil
			}
		}
		return nil, fmt.Errorf("got %q, want %s", typed, term.CleanLine(p.want()))
	}
	if len(p.types) == 0 || p.takes("string") {
		return quoted, nil
	}
	raw := stdjson.RawMessage(strings.TrimSpace(typed))
	if rawjson.Valid(raw) == nil && p.fits(raw) {
		return raw, nil
	}
	return nil, fmt.Errorf("got %q, want %s", typed, term.CleanLine(p.want()))
}

// fits reports whether the parameter allows the type of a JSON value.
func (p *Parameter) fits(raw []byte) bool {
	switch rawjson.Kind(raw) {
	case '{':
		return p.takes("object")
	case '[':
		return p.takes("array")
	case '"':
		return p.takes("string")
	case 't', 'f':
		return p.takes("boolean")
	case 'n':
		return p.takes("null")
	}
	return p.takes("number") || p.takes("integer") && isInteger(string(raw))
}

// isInteger reports whether a JSON number contains no exponent, and no fraction except zeros.
func isInteger(number string) bool {
	whole, rest, _ := strings.Cut(number, ".")
	return strings.Trim(rest, "0") == "" && !strings.ContainsAny(whole, "eE")
}
