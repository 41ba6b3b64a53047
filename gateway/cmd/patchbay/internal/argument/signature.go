package argument

import (
	"fmt"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Signature returns a name with arguments, as they are given on a command line.
func Signature(name string, parameters []Parameter) string {
	line := term.CleanLine(name)
	for i := range parameters {
		p := &parameters[i]
		line += " " + term.CleanLine(p.Bracketed(p.Name+"="+TypeName(p)))
	}
	return line
}

// Bracketed puts a word in brackets if the parameter is optional.
func (p *Parameter) Bracketed(word string) string {
	if p.required {
		return word
	}
	return "[" + word + "]"
}

// TypeName returns the type of a parameter in a signature: its choices, or its JSON types.
func TypeName(p *Parameter) string {
	switch {
	case len(p.choices) > 0 && len(p.choices) <= 5:
		var all []string
		for _, c := range p.choices {
			all = append(all, term.Shorten(c.Text(), 24))
		}
		return strings.Join(all, "|")
	case len(p.types) == 0:
		return "any"
	}
	return strings.Join(p.types, "|")
}

// Assignments parses words of the form key=value.
func Assignments(words []string) (map[string]string, error) {
	all := map[string]string{}
	for _, word := range words {
		key, value, ok := strings.Cut(word, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("invalid argument %q: want key=value", word)
		}
		all[key] = value
	}
	return all, nil
}

// PromptParameters returns a prompt's arguments as parameters, to parse them like a tool's.
func PromptParameters(prompt *mcp.Prompt) (all []Parameter) {
	for _, a := range prompt.Arguments {
		all = append(all, Parameter{Name: a.Name, types: []string{"string"}, required: a.Required,
			description: a.Description})
	}
	return all
}
