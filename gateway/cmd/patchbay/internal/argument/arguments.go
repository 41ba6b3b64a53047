// Package argument parses the arguments of tools and prompts against their JSON Schema.
package argument

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// List collects the arguments of a call. The object keeps their order.
type List struct {
	Thing      string // argument or field, for errors
	Owner      string // tool or prompt, which may take undeclared arguments; empty for a form
	Parameters []Parameter
	Closed     bool     // the schema allows no other parameters
	Warnings   []string // about undeclared arguments
	keys       []string
	Values     map[string]stdjson.RawMessage
	Lists      map[string]bool // paths of arrays whose elements are given singly
	Wrong      map[string]bool // keys with an invalid value
	Input      *term.Input

	Nested bool               // keys may be paths; see help arguments
	Root   stdjson.RawMessage // the schema
	Reader *SchemaReader      // reads the schema for a path
}

// Add parses a word and adds the arguments that it contains.
func (a *List) Add(ctx context.Context, word string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	at := strings.IndexByte(word, '=')
	switch {
	case !utf8.ValidString(word):
		return fmt.Errorf("invalid argument %q: must be UTF-8", word)
	case word == "-":
		data, err := a.Input.ReadSource(ctx, word)
		if err != nil {
			return err
		}
		return a.merge("standard input", data)
	case strings.HasPrefix(word, "@"):
		data, err := term.ReadFile(ctx, word[1:])
		if err != nil {
			return err
		}
		return a.merge(word[1:], data)
	case strings.HasPrefix(word, "{"):
		return a.merge("the argument", []byte(word))
	case at <= 0 || word[:at] == ":":
		return fmt.Errorf("invalid argument %q: want key=value, key:=json, @file or -", word)
	case word[at-1] == ':':
		return a.mark(word[:at-1], a.setJSON(ctx, word[:at-1], word[at+1:]))
	}
	return a.mark(word[:at], a.setText(ctx, word[:at], word[at+1:]))
}

// mark notes that the value of a key is invalid, unless err is nil.
func (a *List) mark(key string, err error) error {
	if err != nil {
		a.Wrong[key] = true
		if name, _, bad := cutMember(key, a.names()); a.Nested && bad == nil {
			a.Wrong[name] = true
		}
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func (a *List) merge(from string, data []byte) error {
	if err := rawjson.Valid(data); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if rawjson.Kind(data) != '{' {
		return fmt.Errorf("%s: want a JSON object", from)
	}
	for key, value := range rawjson.Members(data) {
		a.forget([]Step{{key: string(key)}})
		a.Put(string(key), value)
	}
	return nil
}

func (a *List) setJSON(ctx context.Context, key, text string) error {
	data := []byte(text)
	if file, ok := strings.CutPrefix(text, "@"); ok {
		var err error
		if data, err = term.ReadFile(ctx, file); err != nil {
			return err
		}
	}
	if err := rawjson.Valid(data); err != nil {
		return fmt.Errorf("invalid JSON %.60q: %w", text, err)
	}
	steps, _, err := a.locate(key)
	if err != nil {
		return err
	}
	return a.Set(a.fixed(steps), data)
}

func (a *List) setText(ctx context.Context, key, text string) error {
	if file, ok := strings.CutPrefix(text, "@"); ok {
		data, err := term.ReadFile(ctx, file)
		if err != nil {
			return fmt.Errorf("%w (for a value that begins with @, write key:='\"@…\"')", err)
		}
		if text = string(data); !utf8.ValidString(text) {
			return fmt.Errorf("invalid file %s: must be UTF-8", file)
		}
	}
	steps, param, err := a.locate(key)
	if err != nil {
		return err
	}
	steps = a.fixed(steps)
	value, err := param.coerce(text)
	if err != nil && param.Items != nil { // an element of an array
		if value, err = param.Items.coerce(text); err == nil {
			return a.addElement(steps, value)
		}
	}
	if err != nil {
		return err
	}
	return a.Set(steps, value)
}

// ListOf returns a JSON array of elements.
func ListOf(elements [][]byte) stdjson.RawMessage {
	return slices.Concat([]byte("["), bytes.Join(elements, []byte(",")), []byte("]"))
}

// parameter returns the parameter of a key. A key that the schema does not name is a string.
func (a *List) parameter(key string) *Parameter {
	if i := slices.IndexFunc(a.Parameters, func(p Parameter) bool { return p.Name == key }); i >= 0 {
		return &a.Parameters[i]
	}
	return &Parameter{Name: key}
}

// Set sets a value. It replaces an earlier value, and elements that were given singly.
func (a *List) Set(steps []Step, value stdjson.RawMessage) error {
	a.forget(steps)
	return a.place(steps, value)
}

// forget records that later elements must not extend the value.
func (a *List) forget(steps []Step) {
	path := pathOf(steps)
	maps.DeleteFunc(a.Lists, func(list string, _ bool) bool {
		rest, inside := strings.CutPrefix(list, path)
		return inside && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// addElement adds an element to an array whose elements are given singly. The first element
// replaces an array that was given as a whole.
func (a *List) addElement(steps []Step, value stdjson.RawMessage) error {
	if path := pathOf(steps); !a.Lists[path] {
		err := a.Set(steps, ListOf([][]byte{value}))
		a.Lists[path] = err == nil
		return err
	}
	return a.place(a.fixed(append(slices.Clone(steps), Step{element: true, index: newElement})), value)
}

// Put sets the value of a key.
func (a *List) Put(key string, value stdjson.RawMessage) {
	if _, has := a.Values[key]; !has {
		a.keys = append(a.keys, key)
	}
	a.Values[key] = value
}

// Check returns errors for unknown arguments. An undeclared argument that the schema allows is a
// warning, and an error only if other arguments are wrong.
func (a *List) Check() (undeclared, unknown []error) {
	known := a.names()
	for _, key := range a.keys {
		like := jsonschema.Nearest(key, known)
		switch {
		case slices.Contains(known, key) || !a.Closed && !a.lacks(like):
		case a.misses(like) || a.Closed && (a.Owner == "" || a.Owner == "tool" && a.lacks(like)):
			unknown = append(unknown, term.UnknownName(a.Thing, key, known))
		default:
			undeclared = append(undeclared, term.UnknownName(a.Thing, key, known))
			warning := fmt.Sprintf("the %s does not declare the %s %q", a.Owner, a.Thing, term.Shorten(key,
				term.MaxNameShown))
			if a.lacks(like) {
				warning += fmt.Sprintf(": did you mean %q?", term.CleanLine(like))
			}
			a.Warnings = append(a.Warnings, warning)
		}
	}
	return undeclared, unknown
}

func (a *List) names() (all []string) {
	for i := range a.Parameters {
		all = append(all, a.Parameters[i].Name)
	}
	return all
}

// lacks reports whether no value of a parameter was given.
func (a *List) lacks(key string) bool {
	_, given := a.Values[key]
	return !given && !a.Wrong[key] && key != ""
}

// misses reports whether no value of a required parameter was given.
func (a *List) misses(key string) bool { return a.lacks(key) && a.parameter(key).required }

// Object returns the arguments as a JSON object.
func (a *List) Object() stdjson.RawMessage {
	var members [][]byte
	for _, key := range a.keys {
		members = append(members, slices.Concat(rawjson.AppendQuote(nil, key), []byte(":"), a.Values[key]))
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}"))
}
