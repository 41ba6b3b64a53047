package check

import (
	"cmp"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// An Assertion is a statement about a value of a result, or about the whole call. It contains exactly
// one member besides At. Values are compared as JSON Schema compares them: 20 equals 20.0, and the
// order of members is irrelevant.
type Assertion struct {
	// At is a JSON pointer to the value. Default: the whole result, or the whole error.
	At *string `json:"at,omitzero" jsonschema:"JSON pointer to the value; the whole result by default"`

	Equals   stdjson.RawMessage `json:"equals,omitzero" jsonschema:"value that it equals"`
	Matches  *string            `json:"matches,omitzero" jsonschema:"regular expression (RE2) that a string matches"`
	Contains stdjson.RawMessage `json:"contains,omitzero" jsonschema:"part of a string, array or object"`
	Exists   *bool              `json:"exists,omitzero" jsonschema:"whether the value exists"`
	Schema   stdjson.RawMessage `json:"schema,omitzero" jsonschema:"JSON Schema that the value matches"`
	Length   *int               `json:"length,omitzero" jsonschema:"characters, elements or members,minimum=0"`

	Type *string `json:"type,omitzero" jsonschema:"JSON type,enum=null|boolean|object|array|number|integer|string"`

	Error        *int    `json:"error,omitzero" jsonschema:"code of the error that ends the call"`
	MaxMs        *int    `json:"maxMs,omitzero" jsonschema:"longest duration in milliseconds,minimum=1"`
	Rounds       *int    `json:"rounds,omitzero" jsonschema:"how often the server asks for input,minimum=0"`
	OutputSchema *string `json:"outputSchema,omitzero" jsonschema:"structured content matches the tool,enum=valid"`

	kind    string // the name of the member besides at
	operand []byte // its value
	pointer string
	matches *regexp.Regexp
	schema  *jsonschema.Schema
}

// check checks and prepares the assertion, whose text is raw.
func (a *Assertion) check(raw []byte, method string) (err error) {
	var kinds []string
	for name, value := range rawjson.Members(raw) {
		if string(name) != "at" {
			kinds, a.kind, a.operand = append(kinds, string(name)), string(name), value
		}
	}
	if a.At != nil {
		a.pointer = *a.At
	}
	switch {
	case len(kinds) != 1 || rawjson.Kind(a.operand) == 'n' && a.kind != "equals" && a.kind != "contains":
		return fmt.Errorf("got %s, want exactly one of equals, matches, contains, exists, type, schema, length, "+
			"error, maxMs, rounds and outputSchema, with a value", cmp.Or(strings.Join(kinds, " and "), "no assertion"))
	case a.At != nil && (a.Error != nil || a.MaxMs != nil || a.Rounds != nil || a.OutputSchema != nil):
		return fmt.Errorf("at: %s is about the whole call: remove at", a.kind)
	case !isPointer(a.pointer):
		return fmt.Errorf("at: invalid JSON pointer %.64q: must be empty or begin with /", a.pointer)
	case a.OutputSchema != nil && method != driver.MethodToolsCall:
		return fmt.Errorf("outputSchema is for calls of %s", driver.MethodToolsCall)
	case a.Matches != nil:
		a.matches, err = regexp.Compile(*a.Matches)
	case a.Type != nil:
		a.schema, err = jsonschema.Compile([]byte(`{"type":"` + *a.Type + `"}`))
	case a.Schema != nil:
		a.schema, err = jsonschema.Compile(a.Schema)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", a.kind, err)
	}
	return err
}

// A subject is an ended call.
type subject struct {
	doc          []byte // the result, or the error as an object
	code         *int   // of the error; nil for a result
	ms           float64
	rounds       int
	outputSchema func() (*jsonschema.Schema, error)
	mask         func(string) string
}

// test returns the difference between a call and an assertion with an operand whose variables are
// replaced, or "", and the operand that would match, if there is one.
func (a *Assertion) test(s *subject, operand []byte) (difference string, actual []byte) {
	value, found := lookup(s.doc, a.pointer)
	at := place(a.pointer) + ": "
	if a.Error != nil || a.Rounds != nil {
		at = ""
	}
	switch {
	case a.Error != nil && s.code == nil:
		return "got a result, want the error " + string(operand), nil
	case a.Error != nil:
		actual = strconv.AppendInt(nil, int64(*s.code), 10)
	case a.MaxMs != nil:
		if s.ms > float64(*a.MaxMs) {
			return fmt.Sprintf("got %.1f ms, want at most %d ms", s.ms, *a.MaxMs), nil
		}
		return "", nil
	case a.Rounds != nil:
		actual = strconv.AppendInt(nil, int64(s.rounds), 10)
	case a.OutputSchema != nil:
		return s.testOutput(), nil
	case a.Exists != nil:
		actual = strconv.AppendBool(nil, found)
	case !found:
		return fmt.Sprintf("%sgot no value, want %s %s", at, a.kind, s.shown(operand)), nil
	case a.kind == "equals":
		return s.difference(a.pointer, value, operand), value
	case a.Length != nil:
		actual = length(value)
	case a.schema != nil:
		return s.invalid(a.pointer, a.schema.Validate(value)), nil
	case a.matches != nil:
		text, err := rawjson.Unquote(value)
		found = err == nil && a.matches.MatchString(text)
	default:
		found = contains(value, operand)
	}
	switch {
	case actual != nil && same(actual, operand), actual == nil && found && a.Length == nil:
		return "", actual
	case actual != nil && a.Exists == nil:
		return fmt.Sprintf("%sgot %s %s, want %s", at, a.kind, actual, operand), actual
	}
	return fmt.Sprintf("%sgot %s, want %s %s", at, s.shown(value), a.kind, s.shown(operand)), actual
}

// invalid returns the first problem of a value that does not match a schema. The problem quotes values,
// which are cut: it is not shown if the value contains a secret.
func (s *subject) invalid(at string, err error) string {
	wrong, ok := errors.AsType[*jsonschema.ValidationError](err)
	if !ok {
		return ""
	}
	p := wrong.Problems[0]
	if value, _ := lookup(s.doc, at+p.Path); s.mask(string(value)) != string(value) {
		return place(at+p.Path) + ": got a value with a secret, which does not match the schema"
	}
	return place(at+p.Path) + ": " + p.Text
}

func (s *subject) testOutput() string {
	compiled, err := s.outputSchema()
	if err != nil {
		return s.mask(err.Error())
	}
	value, found := rawjson.Get(s.doc, "structuredContent")
	if !found {
		return "got no structured content, want content that matches the output schema of the tool"
	}
	return s.invalid("/structuredContent", compiled.Validate(value))
}

// length returns the number of characters, elements or members, or nil for another value.
func length(value []byte) []byte {
	n := 0
	switch rawjson.Kind(value) {
	case '"':
		text, _ := rawjson.Unquote(value) // valid
		n = utf8.RuneCountInString(text)
	case '[':
		for range rawjson.Elements(value) {
			n++
		}
	case '{':
		for range rawjson.Members(value) {
			n++
		}
	default:
		return nil
	}
	return strconv.AppendInt(nil, int64(n), 10)
}
