package lint

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

const (
	maxSchemaBytes = 16_000 // of a schema: about 4,000 tokens
	maxSchemaDepth = 6      // levels of objects and arrays
	// maxReferences limits the references of a schema that are resolved here, each with a pass over
	// the schema. The compiler resolves all references.
	maxReferences = 200
)

// compositions are the keywords whose subschemas are about the same value.
var compositions = []string{"anyOf", "oneOf", "allOf"}

func (c *checker) checkInput(t *item) {
	raw, _ := rawjson.Get(t.raw, "inputSchema")
	if rawjson.Kind(raw) != '{' {
		c.add("input-schema-missing", t.where, "inputSchema is %s", orMissing(raw))
		return
	}
	if rawjson.GetString(raw, "type") != "object" {
		kind, _ := rawjson.Get(raw, "type")
		c.add("input-schema-type", t.where, "the type of inputSchema is %s", orMissing(kind))
	}
	for _, key := range compositions {
		if has(raw, key) {
			c.add("input-schema-composition", t.where, "%s at the root of inputSchema", key)
		}
	}
	properties, _ := rawjson.Get(raw, "properties")
	open, closed := rawjson.Get(raw, "additionalProperties")
	isPresent := func(key string) bool { return has(raw, key) }
	isEmpty := strings.Trim(string(properties), "{} \t\r\n") == "" &&
		!slices.ContainsFunc([]string{"$ref", "patternProperties", "anyOf", "oneOf", "allOf"}, isPresent)
	if isEmpty && rawjson.GetString(raw, "type") == "object" && (!closed || rawjson.Kind(open) == 't') {
		c.add("input-schema-open", t.where, "no arguments, and any are accepted")
	}
	w := c.checkSchema(t.where, "inputSchema", raw)
	if w == nil {
		return
	}
	if len(w.undescribed) > 0 {
		c.add("argument-description", t.where, "no description: %s", list(w.undescribed))
	}
	if len(w.untyped) > 0 {
		c.add("argument-type", t.where, "no type: %s", list(w.untyped))
	}
	if _, err := jsonschema.Compile(raw); err == nil {
		if _, err := driver.HeaderParamsOf(raw); err != nil {
			c.add("header-parameter", t.where, "%v", err)
		}
	}
}

func (c *checker) checkOutput(t *item) {
	raw, ok := rawjson.Get(t.raw, "outputSchema")
	if !ok {
		return
	}
	if !isSince(c.server.Revision, driver.July2026) && rawjson.GetString(raw, "type") != "object" {
		kind, _ := rawjson.Get(raw, "type")
		c.add("output-schema-type", t.where, "the type of outputSchema is %s", orMissing(kind))
	}
	c.checkSchema(t.where, "outputSchema", raw)
}

func orMissing(raw []byte) string {
	if raw == nil {
		return "missing"
	}
	return shown(string(raw))
}

// checkSchema checks a schema. It returns the result of walking it, or nil if it is too large.
func (c *checker) checkSchema(where, key string, raw []byte) *schemaWalk {
	where += ", " + key
	if err := jsonschema.CheckSize(raw); err != nil {
		c.add("schema-size", where, "%v", err)
		return nil
	}
	if len(raw) > maxSchemaBytes {
		c.add("schema-size", where, "%d bytes", len(raw))
	}
	w := &schemaWalk{checker: c, where: where, root: raw, references: maxReferences}
	if bytes.Contains(raw, []byte(`"$id"`)) {
		w.references = 0 // only the compiler can resolve references
	}
	w.visit(raw, "", nil, 0)
	if w.depth > maxSchemaDepth {
		c.add("schema-depth", where, "%d levels", w.depth)
	}
	dialect := rawjson.GetString(raw, "$schema")
	_, err := jsonschema.Compile(raw)
	switch {
	case has(raw, "$schema") && !isKnownDialect(dialect):
		c.add("schema-dialect", where, "$schema is %q", shown(dialect))
	case err != nil && !w.explained:
		c.add("schema-invalid", where, "%s", shown(strings.TrimPrefix(err.Error(), "schema: ")))
	}
	return w
}

// isKnownDialect reports whether schemas of a dialect can be compiled.
func isKnownDialect(uri string) bool {
	text, err := stdjson.Marshal(map[string]string{"$schema": uri})
	if err == nil {
		_, err = jsonschema.Compile(text)
	}
	return err == nil
}

// A schemaWalk visits the subschemas of a schema. It does not follow references.
type schemaWalk struct {
	*checker
	where      string
	root       []byte
	references int // that may still be looked up

	depth                int      // levels of objects and arrays
	explained            bool     // a finding explains why the schema is invalid
	undescribed, untyped []string // paths of properties
}

// Keywords with subschemas: of parts of the value, and of the value itself.
var (
	partMaps    = []string{"patternProperties", "$defs", "definitions"}
	partSchemas = []string{"items", "additionalProperties", "contains", "unevaluatedProperties", "unevaluatedItems",
		"propertyNames", "additionalItems"}
	sameSchemas = []string{"not", "if", "then", "else"}
	// typing lists the keywords that restrict the values of a property.
	typing = []string{"type", "enum", "const", "not", "if", "anyOf", "oneOf", "allOf"}
)

// A scope contains the names of a value's properties, from a schema and the schemas around it.
type scope struct {
	names map[string]bool
	outer *scope
}

func (s *scope) has(name string) bool {
	return s != nil && (s.names[name] || s.outer.has(name))
}

// visit visits a subschema. outer contains the properties of the same value in outer schemas.
func (w *schemaWalk) visit(raw []byte, path string, outer *scope, level int) {
	if rawjson.Kind(raw) != '{' {
		return
	}
	w.depth = max(w.depth, level)
	properties, _ := rawjson.Get(raw, "properties")
	known := &scope{map[string]bool{}, outer}
	for name, property := range rawjson.Members(properties) {
		known.names[string(name)] = true
		inner := strings.TrimPrefix(path+"."+string(name), ".")
		w.property(property, inner)
		w.visit(property, inner, nil, level+1)
	}
	w.checkReference(raw, path)
	w.checkPattern(raw, path)
	w.checkRequired(raw, path, known)
	for _, key := range partMaps {
		parts, _ := rawjson.Get(raw, key)
		for name, part := range rawjson.Members(parts) {
			w.visit(part, path+"/"+key+"/"+string(name), nil, level+1)
		}
	}
	for _, key := range partSchemas {
		part, _ := rawjson.Get(raw, key)
		w.visit(part, path+"[]", nil, level+1)
	}
	items, _ := rawjson.Get(raw, "prefixItems")
	for part := range rawjson.Elements(items) {
		w.visit(part, path+"[]", nil, level+1)
	}
	for _, key := range compositions {
		parts, _ := rawjson.Get(raw, key)
		for part := range rawjson.Elements(parts) {
			w.visit(part, path, known, level)
		}
	}
	for _, key := range sameSchemas {
		part, _ := rawjson.Get(raw, key)
		w.visit(part, path, known, level)
	}
}

// property checks the schema of a property.
func (w *schemaWalk) property(raw []byte, path string) {
	refers := has(raw, "$ref") || has(raw, "$dynamicRef")
	if rawjson.GetString(raw, "description") == "" && !refers {
		w.undescribed = append(w.undescribed, path)
	}
	isPresent := func(key string) bool { return has(raw, key) }
	if !refers && !slices.ContainsFunc(typing, isPresent) {
		w.untyped = append(w.untyped, path)
	}
	value, ok := rawjson.Get(raw, "default")
	if !ok || strings.Contains(string(raw), `"$`) { // a reference cannot be resolved in the property alone
		return
	}
	if own, err := jsonschema.Compile(raw); err == nil {
		if err := own.Validate(value); err != nil {
			w.add("schema-default", w.where+" "+shown(path), "default %s: %v", shown(string(value)), err)
		}
	}
}

func (w *schemaWalk) checkReference(raw []byte, path string) {
	value, ok := rawjson.Get(raw, "$ref")
	uri, err := rawjson.Unquote(value)
	if !ok || err != nil || w.references == 0 {
		return
	}
	w.references--
	pointer, local := strings.CutPrefix(uri, "#")
	switch {
	case !local:
		w.add("schema-reference", w.where+" "+shown(path), "$ref %q is to another document", shown(uri))
	case strings.HasPrefix(pointer, "/") && !exists(w.root, pointer):
		w.add("schema-reference", w.where+" "+shown(path), "$ref %q refers to nothing", shown(uri))
	default:
		return
	}
	w.explained = true
}

// exists reports whether a document contains a value at a JSON pointer.
func exists(document []byte, pointer string) bool {
	for step := range strings.SplitSeq(pointer[1:], "/") {
		step = strings.NewReplacer("~1", "/", "~0", "~", "%24", "$", "%25", "%").Replace(step)
		if index, err := strconv.Atoi(step); err == nil && rawjson.Kind(document) == '[' {
			document = element(document, index)
		} else {
			document, _ = rawjson.Get(document, step)
		}
		if document == nil {
			return false
		}
	}
	return true
}

func element(array []byte, index int) []byte {
	for value := range rawjson.Elements(array) {
		if index--; index < 0 {
			return value
		}
	}
	return nil
}

func (w *schemaWalk) checkPattern(raw []byte, path string) {
	var patterns [][]byte
	if value, ok := rawjson.Get(raw, "pattern"); ok {
		patterns = append(patterns, value)
	}
	named, _ := rawjson.Get(raw, "patternProperties")
	for key := range rawjson.Members(named) {
		patterns = append(patterns, rawjson.AppendQuote(nil, string(key)))
	}
	for _, pattern := range patterns {
		if rawjson.Kind(pattern) != '"' {
			continue
		}
		if _, err := jsonschema.Compile(fmt.Appendf(nil, `{"pattern":%s}`, pattern)); err != nil {
			w.add("schema-pattern", w.where+" "+shown(path), "%s", shown(strings.TrimPrefix(err.Error(), "schema: ")))
			w.explained = true
		}
	}
}

func (w *schemaWalk) checkRequired(raw []byte, path string, known *scope) {
	if has(raw, "$ref") || has(raw, "allOf") || has(raw, "patternProperties") || has(raw, "$dynamicRef") {
		return // the subschemas may define the properties
	}
	required, _ := rawjson.Get(raw, "required")
	var missing []string
	for value := range rawjson.Elements(required) {
		if name, err := rawjson.Unquote(value); err == nil && !known.has(name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		where := strings.TrimRight(w.where+" "+shown(path), " ")
		w.add("schema-required", where, "required, but without a property: %s", list(missing))
	}
}
