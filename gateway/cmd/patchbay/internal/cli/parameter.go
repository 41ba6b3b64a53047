package cli

import (
	"cmp"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

const (
	// maxReferences bounds a chain of references: a schema may refer to itself.
	maxReferences = 8
	// maxSubschemas bounds the subschemas that are read: nested alternatives grow exponentially.
	maxSubschemas = 1000
)

// A parameter is a property of an object schema, with what a command line or a form needs.
type parameter struct {
	name     string
	schema   stdjson.RawMessage // with references resolved
	types    []string           // JSON types; empty for any
	choices  []choice           // the allowed values; nil for any
	items    *parameter         // the elements of an array; nil for other types
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

// parametersOf returns the properties of an object schema, and whether it allows no others.
func parametersOf(schema stdjson.RawMessage) (all []parameter, closed bool) {
	if rawjson.Valid(schema) != nil {
		return nil, false
	}
	r := &schemaReader{schema, maxSubschemas}
	object := r.resolve(schema)
	additional, has := rawjson.Get(object, "additionalProperties")
	return r.properties(object), has && rawjson.Kind(additional) == 'f'
}

// properties returns the properties of an object schema.
func (r *schemaReader) properties(object []byte) (all []parameter) {
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
		p.required = slices.Contains(required, p.name)
		all = append(all, p)
	}
	return all
}

// A schemaReader reads the subschemas of one document.
type schemaReader struct {
	root []byte
	left int // subschemas that may still be read
}

func (r *schemaReader) parameter(name string, schema []byte) parameter {
	p := parameter{name: name, schema: r.resolve(schema)}
	p.description = stringMember(p.schema, "description")
	p.types, p.choices = r.kinds(p.schema)
	if items := r.element(p.schema, newElement); items != nil && p.takes("array") {
		item := parameter{schema: r.resolve(items)} // arrays of arrays are not supported
		item.types, item.choices = r.kinds(item.schema)
		p.items = &item
	}
	return p
}

// resolve resolves references within the document.
func (r *schemaReader) resolve(schema []byte) []byte {
	for range maxReferences {
		raw, ok := rawjson.Get(schema, "$ref")
		if !ok || r.left == 0 {
			return schema
		}
		r.left--
		target, err := rawjson.Unquote(raw)
		path, local := strings.CutPrefix(target, "#")
		if err != nil || !local {
			return schema
		}
		found := r.root
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
func (r *schemaReader) kinds(schema []byte) (types []string, choices []choice) {
	if raw, ok := rawjson.Get(schema, "type"); ok {
		types = names(raw)
	}
	if raw, ok := rawjson.Get(schema, "const"); ok {
		return types, []choice{{raw, stringMember(schema, "title")}}
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
			if r.left == 0 {
				return nil, nil
			}
			r.left--
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

// stringMember returns a member of an object if it is a string, else "".
func stringMember(object []byte, key string) string {
	raw, _ := rawjson.Get(object, key)
	s, _ := rawjson.Unquote(raw)
	return s
}

func (p *parameter) takes(kind string) bool { return slices.Contains(p.types, kind) }

func (p *parameter) defaultValue() stdjson.RawMessage {
	raw, _ := rawjson.Get(p.schema, "default")
	return raw
}

// want returns the allowed values in words.
func (p *parameter) want() string {
	if p.choices != nil {
		var all []string
		for _, c := range p.choices {
			all = append(all, c.text())
		}
		return oneOf(all)
	}
	if len(p.types) == 0 {
		return "any value"
	}
	var words []string
	for _, t := range p.types {
		words = append(words, cmp.Or(typePhrases[t], t))
	}
	text := strings.Join(words, " or ")
	if p.items != nil && p.items.choices != nil {
		text += " of " + strings.TrimPrefix(p.items.want(), "one of ")
	}
	return text
}

var typePhrases = map[string]string{
	"string": "a string", "number": "a number", "integer": "an integer", "boolean": "true or false",
	"object": "a JSON object", "array": "an array",
}

// coerce converts what was typed to JSON: to a string if the parameter may be one.
func (p *parameter) coerce(typed string) (stdjson.RawMessage, error) {
	quoted := stdjson.RawMessage(rawjson.AppendQuote(nil, typed))
	if p.choices != nil {
		for _, c := range p.choices {
			if c.text() == typed || string(c.value) == typed {
				return c.value, nil
			}
		}
		return nil, fmt.Errorf("got %q, want %s", typed, cleanLine(p.want()))
	}
	if len(p.types) == 0 || p.takes("string") {
		return quoted, nil
	}
	raw := stdjson.RawMessage(strings.TrimSpace(typed))
	if rawjson.Valid(raw) == nil && p.fits(raw) {
		return raw, nil
	}
	return nil, fmt.Errorf("got %q, want %s", typed, cleanLine(p.want()))
}

// fits reports whether the parameter allows the type of a JSON value.
func (p *parameter) fits(raw []byte) bool {
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

// isInteger reports whether a JSON number has no exponent and no fraction but zeros.
func isInteger(number string) bool {
	whole, rest, _ := strings.Cut(number, ".")
	return strings.Trim(rest, "0") == "" && !strings.ContainsAny(whole, "eE")
}
