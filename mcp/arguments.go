package mcp

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// textArguments are the arguments of a typed function that a peer sends as text: arguments of a
// prompt, or variables of a URI template. Each text is converted to JSON by its type in the schema
// of the function, then validated and decoded as arguments of a tool are.
type textArguments struct {
	schema *schema.Schema
	list   []textArgument
}

type textArgument struct {
	name, title, description string
	required                 bool
	kind                     string   // JSON type: string, integer, number, boolean, or array for a list of strings
	values                   []string // all possible values, if they are known
}

func textArgumentsOf(t reflect.Type) (*textArguments, error) {
	s, err := schema.For(t)
	if err != nil {
		return nil, err
	}
	a := &textArguments{schema: s}
	required := map[string]bool{}
	if raw, ok := jsonscan.Get(s.JSON(), "required"); ok {
		for name := range jsonscan.Elements(raw) {
			required[unquoted(name)] = true
		}
	}
	properties, _ := jsonscan.Get(s.JSON(), "properties")
	for name, property := range jsonscan.Members(properties) {
		arg := textArgument{
			name:        string(name),
			title:       member(property, "title"),
			description: member(property, "description"),
			required:    required[string(name)],
			kind:        member(property, "type"),
		}
		if err := arg.check(property); err != nil {
			return nil, fmt.Errorf("field %q: %w", name, err)
		}
		a.list = append(a.list, arg)
	}
	return a, nil
}

// check reports whether text can express the argument, and sets its values.
func (g *textArgument) check(property []byte) error {
	switch g.kind {
	case "string", "integer", "number":
		enum, _ := jsonscan.Get(property, "enum")
		for value := range jsonscan.Elements(enum) {
			g.values = append(g.values, unquoted(value))
		}
		return nil
	case "boolean":
		g.values = []string{"true", "false"}
		return nil
	case "array":
		if items, _ := jsonscan.Get(property, "items"); member(items, "type") == "string" {
			return nil
		}
	}
	return fmt.Errorf("schema is %s, want a string, a number, a boolean or a list of strings", property)
}

func member(object []byte, key string) string {
	raw, _ := jsonscan.Get(object, key)
	return unquoted(raw)
}

// unquoted returns the text of a JSON string, and any other JSON unchanged.
func unquoted(raw []byte) string {
	if s, err := jsonscan.Unquote(raw); err == nil {
		return s
	}
	return string(raw)
}

func (a *textArguments) names() []string {
	names := make([]string, len(a.list))
	for i, arg := range a.list {
		names[i] = arg.name
	}
	return names
}

func (a *textArguments) find(name string) *textArgument {
	if i := slices.IndexFunc(a.list, func(g textArgument) bool { return g.name == name }); i >= 0 {
		return &a.list[i]
	}
	return nil
}

func (a *textArguments) completers() map[string]CompleteFunc {
	funcs := map[string]CompleteFunc{}
	for _, arg := range a.list {
		if arg.values != nil {
			funcs[arg.name] = completeFrom(arg.values)
		}
	}
	return funcs
}

// appendMember appends an argument, a string or []string, as a member of an object. A text that is
// not of the argument's type stays a string, which the schema then rejects. An empty text of an
// optional number or boolean is an empty form field and is left out.
func (a *textArguments) appendMember(dst []byte, name string, value any) []byte {
	arg := a.find(name)
	text, isText := value.(string)
	if isText && text == "" && arg != nil && arg.kind != "string" && !arg.required {
		return dst
	}
	if len(dst) > 1 {
		dst = append(dst, ',')
	}
	dst = append(jsonscan.AppendQuote(dst, name), ':')
	switch {
	case !isText:
		return appendTexts(dst, value.([]string))
	case arg != nil && isLiteral(arg.kind, text):
		return append(dst, text...)
	}
	return jsonscan.AppendQuote(dst, text)
}

// isLiteral reports whether a text is JSON of a type that is written without quotes.
func isLiteral(kind, text string) bool {
	switch kind {
	case "integer", "number":
		return text == strings.TrimSpace(text) && jsonscan.Kind([]byte(text)) == '0' &&
			jsonscan.Valid([]byte(text), jsonscan.Limits{}) == nil
	case "boolean":
		return text == "true" || text == "false"
	}
	return false
}

func appendTexts(dst []byte, texts []string) []byte {
	dst = append(dst, '[')
	for i, text := range texts {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = jsonscan.AppendQuote(dst, text)
	}
	return append(dst, ']')
}

// check converts an object of strings, or nil, to JSON of the arguments' types and validates it.
func (a *textArguments) check(texts json.RawMessage) (json.RawMessage, error) {
	object := []byte{'{'}
	for name, value := range jsonscan.Members(texts) {
		text, err := jsonscan.Unquote(value)
		if err != nil {
			return nil, fmt.Errorf("argument %.128q is not a string", name)
		}
		object = a.appendMember(object, string(name), text)
	}
	return a.complete(append(object, '}'))
}

func (a *textArguments) complete(object json.RawMessage) (json.RawMessage, error) {
	object = a.schema.ApplyDefaults(object)
	return object, a.schema.Validate(object)
}
