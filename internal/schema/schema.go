// Package schema derives the JSON Schema of a Go type, validates JSON against a schema, and decodes
// it. A [Schema] comes from [For], [ForElicitation] or [Compile]. References are never fetched.
package schema

import stdjson "encoding/json"

// Limits of a schema and of a validation. The same limits apply to schemas of peers and of the
// application, so that clients accept every schema that a server can publish.
const (
	MaxBytes   = 256 << 10 // of the schema as text
	MaxDepth   = 64        // nesting of its JSON
	MaxNodes   = 10_000    // subschemas
	MaxEnum    = 10_000    // values of an enum
	MaxPattern = 1 << 10   // bytes of a regular expression
	MaxSteps   = 1_000_000 // of a validation: a keyword at a value, or 64 bytes of text read
)

// A Schema is a compiled JSON Schema. It is immutable.
type Schema struct {
	raw      stdjson.RawMessage
	root     *node
	all      []*node // the subschemas, including $defs
	dynamic  bool    // a $dynamicRef may refer to an outer resource
	defaults bool    // a subschema contains a default
}

// JSON returns the schema in compact form, with its members, including unknown ones, in their
// original order. The caller must not change the bytes.
func (s *Schema) JSON() stdjson.RawMessage { return s.raw }

// RootType returns the type of the schema's root, or "" if it allows none or several.
func (s *Schema) RootType() string {
	if names := s.root.types.names(); len(names) == 1 {
		return names[0]
	}
	return ""
}

// Validate validates a JSON value whose syntax is valid. The error is a [*ValidationError] with the
// first problems. A value that takes more than [MaxSteps] is invalid.
func (s *Schema) Validate(instance []byte) error {
	var e evaluation // not a literal, which would need a second copy on the stack
	e.doc, e.steps, e.dynamic = instance, MaxSteps, s.dynamic
	start := skipSpace(instance, 0)
	if _, ok := e.value(s.root, start, nil); ok && !e.spent() {
		return nil
	}
	return e.explain(s.root, start)
}
