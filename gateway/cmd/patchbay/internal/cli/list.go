package cli

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// collect returns the elements of an iterator up to the first error.
func collect[T any](all iter.Seq2[T, error]) ([]T, error) {
	list := []T{}
	for item, err := range all {
		if err != nil {
			return list, err
		}
		list = append(list, item)
	}
	return list, nil
}

// A listing is a list that a server has.
type listing[T any] struct {
	key  string // of the list in JSON
	all  func(c *mcp.Client, ctx context.Context) iter.Seq2[T, error]
	show func(item T, whole bool)
	name func(item T) string
	text func(item T) []string // that --search searches
}

// names returns the names of the items, even after an error.
func (l listing[T]) names(ctx context.Context, c *mcp.Client) (names []string) {
	list, _ := collect(l.all(c, ctx))
	for _, item := range list {
		names = append(names, l.name(item))
	}
	return names
}

// listOrShow returns the function of a command that prints a list, or one item in full.
func listOrShow[T any](f *factory, l listing[T]) func(context.Context, *mcp.Client, []string) error {
	return func(ctx context.Context, c *mcp.Client, words []string) error {
		list, err := collect(l.all(c, ctx))
		var rpc *mcp.Error
		if errors.As(err, &rpc) && rpc.Code == mcp.CodeMethodNotFound && len(list) == 0 {
			err = nil // the server offers none
		}
		if err != nil {
			return err
		}
		if len(words) > 0 && f.search != nil {
			return usage(errors.New("--search selects from the whole list: leave out NAME"))
		}
		reportFailed(f)
		var incomplete error
		if len(words) == 0 {
			incomplete = reportIncomplete(f)
		}
		all := len(list)
		list = slices.DeleteFunc(list, func(item T) bool { return !matches(l.text(item), f.search) })
		if len(words) > 0 {
			item, err := find(list, words[0], strings.TrimSuffix(l.key, "s"), l.name)
			if err != nil {
				_ = reportIncomplete(f) // a missing server may have the item
				return err
			}
			list = []T{item}
		}
		if f.Flags.json {
			f.IO.Out.value(map[string]any{l.key: list})
			return incomplete
		}
		what := strings.Replace(l.key, "resourceTemplates", "resource templates", 1)
		switch {
		case len(list) == 0 && all > 0:
			f.IO.Err.printf("None of %d %s contains %q (--search).", all, what, strings.Join(f.search, " "))
		case len(list) == 0 && f.Client.missing.Load() == nil:
			f.IO.Err.printf("This server has no %s.", what)
		}
		for _, item := range list {
			l.show(item, len(words) > 0)
		}
		return incomplete
	}
}

// find returns the item of a name. Its error suggests similar names.
func find[T any](list []T, wanted, thing string, name func(T) string) (found T, err error) {
	var known []string
	for _, item := range list {
		if name(item) == wanted {
			return item, nil
		}
		known = append(known, name(item))
	}
	return found, notFound(unknownName(thing, wanted, known))
}

func toolName(t *mcp.Tool) string { return t.Name }

// signature returns a name with arguments, as they are given on a command line.
func signature(name string, parameters []parameter) string {
	line := cleanLine(name)
	for i := range parameters {
		p := &parameters[i]
		line += " " + cleanLine(p.bracketed(p.name+"="+typeName(p)))
	}
	return line
}

// bracketed puts a word in brackets if the parameter is optional.
func (p *parameter) bracketed(word string) string {
	if p.required {
		return word
	}
	return "[" + word + "]"
}

func typeName(p *parameter) string {
	switch {
	case len(p.choices) > 0 && len(p.choices) <= 5:
		var all []string
		for _, c := range p.choices {
			all = append(all, shorten(c.text(), 24))
		}
		return strings.Join(all, "|")
	case len(p.types) == 0:
		return "any"
	}
	return strings.Join(p.types, "|")
}

// showDescription prints a title and description, or their first line.
func showDescription(f *factory, title, description string, whole bool) {
	if !whole {
		first, _, _ := strings.Cut(strings.TrimSpace(description), "\n")
		if first = cmp.Or(first, title); first != "" {
			f.IO.Out.wrapped("    "+shorten(cleanLine(first), 200), "")
		}
		return
	}
	if title != "" {
		f.IO.Out.wrapped("    "+cleanLine(title), "")
	}
	if description != "" {
		f.IO.Out.wrapped(indent(clean(description), "    "), "")
	}
}

// showTool prints a tool. The whole tool has its parameters, annotations and output schema.
func showTool(f *factory, t *mcp.Tool, whole bool) {
	parameters, _ := parametersOf(t.InputSchema)
	showSignature(f, t.Name, parameters)
	showDescription(f, t.Title, t.Description, whole)
	if !whole {
		return
	}
	for _, line := range inputTree(t.InputSchema) {
		showTreeLine(f, line)
	}
	if hints := hintsOf(t.Annotations); hints != "" {
		f.IO.Out.wrapped("  hints: "+hints, "      ")
	}
	if t.OutputSchema != nil {
		for _, line := range outputTree(t.OutputSchema) {
			showTreeLine(f, line)
		}
	}
}

func showSignature(f *factory, name string, parameters []parameter) {
	name = cleanLine(name)
	f.IO.Out.named("", name, strings.TrimPrefix(signature(name, parameters), name))
}

// showTreeLine prints a line of a tree, whose name ends with a colon.
func showTreeLine(f *factory, line string) {
	body := strings.TrimLeft(line, " ")
	name, _, _ := strings.Cut(body, ":")
	f.IO.Out.named(line[:len(line)-len(body)], name, strings.TrimPrefix(body, name))
}

func hintsOf(a *mcp.ToolAnnotations) string {
	if a == nil {
		return ""
	}
	var all []string
	for _, hint := range []struct {
		set  *bool
		text string
	}{
		{a.ReadOnly, "read-only"}, {a.Destructive, "destructive"}, {a.Idempotent, "idempotent"},
		{a.OpenWorld, "open world"},
	} {
		switch {
		case hint.set == nil:
		case *hint.set:
			all = append(all, hint.text)
		default:
			all = append(all, "not "+hint.text)
		}
	}
	return strings.Join(all, ", ")
}

func resourceURI(r *mcp.Resource) string { return r.URI }

func showResource(f *factory, r *mcp.Resource, whole bool) {
	size := ""
	if r.Size != nil {
		size = ", " + formatBytes(int(*r.Size))
	}
	f.IO.Out.named("", cleanLine(r.URI), "  "+cleanLine(r.MIMEType)+size)
	showDescription(f, r.Title, r.Description, whole)
}

func showTemplate(f *factory, t *mcp.ResourceTemplate, whole bool) {
	f.IO.Out.named("", cleanLine(t.URITemplate), "  "+cleanLine(t.MIMEType))
	showDescription(f, t.Title, t.Description, whole)
}

func promptName(prompt *mcp.Prompt) string { return prompt.Name }

func showPrompt(f *factory, prompt *mcp.Prompt, whole bool) {
	showSignature(f, prompt.Name, promptParameters(prompt))
	showDescription(f, prompt.Title, prompt.Description, whole)
	for _, a := range prompt.Arguments {
		if whole && a.Description != "" {
			f.IO.Out.named("  ", cleanLine(a.Name), ": "+cleanLine(a.Description))
		}
	}
}
