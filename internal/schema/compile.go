package schema

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Compile compiles a schema. It supports JSON Schema 2020-12, the default, and draft-07, with
// format as an annotation. It returns an error for another $schema, a reference to another
// document, a keyword with an invalid value, a pattern that RE2 does not support, circular
// references, and a schema beyond the limits of this package.
//
// Spec: basic#json-schema-usage.
func Compile(raw stdjson.RawMessage) (*Schema, error) {
	if len(raw) > MaxBytes {
		return nil, fmt.Errorf("schema: %d bytes, want at most %d", len(raw), MaxBytes)
	}
	if err := jsonscan.Valid(raw, jsonscan.Limits{Depth: MaxDepth}); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	compact := jsontext.Value(bytes.Clone(raw))
	if err := compact.Compact(jsontext.PreserveRawStrings(true)); err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	c := &compiler{nodes: map[*byte]*node{}, parts: map[*byte]map[string][]byte{}, resources: map[string]*resource{}}
	root, err := c.compile(compact)
	if err != nil {
		return nil, fmt.Errorf("schema: %w", err)
	}
	hasDefault := func(n *node) bool { return n.fallback != nil }
	return &Schema{
		raw: stdjson.RawMessage(compact), root: root, all: c.order,
		dynamic: c.dynamic, defaults: slices.ContainsFunc(c.order, hasDefault),
	}, nil
}

// A compiler turns the text of a schema into nodes.
type compiler struct {
	nodes      map[*byte]*node // by the first byte of their text, which is unique
	order      []*node
	parts      map[*byte]map[string][]byte // of containers in references, by the first byte
	resources  map[string]*resource        // by URI
	references []reference
	draft7     bool
	dynamic    bool
	patterns   int // size of all patterns
}

func (c *compiler) compile(raw []byte) (*node, error) {
	if value, ok := jsonscan.Get(raw, "$schema"); ok {
		var err error
		if c.draft7, err = readDialect(value); err != nil {
			return nil, at("$schema", err)
		}
	}
	root, err := c.schema(raw, c.addResource(&rootURI, raw))
	if err != nil {
		return nil, err
	}
	if err := c.resolveReferences(); err != nil {
		return nil, err
	}
	return root, findLoops(c.order)
}

// dialects are the supported dialects; the value is true for draft-07. Spec: basic#schema-dialect.
var dialects = map[string]bool{
	"https://json-schema.org/draft/2020-12/schema":  false,
	"https://json-schema.org/draft/2020-12/schema#": false,
	"http://json-schema.org/draft-07/schema":        true,
	"http://json-schema.org/draft-07/schema#":       true,
}

func readDialect(raw []byte) (draft7 bool, err error) {
	uri, err := stringValue(raw)
	if err != nil {
		return false, err
	}
	draft7, ok := dialects[uri]
	if !ok {
		return false, fmt.Errorf("dialect %.100q is not supported, want JSON Schema 2020-12 or draft-07", uri)
	}
	return draft7, nil
}

// A keywordError is the error of a keyword of a schema.
type keywordError struct {
	path string // JSON pointer
	err  error
}

func (e *keywordError) Error() string { return e.path + ": " + e.err.Error() }

// at prepends a step to the path of an error.
func at(step string, err error) error {
	path := "/" + pointerEscapes.Replace(step)
	var inner *keywordError
	if errors.As(err, &inner) {
		return &keywordError{path + inner.path, inner.err}
	}
	return &keywordError{path, err}
}

// schema compiles the subschema at raw, once.
func (c *compiler) schema(raw []byte, home *resource) (*node, error) {
	if n := c.nodes[&raw[0]]; n != nil {
		return n, nil
	}
	if len(c.order) == MaxNodes {
		return nil, fmt.Errorf("more than %d subschemas", MaxNodes)
	}
	n := &node{home: home}
	c.nodes[&raw[0]] = n
	c.order = append(c.order, n)
	switch jsonscan.Kind(raw) {
	case 't':
		return n, nil
	case 'f':
		n.never = true
		return n, nil
	case '{':
	default:
		return nil, fmt.Errorf("got %s, want a schema: an object or a boolean", shown(raw))
	}
	_, alone := jsonscan.Get(raw, "$ref")
	alone = alone && c.draft7 // in draft-07 a reference hides the keywords beside it
	if !alone {
		if err := c.identify(n, raw); err != nil {
			return nil, err
		}
	}
	for key, value := range jsonscan.Members(raw) {
		name := c.modernName(raw, string(key), value)
		if alone && name != "$ref" && name != "$defs" {
			continue
		}
		if err := c.keyword(n, name, value); err != nil {
			return nil, at(string(key), err)
		}
	}
	n.finish()
	return n, nil
}

// modernName returns the name of a keyword of the schema at raw in 2020-12, "" for an
// annotation.
func (c *compiler) modernName(raw []byte, key string, value []byte) string {
	if !c.draft7 {
		if key == "dependencies" {
			return ""
		}
		return key
	}
	switch key {
	case "definitions":
		return "$defs"
	case "items":
		if jsonscan.Kind(value) == '[' {
			return "prefixItems"
		}
	case "additionalItems":
		if items, _ := jsonscan.Get(raw, "items"); jsonscan.Kind(items) == '[' {
			return "items"
		}
		return ""
	case "prefixItems", "minContains", "maxContains", "unevaluatedItems", "unevaluatedProperties", "dependentRequired",
		"dependentSchemas", "$defs", "$anchor", "$dynamicAnchor", "$dynamicRef":
		return ""
	}
	return key
}
