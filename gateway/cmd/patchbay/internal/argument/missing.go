package argument

import (
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// maxMissing bounds the reported missing arguments: an array given as JSON can lack many.
const maxMissing = 100

// An Absent is a required argument without a value. The name of a nested argument is its path.
type Absent struct {
	Parameter
	Steps []Step
}

// Missing returns the arguments that must be given and are not, including members of given objects.
func (a *List) Missing() (all []Absent) {
	a.Reader = NewReader(a.Root)
	for i := range a.Parameters {
		p := a.Parameters[i]
		steps := []Step{{key: p.Name}}
		if a.misses(p.Name) {
			all = append(all, Absent{p, steps})
		} else if a.Nested && !a.Wrong[p.Name] {
			all = append(all, a.missingIn(steps, p.schema, a.Values[p.Name])...)
		}
	}
	return all[:min(len(all), maxMissing)]
}

// missingIn returns the required members that a value or its elements do not contain.
func (a *List) missingIn(steps []Step, schema, value []byte) (all []Absent) {
	inside := func(s Step) []Step { return append(slices.Clone(steps), s) }
	switch rawjson.Kind(value) {
	case '{':
		for _, p := range a.Reader.properties(schema) {
			to := inside(Step{key: p.Name})
			if given, has := rawjson.Get(value, p.Name); has {
				all = append(all, a.missingIn(to, p.schema, given)...)
			} else if p.required {
				p.Name = pathOf(to)
				all = append(all, Absent{p, to})
			}
		}
	case '[':
		index := 0
		for element := range rawjson.Elements(value) {
			of := a.Reader.Resolve(a.Reader.element(schema, index))
			all = append(all, a.missingIn(inside(Step{element: true, index: index}), of, element)...)
			if index++; len(all) >= maxMissing {
				break
			}
		}
	}
	return all
}

// Missing returns the error for a required parameter without a value.
func (p *Parameter) Missing(thing string) error {
	text := fmt.Sprintf("missing %s %s: %s", thing, term.CleanLine(p.Name), term.CleanLine(p.want()))
	if d := p.description; d != "" {
		text += ", " + term.Shorten(term.CleanLine(d), 120)
	}
	return errors.New(text)
}

// NewField returns the field of a form that asks for a parameter.
func (a *List) NewField(p Parameter) Field {
	return Field{Parameter: p, check: a.compilePart(p.schema), named: true}
}

// Members returns the required fields of an array's objects, or all fields if all are optional.
func (a *List) Members(f *Field) (all []Field) {
	if f.Items == nil || !slices.Equal(f.Items.types, []string{"object"}) || f.defaultValue() != nil {
		return nil
	}
	properties := a.Reader.properties(f.Items.schema)
	if len(properties) > maxMissing {
		return nil
	}
	optional := func(p Parameter) bool { return !p.required }
	if !slices.ContainsFunc(properties, func(p Parameter) bool { return p.required }) {
		optional = func(Parameter) bool { return false }
	}
	for _, p := range slices.DeleteFunc(properties, optional) {
		all = append(all, a.NewField(p))
	}
	return all
}

// Leaves returns the required arguments within an object, to ask for each, or the argument itself.
func (a *List) Leaves(m Absent) (all []Absent) {
	if !slices.Equal(m.types, []string{"object"}) || m.choices != nil || len(m.Steps) > maxTreeDepth {
		return []Absent{m}
	}
	for _, p := range a.Reader.properties(m.schema) {
		if p.required {
			steps := append(slices.Clone(m.Steps), Step{key: p.Name})
			p.Name = pathOf(steps)
			all = append(all, a.Leaves(Absent{p, steps})...)
		}
	}
	if all == nil || len(all) > maxMissing {
		return []Absent{m}
	}
	return all
}

// compilePart compiles a part of the schema, which may refer to definitions. It returns a schema for
// any value if that fails: the server validates as well.
func (a *List) compilePart(part stdjson.RawMessage) *jsonschema.Schema {
	whole := []byte("{}")
	for _, key := range []string{"$defs", "definitions"} {
		if defs, ok := rawjson.Get(a.Root, key); ok {
			whole = rawjson.Set(whole, key, defs)
		}
	}
	for _, text := range [][]byte{part, rawjson.Set(whole, "allOf", ListOf([][]byte{part})), []byte("{}")} {
		if check, err := jsonschema.Compile(text); err == nil {
			return check
		}
	}
	return nil // {} is a schema
}
