package argument

import (
	"cmp"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/flags"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

const (
	// maxReferences bounds a chain of references: a schema may refer to itself.
	maxReferences = 8
	// MaxSubschemas bounds the subschemas that are read: nested alternatives grow exponentially.
	MaxSubschemas = 1000
)

// A Parameter is a property of an object schema, prepared for a command line or a form.
type Parameter struct {
	Name     string
	schema   stdjson.RawMessage // with references resolved
	types    []string           // JSON types; empty for any
	choices  []choice           // the allowed values; nil for any
	Items    *Parameter         // the elements of an array; nil for other types
	required bool

	description string
}

// A choice is an allowed value.
type choice struct {
	value stdjson.RawMessage
	title string
}

// text returns the choice as it is typed.
func (c choice) text() string {
	if s, err := rawjson.Unquote(c.value); err == nil {
		return s
	}
	return string(c.value)
}

// ParametersOf returns the properties of an object schema, and whether it allows no others.
func ParametersOf(schema stdjson.RawMessage) (all []Parameter, closed bool) {
	if rawjson.Valid(schema) != nil {
		return nil, false
	}
	r := &SchemaReader{schema, MaxSubschemas}
	object := r.resolve(schema)
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

// A SchemaReader reads the subschemas of a document.
type SchemaReader struct {
	Root []byte
	Left int // subschemas that may still be read
}

func (r *SchemaReader) parameter(name string, schema []byte) Parameter {
	p := Parameter{Name: name, schema: r.resolve(schema)}
	p.description = StringMember(p.schema, "description")
	p.types, p.choices = r.kinds(p.schema)
	if items := r.element(p.schema, newElement); items != nil && p.takes("array") {
		item := Parameter{schema: r.resolve(items)} // arrays of arrays are not supported
		item.types, item.choices = r.kinds(item.schema)
		p.Items = &item
	}
	return p
}

// resolve resolves references within the document.
func (r *SchemaReader) resolve(schema []byte) []byte {
	for range maxReferences {
		raw, ok := rawjson.Get(schema, "$ref")
		if !ok || r.Left == 0 {
			return schema
		}
		r.Left--
		target, err := rawjson.Unquote(raw)
		path, local := strings.CutPrefix(target, "#")
		if err != nil || !local {
			return schema
		}
		found := r.Root
		for step := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
			if step == "" {
				continue
			}
			step = strings.NewReplacer("~1", "/", "~0", "~").Replace(step)
			if found, ok = rawjson.Get(found, step); !ok {
				return schema
			}
		}
		schema = found
	}
	return schema
}

// kinds returns the types that a schema allows, and the values if it lists them.
func (r *SchemaReader) kinds(schema []byte) (types []string, choices []choice) {
	if raw, ok := rawjson.Get(schema, "type"); ok {
		types = names(raw)
	}
	if raw, ok := rawjson.Get(schema, "const"); ok {
		return types, []choice{{raw, StringMember(schema, "title")}}
	}
	if raw, ok := rawjson.Get(schema, "enum"); ok {
		titles, _ := rawjson.Get(schema, "enumNames")
		all := names(titles)
		for value := range rawjson.Elements(raw) {
			c := choice{value: value}
			if len(choices) < len(all) {
				c.title = all[len(choices)]
			}
			choices = append(choices, c)
		}
		return types, choices
	}
	for _, key := range []string{"oneOf", "anyOf"} {
		branches, ok := rawjson.Get(schema, key)
		if !ok {
			continue
		}
		whole := true
		for branch := range rawjson.Elements(branches) {
			if r.Left == 0 {
				return nil, nil
			}
			r.Left--
			t, c := r.kinds(r.resolve(branch))
			types = append(types, t...)
			choices = append(choices, c...)
			whole = whole && c != nil
		}
		if !whole {
			choices = nil
		}
	}
	slices.Sort(types)
	return slices.Compact(types), choices
}

// names returns the elements of a string or an array of strings.
func names(raw []byte) (all []string) {
	if s, err := rawjson.Unquote(raw); err == nil {
		return []string{s}
	}
	for element := range rawjson.Elements(raw) {
		if s, err := rawjson.Unquote(element); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// StringMember returns a member of an object if it is a string, else "".
func StringMember(object []byte, key string) string {
	raw, _ := rawjson.Get(object, key)
	s, _ := rawjson.Unquote(raw)
	return s
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
			all = append(all, c.text())
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
			if c.text() == typed || string(c.value) == typed {
				return c.value, nil
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
