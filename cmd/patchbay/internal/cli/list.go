package cli

import (
	"context"
	"fmt"
	"iter"
	"strings"

	"github.com/spf13/cobra"

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

// only returns the item named by words, or all items if words is empty.
func only[T any](list []T, words []string, thing string, name func(T) string) ([]T, error) {
	if len(words) == 0 {
		return list, nil
	}
	item, err := find(list, words[0], thing, name)
	return []T{item}, err
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

func (p *program) toolsCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "tools TARGET [NAME] | tools [NAME] -- COMMAND…",
		Short: "List tools, or show one with its input and output schema",
		Example: `  patchbay tools http://127.0.0.1:8765/mcp
  patchbay tools http://127.0.0.1:8765/mcp add
  patchbay tools --json -- go run ./cmd/patchbay serve --stdio`,
		ValidArgsFunction: p.completeNames(toolNames),
		RunE: p.verb(func(ctx context.Context, c *mcp.Client, words []string) error {
			list, err := collect(c.Tools(ctx))
			if err == nil {
				list, err = only(list, words, "tool", toolName)
			}
			if err != nil {
				return err
			}
			if p.flags.json {
				p.output.value(map[string]any{"tools": list})
				return nil
			}
			for _, t := range list {
				p.output.printf("%s", toolLine(t))
				p.showDescription(t.Title, t.Description, len(words) > 0)
				if len(words) > 0 {
					p.showTool(t)
				}
			}
			return nil
		}, 0, 1),
	}
}

func toolName(t *mcp.Tool) string { return t.Name }

// toolLine returns a tool with its arguments, as it is called.
func toolLine(t *mcp.Tool) string {
	line := cleanLine(t.Name)
	parameters, _ := parametersOf(t.InputSchema)
	for i := range parameters {
		word := parameters[i].name + "=" + typeName(&parameters[i])
		if !parameters[i].required {
			word = "[" + word + "]"
		}
		line += " " + cleanLine(word)
	}
	return line
}

// typeName returns the type or the choices of a parameter.
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
func (p *program) showDescription(title, description string, whole bool) {
	if !whole {
		first, _, _ := strings.Cut(strings.TrimSpace(description), "\n")
		if first == "" {
			first = title
		}
		if first != "" {
			p.output.printf("    %s", shorten(cleanLine(first), 200))
		}
		return
	}
	if title != "" {
		p.output.printf("    %s", cleanLine(title))
	}
	if description != "" {
		p.output.printf("%s", indent(clean(description), "    "))
	}
}

// showTool prints the parameters, annotations and output schema of a tool.
func (p *program) showTool(t *mcp.Tool) {
	parameters, _ := parametersOf(t.InputSchema)
	for i := range parameters {
		param := &parameters[i]
		line := fmt.Sprintf("  %s: %s", cleanLine(param.name), cleanLine(param.want()))
		if param.required {
			line += ", required"
		}
		if d := param.defaultValue(); d != nil {
			line += ", default " + cleanJSON(string(d))
		}
		if d := param.description(); d != "" {
			line += "; " + cleanLine(d)
		}
		p.output.printf("%s", line)
	}
	if hints := hintsOf(t.Annotations); hints != "" {
		p.output.printf("  hints: %s", hints)
	}
	if t.OutputSchema != nil {
		p.output.printf("  output: %s", cleanJSON(string(t.OutputSchema)))
	}
}

// hintsOf returns the annotations of a tool in words.
func hintsOf(a *mcp.ToolAnnotations) string {
	if a == nil {
		return ""
	}
	var all []string
	for _, hint := range []struct {
		set     *bool
		yes, no string
	}{
		{a.ReadOnly, "read-only", "not read-only"},
		{a.Destructive, "destructive", "not destructive"},
		{a.Idempotent, "idempotent", "not idempotent"},
		{a.OpenWorld, "open world", "closed world"},
	} {
		switch {
		case hint.set == nil:
		case *hint.set:
			all = append(all, hint.yes)
		default:
			all = append(all, hint.no)
		}
	}
	return strings.Join(all, ", ")
}

func (p *program) resourcesCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "resources TARGET | resources -- COMMAND…",
		Short:             "List resources",
		Example:           `  patchbay resources http://127.0.0.1:8765/mcp`,
		ValidArgsFunction: p.completeNames(nil),
		RunE: p.verb(func(ctx context.Context, c *mcp.Client, _ []string) error {
			list, err := collect(c.Resources(ctx))
			if err != nil {
				return err
			}
			if p.flags.json {
				p.output.value(map[string]any{"resources": list})
				return nil
			}
			for _, r := range list {
				size := ""
				if r.Size != nil {
					size = ", " + formatBytes(int(*r.Size))
				}
				p.output.printf("%s  %s%s", cleanLine(r.URI), cleanLine(r.MIMEType), size)
				p.showDescription(r.Title, r.Description, false)
			}
			return nil
		}, 0, 0),
	}
}

func (p *program) templatesCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "templates TARGET | templates -- COMMAND…",
		Short:             "List resource templates",
		Example:           `  patchbay templates http://127.0.0.1:8765/mcp`,
		ValidArgsFunction: p.completeNames(nil),
		RunE: p.verb(func(ctx context.Context, c *mcp.Client, _ []string) error {
			list, err := collect(c.ResourceTemplates(ctx))
			if err != nil {
				return err
			}
			if p.flags.json {
				p.output.value(map[string]any{"resourceTemplates": list})
				return nil
			}
			for _, t := range list {
				p.output.printf("%s  %s", cleanLine(t.URITemplate), cleanLine(t.MIMEType))
				p.showDescription(t.Title, t.Description, false)
			}
			return nil
		}, 0, 0),
	}
}

func (p *program) promptsCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "prompts TARGET [NAME] | prompts [NAME] -- COMMAND…",
		Short:             "List prompts, or show one with its arguments",
		Example:           `  patchbay prompts http://127.0.0.1:8765/mcp`,
		ValidArgsFunction: p.completeNames(promptNames),
		RunE: p.verb(func(ctx context.Context, c *mcp.Client, words []string) error {
			list, err := collect(c.Prompts(ctx))
			if err == nil {
				list, err = only(list, words, "prompt", promptName)
			}
			if err != nil {
				return err
			}
			if p.flags.json {
				p.output.value(map[string]any{"prompts": list})
				return nil
			}
			for _, prompt := range list {
				p.showPrompt(prompt, len(words) > 0)
			}
			return nil
		}, 0, 1),
	}
}

func promptName(prompt *mcp.Prompt) string { return prompt.Name }

// promptLine returns a prompt with its arguments.
func promptLine(prompt *mcp.Prompt) string {
	line := cleanLine(prompt.Name)
	for _, a := range prompt.Arguments {
		word := a.Name + "=…"
		if !a.Required {
			word = "[" + word + "]"
		}
		line += " " + cleanLine(word)
	}
	return line
}

func (p *program) showPrompt(prompt *mcp.Prompt, whole bool) {
	p.output.printf("%s", promptLine(prompt))
	p.showDescription(prompt.Title, prompt.Description, whole)
	for _, a := range prompt.Arguments {
		if whole && a.Description != "" {
			p.output.printf("  %s: %s", cleanLine(a.Name), cleanLine(a.Description))
		}
	}
}
