package cli

import (
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

const (
	// maxTreeDepth bounds the levels of an input tree: deeper ones are in --json.
	maxTreeDepth = 5
	// maxTreeLines bounds its lines: a schema that refers to its own parts can have many.
	maxTreeLines = 300
	// maxPattern bounds a shown pattern, in characters.
	maxPattern = 100
)

// A tree collects the lines that show the properties of a schema.
type tree struct {
	reader *schemaReader
	lines  []string
}

// inputTree returns the parameters of a tool, one per line, with those of nested objects below.
func inputTree(schema stdjson.RawMessage) []string {
	if jsonscan.Valid(schema, jsonscan.Limits{}) != nil {
		return nil
	}
	t := &tree{reader: &schemaReader{schema, maxSubschemas}}
	t.add(nil, t.reader.resolve(schema))
	if len(t.lines) > maxTreeLines {
		t.lines = append(t.lines[:maxTreeLines], "  … (the whole schema is in --json)")
	}
	return t.lines
}

// add adds the properties of an object, unless it is within itself.
func (t *tree) add(within [][]byte, object []byte) {
	same := func(outer []byte) bool { return len(outer) > 0 && len(object) > 0 && &outer[0] == &object[0] }
	if len(within) == maxTreeDepth || slices.ContainsFunc(within, same) {
		return
	}
	within = append(slices.Clone(within), object)
	for _, p := range t.reader.properties(object) {
		if len(t.lines) > maxTreeLines {
			return
		}
		t.lines = append(t.lines, strings.Repeat("  ", len(within))+p.treeLine())
		if p.items != nil {
			t.add(within, p.items.schema)
		}
		t.add(within, p.schema)
	}
}

// treeLine describes a parameter: its type, its limits, whether it is required, its default and its
// description.
func (p *parameter) treeLine() string {
	line := cleanLine(p.name) + ": " + cleanLine(p.want())
	if p.items != nil && p.items.choices == nil && len(p.types) == 1 && len(p.items.types) == 1 {
		line += " of " + cleanLine(plurals[p.items.types[0]])
	}
	notes := p.bounds()
	if format := stringMember(p.schema, "format"); format != "" {
		notes = append(notes, "format "+format)
	}
	if p.items != nil {
		if of := p.items.bounds(); len(of) > 0 {
			notes = append(notes, "each "+strings.Join(of, ", "))
		}
	}
	for _, note := range notes {
		line += ", " + cleanLine(note)
	}
	if p.required {
		line += ", required"
	}
	if d := p.defaultValue(); d != nil {
		line += ", default " + cleanJSON(string(d))
	}
	if d := p.description; d != "" {
		line += "; " + cleanLine(d)
	}
	return line
}

var plurals = map[string]string{
	"string": "strings", "number": "numbers", "integer": "integers", "boolean": "booleans", "object": "JSON objects",
	"array": "arrays", "null": "null",
}

// bounds returns the limits of the value in words.
func (p *parameter) bounds() (notes []string) {
	for _, limit := range []struct{ key, phrase string }{
		{"minimum", "at least %s"}, {"exclusiveMinimum", "more than %s"},
		{"maximum", "at most %s"}, {"exclusiveMaximum", "less than %s"}, {"multipleOf", "a multiple of %s"},
		{"minLength", "at least %s characters"}, {"maxLength", "at most %s characters"},
		{"minItems", "at least %s values"}, {"maxItems", "at most %s values"},
	} {
		if v, ok := jsonscan.Get(p.schema, limit.key); ok && jsonscan.Kind(v) == '0' {
			note := fmt.Sprintf(limit.phrase, v)
			if string(v) == "1" {
				note = strings.TrimSuffix(note, "s")
			}
			notes = append(notes, note)
		}
	}
	if v, _ := jsonscan.Get(p.schema, "uniqueItems"); string(v) == "true" {
		notes = append(notes, "all different")
	}
	if pattern := stringMember(p.schema, "pattern"); pattern != "" {
		notes = append(notes, "matching "+shorten(pattern, maxPattern))
	}
	return notes
}
