package argument

import (
	"cmp"
	stdjson "encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

const (
	// maxTreeDepth limits the levels of an input tree. --json shows all levels.
	maxTreeDepth = 5
	// maxTreeLines limits the lines of an input tree, which a recursive schema could fill.
	maxTreeLines = 300
	// maxWanted bounds the shown types and values of a parameter, in characters.
	maxWanted = 400
)

// A tree collects the lines that show the properties of a schema.
type tree struct {
	reader *SchemaReader
	lines  []string
}

// InputTree returns the parameters of a tool, one per line, and parameters of nested objects below.
func InputTree(schema stdjson.RawMessage) []string {
	return schemaTree(schema, func(t *tree, root []byte) { t.add(nil, root) })
}

// OutputTree returns the lines that show an output schema, the first with its name and type.
func OutputTree(name string, schema stdjson.RawMessage) []string {
	return schemaTree(schema, func(t *tree, root []byte) {
		p := t.reader.parameter(name, root)
		t.lines = append(t.lines, "  "+t.treeLine(&p))
		t.below([][]byte{nil}, &p)
	})
}

func schemaTree(schema stdjson.RawMessage, add func(t *tree, root []byte)) []string {
	if rawjson.Valid(schema) != nil {
		return nil
	}
	t := &tree{reader: NewReader(schema)}
	add(t, t.reader.Resolve(schema))
	if len(t.lines) > maxTreeLines {
		t.lines = append(t.lines[:maxTreeLines], "  … (the whole schema is in --json)")
	}
	return t.lines
}

// add adds the properties of an object and of its alternatives, unless it is within itself.
func (t *tree) add(within [][]byte, object []byte) {
	same := func(outer []byte) bool { return len(outer) > 0 && len(object) > 0 && &outer[0] == &object[0] }
	if len(within) == maxTreeDepth || slices.ContainsFunc(within, same) {
		return
	}
	within = append(slices.Clone(within), object)
	t.addProperties(within, object)
	for part := range t.reader.Branches(object, "allOf") {
		t.addProperties(within, part)
	}
	var forms [][]byte
	for alternative := range t.reader.Branches(object, "oneOf", "anyOf") {
		if _, has := rawjson.Get(alternative, "properties"); has {
			forms = append(forms, alternative)
		}
	}
	if len(forms) == 1 { // the others are null or another simple value
		t.addProperties(within, forms[0])
		return
	}
	for i, alternative := range forms {
		heading := fmt.Sprintf("form %d of %d", i+1, len(forms))
		if title := rawjson.GetString(alternative, "title"); title != "" {
			heading += ", " + term.Shorten(term.CleanLine(title), term.MaxNameShown)
		}
		t.lines = append(t.lines, strings.Repeat("  ", len(within))+heading+":")
		t.add(within, alternative)
	}
}

func (t *tree) addProperties(within [][]byte, object []byte) {
	for _, p := range t.reader.properties(object) {
		if len(t.lines) > maxTreeLines {
			return
		}
		t.lines = append(t.lines, strings.Repeat("  ", len(within))+t.treeLine(&p))
		t.below(within, &p)
	}
}

// below adds the members of a parameter, or of the elements or values that it consists of.
func (t *tree) below(within [][]byte, p *Parameter) {
	of, ok := *p, true
	for level := 0; ok && level < maxTreeDepth; level++ {
		t.add(within, of.schema)
		of, ok = t.inner(&of)
	}
}

// inner returns the parameter of an array's elements, or of the values of an open object.
func (t *tree) inner(p *Parameter) (Parameter, bool) {
	if p.Items != nil {
		return t.reader.parameter("", p.Items.schema), true
	}
	additional, _ := rawjson.Get(p.schema, "additionalProperties")
	if _, fixed := rawjson.Get(p.schema, "properties"); fixed || rawjson.Kind(additional) != '{' {
		return Parameter{}, false
	}
	return t.reader.parameter("", additional), true
}

// contents describes the elements of an array or object, such as " of strings". It may return "".
func (t *tree) contents(p *Parameter, levels int) string {
	of, ok := t.inner(p)
	switch {
	case !ok || levels == 0 || len(p.types) != 1:
		return ""
	case of.choices != nil:
		return " of " + strings.TrimPrefix(of.want(), "one of ")
	case len(of.types) != 1:
		return ""
	}
	return " of " + cmp.Or(plurals[of.types[0]], of.types[0]) + t.contents(&of, levels-1)
}

// treeLine describes a parameter: type, limits, whether it is required, default and description.
func (t *tree) treeLine(p *Parameter) string {
	whole := p.want()
	if p.Items == nil || p.Items.choices == nil { // otherwise want contains the elements
		whole += t.contents(p, maxTreeDepth)
	}
	line := term.CleanLine(p.Name) + ": " + term.Shorten(term.CleanLine(whole), maxWanted)
	notes := form.Bounds(p.schema)
	if format := rawjson.GetString(p.schema, "format"); format != "" {
		notes = append(notes, "format "+format)
	}
	if p.Items != nil {
		of := form.Bounds(p.Items.schema)
		if format := rawjson.GetString(p.Items.schema, "format"); format != "" {
			of = append(of, "format "+format)
		}
		if len(of) > 0 {
			notes = append(notes, "each "+strings.Join(of, ", "))
		}
	}
	for _, note := range notes {
		line += ", " + term.CleanLine(note)
	}
	if p.required {
		line += ", required"
	}
	if d := p.defaultValue(); d != nil {
		line += ", default " + term.CleanJSON(string(d))
	}
	if d := p.description; d != "" {
		line += "; " + term.CleanLine(d)
	}
	return line
}

var plurals = map[string]string{
	"string": "strings", "number": "numbers", "integer": "integers", "boolean": "booleans", "object": "JSON objects",
	"array": "arrays", "null": "null",
}
