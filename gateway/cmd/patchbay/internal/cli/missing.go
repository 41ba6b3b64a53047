package cli

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// maxMissing bounds the reported missing arguments: an array given as JSON can lack many.
const maxMissing = 100

// An absent is a required argument without a value. The name of a nested one is its path.
type absent struct {
	parameter
	steps []step
}

// missing returns the required arguments without a value, also those of objects that are given.
func (a *arguments) missing() (all []absent) {
	a.reader = &schemaReader{a.root, maxSubschemas}
	for i := range a.parameters {
		p := a.parameters[i]
		steps := []step{{key: p.name}}
		if a.misses(p.name) {
			all = append(all, absent{p, steps})
		} else if a.nested && !a.wrong[p.name] {
			all = append(all, a.missingIn(steps, p.schema, a.values[p.name])...)
		}
	}
	return all[:min(len(all), maxMissing)]
}

// missingIn returns the required members that a value or its elements do not have.
func (a *arguments) missingIn(steps []step, schema, value []byte) (all []absent) {
	inside := func(s step) []step { return append(slices.Clone(steps), s) }
	switch rawjson.Kind(value) {
	case '{':
		for _, p := range a.reader.properties(schema) {
			to := inside(step{key: p.name})
			if given, has := rawjson.Get(value, p.name); has {
				all = append(all, a.missingIn(to, p.schema, given)...)
			} else if p.required {
				p.name = pathOf(to)
				all = append(all, absent{p, to})
			}
		}
	case '[':
		index := 0
		for element := range rawjson.Elements(value) {
			of := a.reader.resolve(a.reader.element(schema, index))
			all = append(all, a.missingIn(inside(step{element: true, index: index}), of, element)...)
			if index++; len(all) >= maxMissing {
				break
			}
		}
	}
	return all
}

// missing returns the error for a required parameter without a value.
func (p *parameter) missing(thing string) error {
	text := fmt.Sprintf("missing %s %s: %s", thing, cleanLine(p.name), cleanLine(p.want()))
	if d := p.description; d != "" {
		text += ", " + shorten(cleanLine(d), 120)
	}
	return errors.New(text)
}

// askMissing asks for missing arguments on the terminal, with the form of elicitation, and reports
// whether the user has given them.
func (p *asker) askMissing(ctx context.Context, a *arguments, missing []absent) (bool, error) {
	unlock, err := p.lockTerminal(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	a.reader = &schemaReader{a.root, maxSubschemas}
	var all []absent
	for _, m := range missing {
		all = append(all, a.leaves(m)...)
	}
	fields, steps := make([]field, len(all)), map[string][]step{}
	for i, m := range all {
		fields[i] = a.newField(m.parameter)
		fields[i].members = a.members(&fields[i])
		steps[m.name] = m.steps
	}
	p.IO.Err.printf("\nThe %s requires %s: (%s to leave)", a.owner, plural(len(fields), "more "+a.thing), commandCancel)
	content, err := p.fillIn(ctx, fields)
	if errors.Is(err, errDeclined) || errors.Is(err, errCancelled) {
		return false, nil
	}
	for name, value := range rawjson.Members(content) {
		if err == nil {
			err = a.set(steps[string(name)], value)
		}
	}
	return err == nil, err
}

func (a *arguments) newField(p parameter) field {
	return field{parameter: p, check: a.compilePart(p.schema), named: true}
}

// members returns the fields of the objects of an array: the required fields, or all fields if none is required.
func (a *arguments) members(f *field) (all []field) {
	if f.items == nil || !slices.Equal(f.items.types, []string{"object"}) || f.defaultValue() != nil {
		return nil
	}
	properties := a.reader.properties(f.items.schema)
	if len(properties) > maxMissing {
		return nil
	}
	optional := func(p parameter) bool { return !p.required }
	if !slices.ContainsFunc(properties, func(p parameter) bool { return p.required }) {
		optional = func(parameter) bool { return false }
	}
	for _, p := range slices.DeleteFunc(properties, optional) {
		all = append(all, a.newField(p))
	}
	return all
}

// leaves returns the required arguments within an object, which are asked for one by one, or the
// argument itself.
func (a *arguments) leaves(m absent) (all []absent) {
	if !slices.Equal(m.types, []string{"object"}) || m.choices != nil || len(m.steps) > maxTreeDepth {
		return []absent{m}
	}
	for _, p := range a.reader.properties(m.schema) {
		if p.required {
			steps := append(slices.Clone(m.steps), step{key: p.name})
			p.name = pathOf(steps)
			all = append(all, a.leaves(absent{p, steps})...)
		}
	}
	if all == nil || len(all) > maxMissing {
		return []absent{m}
	}
	return all
}

// compilePart compiles a part of the schema, which may refer to definitions. It returns a schema for
// any value if that fails: the server validates as well.
func (a *arguments) compilePart(part stdjson.RawMessage) *jsonschema.Schema {
	whole := []byte("{}")
	for _, key := range []string{"$defs", "definitions"} {
		if defs, ok := rawjson.Get(a.root, key); ok {
			whole = rawjson.Set(whole, key, defs)
		}
	}
	for _, text := range [][]byte{part, rawjson.Set(whole, "allOf", listOf([][]byte{part})), []byte("{}")} {
		if check, err := jsonschema.Compile(text); err == nil {
			return check
		}
	}
	return nil // {} is a schema
}

// plural returns a number of things in words.
func plural(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
