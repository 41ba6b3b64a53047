package form

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// A builder makes fields from JSON values.
type builder struct {
	*shaper
	left    int  // fields that may still be made
	initial bool // absent values have their defaults, and required containers are open
}

// New returns the fields for a new value. Fields with a default contain it.
func New(schema stdjson.RawMessage) *Form {
	b := &builder{newShaper(schema), MaxFields - 1, true}
	root, err := b.root([]byte("{}"))
	if err != nil { // the schema is not about objects
		root, _ = b.root(nil)
	}
	return &Form{root}
}

// Parse returns the fields of a JSON text. It returns an error that names the place if no fields of
// the schema represent the text, for example if a field for a number would contain a string.
func Parse(schema, text stdjson.RawMessage) (*Form, error) {
	if err := rawjson.Valid(text); err != nil {
		return nil, fmt.Errorf("invalid JSON: %w", err)
	}
	b := &builder{newShaper(schema), MaxFields - 1, false}
	root, err := b.root(text)
	if err != nil {
		return nil, err
	}
	return &Form{root}, nil
}

func (b *builder) root(raw []byte) (*Field, error) {
	return b.field(b.rootField(), b.shape(b.Root), raw, 0)
}

// rootField returns the field of the whole value without its content.
func (r *shaper) rootField() *Field {
	f := r.blank("", "", r.Root)
	f.Required = true
	if r.shape(r.Root).bare {
		f.Kind, f.Extensible = KindMap, true
	}
	return f
}

// blank returns a field without content.
func (r *shaper) blank(pointer, name string, schema []byte) *Field {
	f := r.shape(schema).Field
	f.Pointer, f.Name = pointer, name
	return &f
}

// field fills in a field with a value. raw is nil if the value is absent.
func (b *builder) field(f *Field, s *shape, raw []byte, depth int) (*Field, error) {
	if b.initial && raw == nil && s.initial != nil && rawjson.Kind(s.initial) != 'n' {
		filled := *f
		if _, err := b.field(&filled, s, s.initial, depth); err == nil {
			return &filled, nil
		}
	}
	kind := rawjson.Kind(raw)
	if f.IsContainer() {
		return f, b.container(f, s, raw, depth)
	}
	switch {
	case raw == nil:
		return f, nil
	case kind == 'n' && f.Nullable && (f.Kind == KindText || f.Kind == KindNumber):
		f.Blank = BlankNull
		return f, nil
	case f.Kind == KindText:
		return f, f.setText(raw)
	case f.Kind == KindNumber && kind != '0':
		return nil, f.mismatch(kind)
	}
	f.Text = string(raw)
	same := func(c Choice) bool { return string(c.Value) == f.Text }
	if f.Choices != nil && !slices.ContainsFunc(f.Choices, same) {
		f.Choices = append(slices.Clone(f.Choices), Choice{Value: raw})
	}
	return f, nil
}

func (f *Field) setText(raw []byte) error {
	text, err := rawjson.Unquote(raw)
	if err != nil {
		return f.mismatch(rawjson.Kind(raw))
	}
	if strings.ContainsRune(text, 0) {
		return fmt.Errorf("%s contains the character U+0000, which a form cannot contain", f.place())
	}
	f.Text = text
	if string(rawjson.AppendQuote(nil, text)) != string(raw) || lines(text) != text {
		f.Raw = string(raw)
	}
	if text == "" {
		f.Blank = BlankEmpty
	}
	return nil
}

// container fills in the fields of a list, an object or a map, or makes the field a JSON field.
func (b *builder) container(f *Field, s *shape, raw []byte, depth int) error {
	opens, kind := byte('{'), rawjson.Kind(raw)
	if f.Kind == KindList {
		opens = '['
	}
	f.Open = kind == opens || raw == nil && b.initial && (f.Required || f.Element)
	switch {
	case kind == 'n' && f.Nullable:
		f.Blank = BlankNull
		return nil
	case raw != nil && !f.Open:
		return f.mismatch(kind)
	case !f.Open:
		return nil
	}
	count := len(s.properties)
	for range rawjson.Elements(raw) {
		count++
	}
	carried := true
	for key := range rawjson.Members(raw) {
		if s.closed && !s.names[string(key)] {
			return fmt.Errorf("%s has the member %q, which the schema does not allow", f.place(), key)
		}
		if !s.names[string(key)] {
			count++
		}
		carried = carried && !strings.ContainsFunc(string(key), unicode.IsControl)
	}
	if count > b.left || depth == maxDepth || !carried {
		f.Kind, f.Open, f.Text = KindJSON, false, string(raw)
		return nil
	}
	b.left -= count
	return b.inside(f, s, raw, depth+1)
}

// inside adds the fields of an open container.
func (b *builder) inside(f *Field, s *shape, raw []byte, depth int) error {
	add := func(inner *Field, schema, value []byte) error {
		inner, err := b.field(inner, b.shape(schema), value, depth)
		f.Fields = append(f.Fields, inner)
		return err
	}
	for _, p := range s.properties {
		value, _ := rawjson.Get(raw, p.name)
		if err := add(b.member(f, p.name, p.schema, p.required), p.schema, value); err != nil {
			return err
		}
	}
	for key, value := range rawjson.Members(raw) {
		if s.names[string(key)] {
			continue
		}
		if err := add(b.element(f, string(key), s.inner), s.inner, value); err != nil {
			return err
		}
	}
	index := 0
	for value := range rawjson.Elements(raw) {
		if err := add(b.element(f, strconv.Itoa(index), s.inner), s.inner, value); err != nil {
			return err
		}
		index++
	}
	return nil
}

// member returns the blank field of a property.
func (r *shaper) member(of *Field, name string, schema []byte, required bool) *Field {
	f := r.blank(of.Pointer+"/"+pointerEscapes.Replace(name), name, schema)
	f.Required = required
	return f
}

// element returns the blank field of an element, or of a member that the schema does not name.
func (r *shaper) element(of *Field, name string, schema []byte) *Field {
	f := r.member(of, name, schema, false)
	f.Element = true
	return f
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")

// place names the field in an error.
func (f *Field) place() string {
	if f.Pointer == "" {
		return "the value"
	}
	return f.Pointer
}

func (f *Field) mismatch(kind byte) error {
	names := map[byte]string{'{': "an object", '[': "an array", '"': "a string", '0': "a number", 't': "true",
		'f': "false", 'n': "null"}
	if names[kind] == "" {
		return errors.New("no value is given")
	}
	return fmt.Errorf("%s is %s, which its %s field cannot contain", f.place(), names[kind], f.Kind)
}
