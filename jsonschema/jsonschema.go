// Package jsonschema compiles, infers and applies the JSON Schemas of tools, prompts and
// elicitation, by the same rules as package mcp.
//
// It supports JSON Schema 2020-12, the default, and draft-07, with format as an annotation.
// References are never fetched. Schemas and validations are limited, so that a schema from a server
// that is not trusted can be used: it must not exceed 256 KiB, 64 levels and 10,000 subschemas.
package jsonschema

import (
	"bytes"
	"encoding/json"
	"reflect"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// A Schema is a compiled JSON Schema. It is immutable and safe for concurrent use.
type Schema struct{ compiled *schema.Schema }

// A ValidationError contains the first problems of a JSON value. Its text helps a model to correct
// the value.
type ValidationError = schema.ValidationError

// A Problem is one problem of a value.
type Problem = schema.Problem

// Compile compiles a schema. It returns an error for a dialect that is not supported, a reference to
// another document, a keyword with an invalid value, a pattern that RE2 does not support, circular
// references, and a schema that exceeds the limits.
//
// Spec: basic#json-schema-usage.
func Compile(raw json.RawMessage) (*Schema, error) { return wrap(schema.Compile(raw)) }

// Infer returns the schema of a Go type, as [github.com/patchbay-mcp/patchbay/mcp.AddTool] derives the
// schema of a tool's arguments.
func Infer(t reflect.Type) (*Schema, error) { return wrap(schema.For(t)) }

// For returns the schema of T like [Infer], to print it, or to change its JSON and set that in an
// mcp.Tool. It panics if T has no schema.
func For[T any]() *Schema {
	s, err := Infer(reflect.TypeFor[T]())
	if err != nil {
		panic("jsonschema: For: " + err.Error())
	}
	return s
}

func wrap(s *schema.Schema, err error) (*Schema, error) {
	if err != nil {
		return nil, err
	}
	return &Schema{s}, nil
}

// JSON returns a copy of the schema in compact form.
func (s *Schema) JSON() json.RawMessage { return bytes.Clone(s.compiled.JSON()) }

// Validate validates a JSON value, whose syntax must be valid. The error is a [*ValidationError].
func (s *Schema) Validate(instance []byte) error { return s.compiled.Validate(instance) }

// Decode validates a JSON value, whose syntax must be valid, and decodes it into v, a pointer. Names
// must match exactly. A number such as 5.0, which is an integer in JSON Schema, can be decoded into
// an integer. The error is a [*ValidationError].
func (s *Schema) Decode(instance []byte, v any) error {
	if err := s.Validate(instance); err != nil {
		return err
	}
	return schema.Decode(instance, v)
}

// ApplyDefaults returns a value with absent properties set to their defaults, in the value itself and
// in its properties and items. It returns the same bytes if nothing is added, and never changes them.
// The syntax of the value must be valid.
func (s *Schema) ApplyDefaults(instance []byte) []byte { return s.compiled.ApplyDefaults(instance) }

// CheckSize returns an error if a schema exceeds the limits of size, without compiling it. Programs
// that walk through a schema must check its size first.
func CheckSize(raw json.RawMessage) error { return schema.CheckSize(raw) }

// Nearest returns the candidate that is most similar to a misspelt name, as problems suggest it, or "".
// Texts of more than 64 bytes and candidates after the first 1,000 are not compared.
func Nearest(name string, candidates []string) string { return schema.Nearest(name, candidates) }
