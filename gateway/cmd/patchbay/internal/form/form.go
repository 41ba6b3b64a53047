// Package form makes the fields of a form from a JSON Schema, and converts between the posted values
// of the fields and JSON text. Numbers keep their digits and strings their escapes.
//
// [New] returns the fields for a new value, [Parse] the fields of a JSON text, and [Read] the fields
// that a browser posted. All functions accept schemas, texts and values of strangers. A [Form] must
// not be used concurrently.
package form

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

const (
	// MaxFields bounds the fields of a form: each becomes an element of the page. Containers that
	// exceed the rest are JSON fields.
	MaxFields = 500
	// maxDepth bounds nested containers, because a schema may require itself. A container below is a
	// JSON field.
	maxDepth = 8
)

// A Kind tells how a field is shown and how its text becomes JSON.
type Kind string

// The kinds of fields. The fields of objects, maps and lists contain other fields.
const (
	KindText    Kind = "text"    // the text of a string
	KindNumber  Kind = "number"  // the digits of a number
	KindBoolean Kind = "boolean" // true or false, as the JSON text of a choice
	KindChoice  Kind = "choice"  // the JSON text of a choice
	KindJSON    Kind = "json"    // any JSON text
	KindList    Kind = "list"
	KindObject  Kind = "object"
	KindMap     Kind = "map" // an object whose schema names no members
)

// The meanings of a field without text.
const (
	BlankNull  = "null"  // the value null
	BlankEmpty = "empty" // the empty string
)

// A Field is a field of a form: a value, or the place of an absent value.
type Field struct {
	Scope       string // distinguishes the fields of the forms of a page; see [Form.SetScope]
	Pointer     string // JSON pointer to the value
	Name        string // of a member, or the index of an element; "" for the root
	Title       string
	Description string
	Format      string
	Notes       []string // the limits of the value, in words
	Kind        Kind
	Required    bool
	Nullable    bool
	Element     bool // of a list or a map: it cannot be absent, but removed
	Extensible  bool // an object or map to which the user may add members
	Choices     []Choice

	Text   string   // text, or JSON text, depending on Kind
	Raw    string   // JSON string that Text was made from, if quoting Text gives other bytes
	Blank  string   // meaning of a field without text, or of a closed container; "" is an absent value
	Open   bool     // a container that is present
	Fields []*Field // of an open container

	Problems []string
}

// A Form is a tree of fields.
type Form struct{ Root *Field }

// IsContainer reports whether the field contains other fields.
func (f *Field) IsContainer() bool {
	return f.Kind == KindList || f.Kind == KindObject || f.Kind == KindMap
}

// ID identifies the field in a page.
func (f *Field) ID() string { return f.Scope + f.Pointer }

// SetScope sets the scope of all fields, because a page may contain several forms.
func (f *Form) SetScope(scope string) { f.Root.setScope(scope) }

func (f *Field) setScope(scope string) {
	f.Scope = scope
	for _, inner := range f.Fields {
		inner.setScope(scope)
	}
}

// Input returns the name of the field in a posted form: the pointer, or "#" for the root.
func (f *Field) Input() string {
	if f.Pointer == "" {
		return rootInput
	}
	return f.Pointer
}

// Empties returns the values that a field without text may have besides the usual value.
func (f *Field) Empties() (all []string) {
	if f.Kind == KindText && !f.Element {
		all = append(all, BlankEmpty)
	}
	if f.Nullable && (f.Kind == KindText || f.Kind == KindNumber) {
		all = append(all, BlankNull)
	}
	return all
}

// Extras returns the names of the members that the schema does not name.
func (f *Field) Extras() (all []string) {
	for _, member := range f.Fields {
		if member.Element {
			all = append(all, member.Name)
		}
	}
	return all
}

// JSON returns the compact JSON text of the fields, in their order. If a field contains no valid
// value, it adds a problem to the field and returns an error.
func (f *Form) JSON() (stdjson.RawMessage, error) {
	before := f.Root.count()
	text := f.Root.value()
	if n := f.Root.count() - before; n > 0 {
		return nil, fmt.Errorf("fields without a valid value: %d", n)
	}
	if text == nil {
		return nil, errors.New("no value is given")
	}
	return text, rawjson.Valid(text) // a JSON field may be nested too deeply for its place
}

// count returns the number of problems.
func (f *Field) count() int {
	n := len(f.Problems)
	for _, inner := range f.Fields {
		n += inner.count()
	}
	return n
}

// value returns the JSON text of the field, or nil if the value is absent or invalid.
func (f *Field) value() []byte {
	if f.IsContainer() {
		return f.container()
	}
	text := strings.TrimSpace(f.Text)
	switch {
	case f.Kind == KindText && f.Text != "":
		if unquoted, err := rawjson.Unquote([]byte(f.Raw)); err == nil && lines(unquoted) == lines(f.Text) {
			return []byte(f.Raw)
		}
		return rawjson.AppendQuote(nil, f.Text)
	case f.Kind != KindText && text != "":
		raw := []byte(text)
		err := rawjson.Valid(raw)
		switch {
		case f.Kind == KindNumber && (err != nil || rawjson.Kind(raw) != '0'):
			return f.refuse(fmt.Sprintf("got %.60q, want a number", text))
		case err != nil:
			return f.refuse("invalid JSON: " + err.Error())
		}
		return raw
	case f.Blank == BlankNull:
		return []byte("null")
	case f.Kind == KindText && (f.Blank == BlankEmpty || f.Element):
		return []byte(`""`)
	case f.Element:
		return f.refuse("a value is required")
	}
	return nil
}

func (f *Field) container() []byte {
	if !f.Open {
		if f.Blank == BlankNull {
			return []byte("null")
		}
		if f.Element {
			return f.refuse("a value is required")
		}
		return nil
	}
	marks := "{}"
	if f.Kind == KindList {
		marks = "[]"
	}
	var all [][]byte
	for _, inner := range f.Fields {
		value := inner.value()
		if value == nil {
			continue
		}
		if f.Kind != KindList {
			value = slices.Concat(rawjson.AppendQuote(nil, inner.Name), []byte(":"), value)
		}
		all = append(all, value)
	}
	return slices.Concat([]byte(marks[:1]), bytes.Join(all, []byte(",")), []byte(marks[1:]))
}

func (f *Field) refuse(problem string) []byte {
	f.Problems = append(f.Problems, problem)
	return nil
}

// lines returns a text as a browser posts it, with the line ends of Unix.
func lines(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
}

// CheckFormats adds a problem to each text that violates the format of its field, and reports whether
// all texts are valid.
func (f *Field) CheckFormats() bool {
	ok := true
	if f.Kind == KindText && f.Text != "" {
		if err := CheckFormat(f.Format, rawjson.AppendQuote(nil, f.Text)); err != nil {
			f.refuse(err.Error())
			ok = false
		}
	}
	for _, inner := range f.Fields {
		ok = inner.CheckFormats() && ok
	}
	return ok
}

// Mark adds the problems of an error of [jsonschema.Schema.Validate] to the fields that their
// pointers name, or to the nearest field that contains the place.
func (f *Form) Mark(err error) {
	var invalid *jsonschema.ValidationError
	if !errors.As(err, &invalid) {
		if err != nil {
			f.Root.refuse(err.Error())
		}
		return
	}
	for _, p := range invalid.Problems {
		at := f.Root.find(p.Path)
		for _, member := range at.Fields {
			if strings.HasPrefix(p.Text, "missing required property "+string(rawjson.AppendQuote(nil, member.Name))) {
				at = member
				break
			}
		}
		at.refuse(p.Text)
	}
}

// find returns the field that a JSON pointer names, or the last field on the way.
func (f *Field) find(pointer string) *Field {
	for _, inner := range f.Fields {
		if pointer == inner.Pointer || strings.HasPrefix(pointer, inner.Pointer+"/") {
			return inner.find(pointer)
		}
	}
	return f
}
