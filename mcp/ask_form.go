package mcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// AskOptions says more about a form than its Go type does.
type AskOptions struct {
	// Schema is the form as JSON Schema, in place of the one that is derived from T. Where T is a struct, a map or
	// json.RawMessage, it describes an object with fields of type string, number, integer, boolean or array of enum values;
	// elsewhere, the one value.
	//
	// Spec: client/elicitation, Requested Schema.
	Schema json.RawMessage
	// Default is what the form starts with, and what fields have that the user leaves out: a value that encodes to JSON
	// as an answer does. Of a struct or map, each member is the default of its field.
	Default any
}

// A single is the form for one value that stands alone.
type single[T any] struct {
	Value T `json:"value"`
}

// singleField is the name of the one field of a single.
const singleField = "value"

// FormQuestion asks the user to fill in a form, whose content goes to answer: [Ask] as a question for [AskAll].
func FormQuestion[T any](key, message string, answer *T, opts *AskOptions) Question {
	if opts == nil {
		opts = &AskOptions{}
	}
	form, err := newForm(reflect.TypeFor[T](), reflect.TypeFor[single[T]](), opts)
	if err != nil {
		return Question{key: key, err: err}
	}
	q := Question{key: key, lacks: lacksForm}
	if form.multiSelect {
		q.lacks = lacksMultiSelect
	}
	q.request, q.err = elicitation(&ElicitParams{Mode: modeForm, Message: message, RequestedSchema: form.schema.JSON()})
	q.accept = func(raw json.RawMessage) error {
		content, err := form.content(raw)
		if err != nil {
			return err
		}
		var whole T
		var one single[T]
		target := any(&whole)
		if form.single {
			target = &one
		}
		if schema.Decode(content, target) != nil {
			return errWrongAnswer // it passed the schema, but not the type: a number beyond its range
		}
		*answer = whole
		if form.single {
			*answer = one.Value
		}
		return nil
	}
	return q
}

// A form is what a user is shown, and what an answer is held to.
type form struct {
	schema      *schema.Schema
	single      bool
	multiSelect bool
}

// newForm makes the form for a Go type; asSingle is the type that holds one of it.
func newForm(t, asSingle reflect.Type, opts *AskOptions) (*form, error) {
	f := &form{single: !holdsObject(t)}
	err := jsonscan.Valid(opts.Schema, jsonscan.Limits{})
	if opts.Schema != nil && err != nil {
		return nil, fmt.Errorf("form: schema: %w", err)
	}
	switch {
	case opts.Schema == nil && f.single:
		f.schema, err = schema.ForElicitation(asSingle)
	case opts.Schema == nil:
		f.schema, err = schema.ForElicitation(t)
	case f.single:
		f.schema, err = schema.Compile(singleSchema(opts.Schema))
	default:
		f.schema, err = schema.Compile(opts.Schema)
	}
	if err != nil {
		return nil, fmt.Errorf("form: %w", err)
	}
	if opts.Default != nil {
		if err := f.setDefaults(opts.Default); err != nil {
			return nil, fmt.Errorf("form: %w", err)
		}
	}
	if err := f.check(); err != nil {
		return nil, fmt.Errorf("form: %w", err)
	}
	return f, nil
}

// holdsObject reports whether a value of type t is a form by itself, as a struct is and a string or a time is not.
func holdsObject(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Map, reflect.Interface:
		return true
	case reflect.Struct:
		s, err := schema.For(t)
		return err != nil || s.RootType() != "string"
	}
	return t == reflect.TypeFor[json.RawMessage]()
}

// singleSchema wraps the schema of one value. What has a default may be left out.
func singleSchema(value json.RawMessage) json.RawMessage {
	s := append([]byte(`{"type":"object","properties":{"`+singleField+`":`), value...)
	s = append(s, '}')
	if _, has := jsonscan.Get(value, "default"); !has {
		s = append(s, `,"required":["`+singleField+`"]`...)
	}
	return append(s, '}')
}

// setDefaults returns the fields of the form their defaults.
func (f *form) setDefaults(v any) error {
	values, err := schema.Encode(v)
	if err != nil {
		return fmt.Errorf("default: %w", err)
	}
	if f.single {
		values, err = schema.Encode(single[json.RawMessage]{values})
		if err != nil {
			return fmt.Errorf("default: %w", err)
		}
	}
	if jsonscan.Kind(values) != '{' {
		return errors.New("the default is not an object")
	}
	properties, _ := jsonscan.Get(f.schema.JSON(), "properties")
	changed := properties
	for name, value := range jsonscan.Members(values) {
		property, ok := jsonscan.Get(properties, string(name))
		if !ok {
			return fmt.Errorf("the default has a member %q, and the form has no such field", name)
		}
		changed = withMember(changed, string(name), withMember(property, "default", value))
	}
	f.schema, err = schema.Compile(withMember(f.schema.JSON(), "properties", changed))
	return err
}

// withMember returns a JSON object with one member replaced, in its place, or added.
func withMember(obj []byte, key string, value []byte) []byte {
	out := []byte{'{'}
	add := func(k string, v []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(append(jsonscan.AppendQuote(out, k), ':'), v...)
	}
	replaced := false
	for k, v := range jsonscan.Members(obj) {
		if string(k) == key {
			v, replaced = value, true
		}
		add(string(k), v)
	}
	if !replaced {
		add(key, value)
	}
	return append(out, '}')
}

// check holds the form to what clients can show: a flat object.
//
// Spec: client/elicitation, Requested Schema; schema PrimitiveSchemaDefinition.
func (f *form) check() error {
	if f.schema.RootType() != "object" {
		return errors.New("its schema is not of an object")
	}
	properties, ok := jsonscan.Get(f.schema.JSON(), "properties")
	if !ok || jsonscan.Kind(properties) != '{' {
		return errors.New("its schema has no properties")
	}
	for name, property := range jsonscan.Members(properties) {
		typ, _ := jsonscan.Get(property, "type")
		switch string(typ) {
		case `"string"`, `"number"`, `"integer"`, `"boolean"`:
		case `"array"`:
			if !choices(property) {
				return fmt.Errorf("field %q is a list, but not of enum values", name)
			}
			f.multiSelect = true
		default:
			return fmt.Errorf("field %q has type %s, want string, number, integer, boolean or a list of enum values", name, typ)
		}
	}
	return nil
}

// choices reports whether the items of a list are named one by one.
func choices(list []byte) bool {
	items, _ := jsonscan.Get(list, "items")
	_, enum := jsonscan.Get(items, "enum")
	_, titled := jsonscan.Get(items, "anyOf")
	return enum || titled
}

// content returns the form that a user filled in, with defaults for what was left out. The error is errWrongAnswer if it does
// not pass the schema.
func (f *form) content(answer json.RawMessage) (json.RawMessage, error) {
	res, err := decodeElicitResult(answer)
	if err != nil {
		return nil, err
	}
	// Many a client has null for what its user left blank.
	content := f.schema.ApplyDefaults(f.schema.DropNulls(res.Content))
	if f.schema.Validate(content) != nil {
		return nil, errWrongAnswer
	}
	return content, nil
}
