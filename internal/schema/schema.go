// Package schema relates Go types and JSON: it derives the JSON Schema of a type, checks JSON
// against a schema, whether derived or given by hand, and decodes what passed.
//
// A schema comes from [For], [ForElicitation] or [Compile]. All are safe for concurrent use, and a
// compiled schema costs nothing but its own memory: it holds no goroutine, opens no file and
// fetches no reference.
package schema

import (
	stdjson "encoding/json"
)

// Limits of what is compiled and of the work that one validation may cost. They are the same for
// schemas of peers and of our own, so that what a server publishes is what its clients can take.
const (
	MaxBytes   = 256 << 10 // a schema as text
	MaxDepth   = 64        // nesting of its JSON
	MaxNodes   = 10_000    // subschemas
	MaxEnum    = 10_000    // values of one enum
	MaxPattern = 1 << 10   // bytes of one regular expression
	MaxSteps   = 1_000_000 // of one validation: a keyword at a value, or 64 bytes of text read
)

// A Schema is a compiled JSON Schema. It is immutable.
type Schema struct {
	raw      stdjson.RawMessage
	root     *node
	all      []*node // the subschemas, $defs included
	dynamic  bool    // some $dynamicRef looks outward
	defaults bool    // some subschema has one
}

// JSON returns the published schema: compact, its members in the order in which they were given,
// unknown ones included. Callers must not change the bytes.
func (s *Schema) JSON() stdjson.RawMessage { return s.raw }

// RootType returns the one type that the schema's root names, "" when it names none or several.
func (s *Schema) RootType() string {
	if names := s.root.types.names(); len(names) == 1 {
		return names[0]
	}
	return ""
}

// Validate checks a JSON value whose syntax was checked before. The error is a *ValidationError
// that tells the first few things that are wrong; so is the refusal of a value that takes more than
// MaxSteps to check.
func (s *Schema) Validate(instance []byte) error {
	var e evaluation // filled in place: a literal would be made beside it first, and calls end here, deep on the stack
	e.doc, e.steps, e.dynamic = instance, MaxSteps, s.dynamic
	start := skipSpace(instance, 0)
	if _, ok := e.value(s.root, start, nil); ok && !e.spent() {
		return nil
	}
	return e.explain(s.root, start)
}
