package mcp

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// AskOptions adds to the form that is derived from a Go type.
type AskOptions struct {
	// Schema replaces the JSON Schema that is derived from T. If T is a struct, a map or
	// json.RawMessage, Schema must describe an object whose fields are of type string, number,
	// integer, boolean or array of enum values. Otherwise it must describe a single value.
	//
	// Spec: client/elicitation, Requested Schema.
	Schema json.RawMessage
	// Default contains the initial values of the form, which also replace fields that the user
	// leaves out. It must encode to JSON as an answer does: a struct or map for a struct, otherwise
	// a single value.
	Default any
}

// A single is the form of a value that is not an object.
type single[T any] struct {
	Value T `json:"value"`
}

const singleField = "value"

// FormQuestion returns the question of [Ask], for [AskAll]. The answer is stored in *answer.
func FormQuestion[T any](key, message string, answer *T, opts *AskOptions) Question {
	opts = cmp.Or(opts, &AskOptions{})
	form, err := newForm(reflect.TypeFor[T](), reflect.TypeFor[single[T]](), opts)
	if err != nil {
		return Question{key: key, err: err}
	}
	q := Question{key: key, lacks: lacksForm}
	if form.multiSelect {
		q.lacks = lacksMultiSelect
	}
	q.request, q.err = elicitation(&ElicitRequestParams{
		Mode: modeForm, Message: message, RequestedSchema: form.schema.JSON(),
	})
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
			return errWrongAnswer // it matches the schema but not the type, such as a number that overflows
		}
		*answer = whole
		if form.single {
			*answer = one.Value
		}
		return nil
	}
	return q
}

type form struct {
	schema      *schema.Schema
	single      bool
	multiSelect bool
}

// newForm returns the form for a Go type; asSingle is the type single of it.
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

// singleSchema returns the schema of an object with one field. A field with a default is optional.
func singleSchema(value json.RawMessage) json.RawMessage {
	s := append([]byte(`{"type":"object","properties":{"`+singleField+`":`), value...)
	s = append(s, '}')
	if _, has := jsonscan.Get(value, "default"); !has {
		s = append(s, `,"required":["`+singleField+`"]`...)
	}
	return append(s, '}')
}

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
		return errors.New("default: must encode to an object")
	}
	properties, _ := jsonscan.Get(f.schema.JSON(), "properties")
	changed := properties
	for name, value := range jsonscan.Members(values) {
		property, ok := jsonscan.Get(properties, string(name))
		if !ok {
			return fmt.Errorf("default: member %q is not a field of the form", name)
		}
		changed = jsonscan.WithMember(changed, string(name), jsonscan.WithMember(property, "default", value))
	}
	f.schema, err = schema.Compile(jsonscan.WithMember(f.schema.JSON(), "properties", changed))
	return err
}

// check reports whether clients can show the form: it is a flat object. Spec: client/elicitation,
// Requested Schema; schema PrimitiveSchemaDefinition.
func (f *form) check() error {
	if f.schema.RootType() != "object" {
		return errors.New("invalid schema: its type must be object")
	}
	properties, ok := jsonscan.Get(f.schema.JSON(), "properties")
	if !ok || jsonscan.Kind(properties) != '{' {
		return errors.New("invalid schema: it has no properties")
	}
	for name, property := range jsonscan.Members(properties) {
		typ, _ := jsonscan.Get(property, "type")
		switch string(typ) {
		case `"string"`, `"number"`, `"integer"`, `"boolean"`:
		case `"array"`:
			if !choices(property) {
				return fmt.Errorf("field %q: the items of a list must be enum values", name)
			}
			f.multiSelect = true
		default:
			return fmt.Errorf("field %q has type %s, want string, number, integer, boolean or a list of enum values",
				name, typ)
		}
	}
	return nil
}

func choices(list []byte) bool {
	items, _ := jsonscan.Get(list, "items")
	_, enum := jsonscan.Get(items, "enum")
	_, titled := jsonscan.Get(items, "anyOf")
	return enum || titled
}

// content returns the content of an answer with defaults, or errWrongAnswer if it is invalid.
func (f *form) content(answer json.RawMessage) (json.RawMessage, error) {
	res, err := decodeElicitResult(answer)
	if err != nil {
		return nil, err
	}
	// Many clients send null for fields that the user left blank.
	content := f.schema.ApplyDefaults(f.schema.DropNulls(res.Content))
	if f.schema.Validate(content) != nil {
		return nil, errWrongAnswer
	}
	return content, nil
}
