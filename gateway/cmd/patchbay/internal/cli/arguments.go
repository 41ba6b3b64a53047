package cli

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/gateway/internal/spell"
)

// arguments collects the arguments of a call. The object keeps their order.
type arguments struct {
	thing      string // argument or field, for errors
	owner      string // tool or prompt, which may take undeclared arguments; empty for a form
	parameters []parameter
	closed     bool     // the schema allows no other parameters
	warnings   []string // about undeclared arguments
	keys       []string
	values     map[string]stdjson.RawMessage
	lists      map[string]bool // paths of arrays whose elements are given one by one
	wrong      map[string]bool // keys with an invalid value
	input      *input

	nested bool               // keys may be paths; see help arguments
	root   stdjson.RawMessage // the schema
	reader *schemaReader      // of the schema, for one path
}

// newArguments parses the arguments of a tool: key=value, key:=json, key=@file, key:=@file, @file,
// -, or a JSON object. Later ones win. Values are converted to the types of the schema. Arguments
// that the schema does not name are kept, with a warning: servers may take them.
func (a *asker) newArguments(
	ctx context.Context, words []string, inputSchema stdjson.RawMessage,
) (*arguments, error) {
	parameters, closed := parametersOf(inputSchema)
	return a.readArguments(ctx, words, &arguments{thing: "argument", owner: "tool", parameters: parameters,
		closed: closed, nested: rawjson.Valid(inputSchema) == nil, root: inputSchema})
}

// newFields parses the fields of a form in the same way. Fields that its schema does not name are
// errors, even if the schema allows them.
func (a *asker) newFields(ctx context.Context, words []string, requested stdjson.RawMessage) (*arguments, error) {
	parameters, _ := parametersOf(requested)
	return a.readArguments(ctx, words, &arguments{thing: "field", parameters: parameters, closed: true})
}

func (p *asker) readArguments(ctx context.Context, words []string, a *arguments) (*arguments, error) {
	a.values, a.lists, a.wrong = map[string]stdjson.RawMessage{}, map[string]bool{}, map[string]bool{}
	a.input = p.IO.In
	var errs []error
	for _, word := range words {
		if err := a.add(ctx, word); err != nil {
			errs = append(errs, err)
		}
	}
	undeclared, unknown := a.check()
	missing := a.missing()
	if missing != nil && errs == nil && unknown == nil && a.owner != "" && p.IO.mayPrompt() {
		given, err := p.askMissing(ctx, a, missing)
		if given || err != nil {
			return a, err
		}
	}
	for i := range missing {
		unknown = append(unknown, missing[i].missing(a.thing))
	}
	if errs != nil || unknown != nil {
		return nil, errors.Join(slices.Concat(errs, undeclared, unknown)...)
	}
	return a, nil
}

// warnUndeclared shows the warnings about arguments that are sent although they are undeclared.
func (p *asker) warnUndeclared(a *arguments) {
	for _, warning := range a.warnings {
		p.IO.Err.printf("%s %s", p.IO.warning(), clean(warning))
	}
}

func (a *arguments) add(ctx context.Context, word string) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	at := strings.IndexByte(word, '=')
	switch {
	case !utf8.ValidString(word):
		return fmt.Errorf("invalid argument %q: must be UTF-8", word)
	case word == "-":
		data, err := a.input.readSource(ctx, word)
		if err != nil {
			return err
		}
		return a.merge("standard input", data)
	case strings.HasPrefix(word, "@"):
		data, err := readFile(ctx, word[1:])
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
func (a *arguments) mark(key string, err error) error {
	if err != nil {
		a.wrong[key] = true
		if name, _, bad := cutMember(key, a.names()); a.nested && bad == nil {
			a.wrong[name] = true
		}
		return fmt.Errorf("%s: %w", key, err)
	}
	return nil
}

func (a *arguments) merge(from string, data []byte) error {
	if err := rawjson.Valid(data); err != nil {
		return fmt.Errorf("%s: %w", from, err)
	}
	if rawjson.Kind(data) != '{' {
		return fmt.Errorf("%s: want a JSON object", from)
	}
	for key, value := range rawjson.Members(data) {
		a.forget([]step{{key: string(key)}})
		a.put(string(key), value)
	}
	return nil
}

func (a *arguments) setJSON(ctx context.Context, key, text string) error {
	data := []byte(text)
	if file, ok := strings.CutPrefix(text, "@"); ok {
		var err error
		if data, err = readFile(ctx, file); err != nil {
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
	return a.set(a.fixed(steps), data)
}

func (a *arguments) setText(ctx context.Context, key, text string) error {
	if file, ok := strings.CutPrefix(text, "@"); ok {
		data, err := readFile(ctx, file)
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
	if err != nil && param.items != nil { // one element of an array
		if value, err = param.items.coerce(text); err == nil {
			return a.addElement(steps, value)
		}
	}
	if err != nil {
		return err
	}
	return a.set(steps, value)
}

func listOf(elements [][]byte) stdjson.RawMessage {
	return slices.Concat([]byte("["), bytes.Join(elements, []byte(",")), []byte("]"))
}

// parameter returns the parameter of a key. A key that the schema does not name is a string.
func (a *arguments) parameter(key string) *parameter {
	if i := slices.IndexFunc(a.parameters, func(p parameter) bool { return p.name == key }); i >= 0 {
		return &a.parameters[i]
	}
	return &parameter{name: key}
}

// set sets a value in place of the one before and of its elements.
func (a *arguments) set(steps []step, value stdjson.RawMessage) error {
	a.forget(steps)
	return a.place(steps, value)
}

// forget notes that a value does not consist of elements that were given one by one.
func (a *arguments) forget(steps []step) {
	path := pathOf(steps)
	maps.DeleteFunc(a.lists, func(list string, _ bool) bool {
		rest, inside := strings.CutPrefix(list, path)
		return inside && (rest == "" || rest[0] == '.' || rest[0] == '[')
	})
}

// addElement adds an element to the array of those given one by one. The first replaces the array
// that was given before.
func (a *arguments) addElement(steps []step, value stdjson.RawMessage) error {
	if path := pathOf(steps); !a.lists[path] {
		err := a.set(steps, listOf([][]byte{value}))
		a.lists[path] = err == nil
		return err
	}
	return a.place(a.fixed(append(slices.Clone(steps), step{element: true, index: newElement})), value)
}

func (a *arguments) put(key string, value stdjson.RawMessage) {
	if _, has := a.values[key]; !has {
		a.keys = append(a.keys, key)
	}
	a.values[key] = value
}

// check returns errors for unknown arguments. Those that may be sent though they are undeclared are
// warnings, and errors only if there are others.
func (a *arguments) check() (undeclared, unknown []error) {
	known := a.names()
	for _, key := range a.keys {
		like := spell.Nearest(key, known)
		switch {
		case slices.Contains(known, key) || !a.closed && !a.lacks(like):
		case a.misses(like) || a.closed && (a.owner == "" || a.owner == "tool" && a.lacks(like)):
			unknown = append(unknown, unknownName(a.thing, key, known))
		default:
			undeclared = append(undeclared, unknownName(a.thing, key, known))
			warning := fmt.Sprintf("the %s does not declare the %s %q", a.owner, a.thing, shorten(key, maxNameShown))
			if a.lacks(like) {
				warning += fmt.Sprintf(": did you mean %q?", cleanLine(like))
			}
			a.warnings = append(a.warnings, warning)
		}
	}
	return undeclared, unknown
}

func (a *arguments) names() (all []string) {
	for i := range a.parameters {
		all = append(all, a.parameters[i].name)
	}
	return all
}

// lacks reports whether no value of a parameter was given.
func (a *arguments) lacks(key string) bool {
	_, given := a.values[key]
	return !given && !a.wrong[key] && key != ""
}

// misses reports whether no value of a required parameter was given.
func (a *arguments) misses(key string) bool { return a.lacks(key) && a.parameter(key).required }

// unknownName returns an error for an unknown name. It suggests a similar name or lists the names.
func unknownName(thing, name string, known []string) error {
	text := fmt.Sprintf("unknown %s %q", thing, shorten(name, maxNameShown))
	if like := spell.Nearest(name, known); like != "" {
		return fmt.Errorf("%s: did you mean %q?", text, cleanLine(like))
	}
	known = slices.Clone(known)
	for i, name := range known {
		known[i] = shorten(name, maxNameShown)
	}
	const shown = 20
	switch {
	case len(known) == 0:
		return fmt.Errorf("%s (none available)", text)
	case len(known) > shown:
		return fmt.Errorf("%s: want one of %s and %d more", text, cleanLine(strings.Join(known[:shown], ", ")),
			len(known)-shown)
	}
	return fmt.Errorf("%s: want %s", text, cleanLine(oneOf(known)))
}

func oneOf(all []string) string {
	if len(all) == 1 {
		return all[0]
	}
	return "one of " + strings.Join(all, ", ")
}

func (a *arguments) object() stdjson.RawMessage {
	var members [][]byte
	for _, key := range a.keys {
		members = append(members, slices.Concat(rawjson.AppendQuote(nil, key), []byte(":"), a.values[key]))
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}"))
}
