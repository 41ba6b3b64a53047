package cli

import (
	"errors"
	"fmt"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
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
	switch jsonscan.Kind(value) {
	case '{':
		for _, p := range a.reader.properties(schema) {
			to := inside(step{key: p.name})
			if given, has := jsonscan.Get(value, p.name); has {
				all = append(all, a.missingIn(to, p.schema, given)...)
			} else if p.required {
				p.name = pathOf(to)
				all = append(all, absent{p, to})
			}
		}
	case '[':
		index := 0
		for element := range jsonscan.Elements(value) {
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
