package cmdutil

import (
	"cmp"
	"iter"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// Collect returns the elements of an iterator up to the first error.
func Collect[T any](all iter.Seq2[T, error]) ([]T, error) {
	list := []T{}
	for item, err := range all {
		if err != nil {
			return list, err
		}
		list = append(list, item)
	}
	return list, nil
}

// Find returns the item of a name. Its error suggests similar names.
func Find[T any](list []T, wanted, thing string, name func(T) string) (found T, err error) {
	for _, item := range list {
		if name(item) == wanted {
			return item, nil
		}
	}
	return found, exit.NotFoundError(term.UnknownName(thing, wanted, Names(list, name)))
}

// Names returns the names of items.
func Names[T any](list []T, name func(T) string) (names []string) {
	for _, item := range list {
		names = append(names, name(item))
	}
	return names
}

// ToolName returns the name of a tool.
func ToolName(t *mcp.Tool) string { return t.Name }

// ShowDescription prints a title and description, or their first line.
func ShowDescription(f *Factory, title, description string, whole bool) {
	if !whole {
		first, _, _ := strings.Cut(strings.TrimSpace(description), "\n")
		if first = cmp.Or(first, title); first != "" {
			f.IO.Out.Wrapped("    "+term.Shorten(term.CleanLine(first), 200), "")
		}
		return
	}
	if title != "" {
		f.IO.Out.Wrapped("    "+term.CleanLine(title), "")
	}
	if description != "" {
		f.IO.Out.Wrapped(term.Indent(term.Clean(description), "    "), "")
	}
}

// ResourceURI returns the URI of a resource.
func ResourceURI(r *mcp.Resource) string { return r.URI }

// PromptName returns the name of a prompt.
func PromptName(prompt *mcp.Prompt) string { return prompt.Name }
