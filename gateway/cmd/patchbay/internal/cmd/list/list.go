// Package list lists tools, resources, resource templates and prompts.
package list

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/argument"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A Listing describes a list of a server.
type Listing[T any] struct {
	Key  string // of the list in JSON
	All  func(c *mcp.Client, ctx context.Context) iter.Seq2[T, error]
	Show func(item T, whole bool)
	Name func(item T) string
	Text func(item T) []string // that --search searches
}

// Names returns the names of the items, even after an error.
func (l Listing[T]) Names(ctx context.Context, c *mcp.Client) []string {
	list, _ := cmdutil.Collect(l.All(c, ctx))
	return cmdutil.Names(list, l.Name)
}

// Tools returns the list of tools.
func Tools(f *cmdutil.Factory) Listing[*mcp.Tool] {
	return Listing[*mcp.Tool]{Key: "tools", All: (*mcp.Client).Tools, Name: cmdutil.ToolName, Text: toolText,
		Show: func(t *mcp.Tool, whole bool) { showTool(f, t, whole) }}
}

// Resources returns the list of resources.
func Resources(f *cmdutil.Factory) Listing[*mcp.Resource] {
	return Listing[*mcp.Resource]{Key: "resources", All: (*mcp.Client).Resources, Name: cmdutil.ResourceURI,
		Text: resourceText, Show: func(r *mcp.Resource, whole bool) { showResource(f, r, whole) }}
}

// Prompts returns the list of prompts.
func Prompts(f *cmdutil.Factory) Listing[*mcp.Prompt] {
	return Listing[*mcp.Prompt]{Key: "prompts", All: (*mcp.Client).Prompts, Name: cmdutil.PromptName, Text: promptTexts,
		Show: func(prompt *mcp.Prompt, whole bool) { showPrompt(f, prompt, whole) }}
}

// Options are the flags of the commands that print a list.
type Options struct {
	cmdutil.Invocation
	Search []string // words that each item must contain
}

// newCmd returns the command of a list, whose items completion names if usage contains NAME.
func newCmd[T any](f *cmdutil.Factory, usage, short string, l Listing[T], run cmdutil.Run[*Options]) *cobra.Command {
	o, names := &Options{}, cmdutil.Lister(nil)
	if strings.Contains(usage, "NAME") {
		names = l.Names
	}
	cmd := cmdutil.TargetCommand(f, usage, short, names, o, cmdutil.Or(run, cmdutil.Bounded(
		func(ctx context.Context, o *Options, c *mcp.Client) error { return Show(ctx, o, c, l) })))
	cmd.Flags().StringArrayVar(&o.Search, "search", nil,
		"list only items whose name, title or description contains each of these `words`")
	return cmd
}

// NewCmdTools returns the command "tools".
func NewCmdTools(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	return newCmd(f, "tools [NAME]", "List tools, or show one with its input and output schema", Tools(f), run)
}

// NewCmdResources returns the command "resources".
func NewCmdResources(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	return newCmd(f, "resources", "List resources", Resources(f), run)
}

// NewCmdTemplates returns the command "templates".
func NewCmdTemplates(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	templates := Listing[*mcp.ResourceTemplate]{Key: "resourceTemplates", All: (*mcp.Client).ResourceTemplates,
		Text: templateText, Show: func(t *mcp.ResourceTemplate, whole bool) { showTemplate(f, t, whole) }}
	return newCmd(f, "templates", "List resource templates", templates, run)
}

// NewCmdPrompts returns the command "prompts".
func NewCmdPrompts(f *cmdutil.Factory, run cmdutil.Run[*Options]) *cobra.Command {
	return newCmd(f, "prompts [NAME]", "List prompts, or show one with its arguments", Prompts(f), run)
}

// Show prints a list, or an item in full.
func Show[T any](ctx context.Context, o *Options, c *mcp.Client, l Listing[T]) error {
	list, err := cmdutil.Collect(l.All(c, ctx))
	var rpc *mcp.Error
	if errors.As(err, &rpc) && rpc.Code == mcp.CodeMethodNotFound && len(list) == 0 {
		err = nil // the server does not offer the list
	}
	if err != nil {
		return err
	}
	if len(o.Words) > 0 && o.Search != nil {
		return exit.UsageError(errors.New("--search selects from the whole list: leave out NAME"))
	}
	cmdutil.ReportFailed(o.Factory)
	var incomplete error
	if len(o.Words) == 0 {
		incomplete = cmdutil.ReportIncomplete(o.Factory)
	}
	all := len(list)
	list = slices.DeleteFunc(list, func(item T) bool { return !matches(l.Text(item), o.Search) })
	if len(o.Words) > 0 {
		item, err := cmdutil.Find(list, o.Words[0], strings.TrimSuffix(l.Key, "s"), l.Name)
		if err != nil {
			_ = cmdutil.ReportIncomplete(o.Factory) // a missing server may contain the item
			return err
		}
		list = []T{item}
	}
	if o.Flags.JSON {
		o.IO.Out.Value(map[string]any{l.Key: list})
		return incomplete
	}
	what := strings.Replace(l.Key, "resourceTemplates", "resource templates", 1)
	switch {
	case len(list) == 0 && all > 0:
		o.IO.Err.Printf("None of %d %s contains %q (--search).", all, what, strings.Join(o.Search, " "))
	case len(list) == 0 && o.Client.Missing.Load() == nil:
		o.IO.Err.Printf("This server has no %s.", what)
	}
	for _, item := range list {
		l.Show(item, len(o.Words) > 0)
	}
	return incomplete
}

// showTool prints a tool. The whole tool includes its parameters, annotations and output schema.
func showTool(f *cmdutil.Factory, t *mcp.Tool, whole bool) {
	parameters, _ := argument.ParametersOf(t.InputSchema)
	showSignature(f, t.Name, parameters)
	cmdutil.ShowDescription(f, t.Title, t.Description, whole)
	if !whole {
		return
	}
	for _, line := range argument.InputTree(t.InputSchema) {
		showTreeLine(f, line)
	}
	if hints := hintsOf(t.Annotations); hints != "" {
		f.IO.Out.Wrapped("  hints: "+hints, "      ")
	}
	if t.OutputSchema != nil {
		for _, line := range argument.OutputTree("output", t.OutputSchema) {
			showTreeLine(f, line)
		}
	}
}

func showSignature(f *cmdutil.Factory, name string, parameters []argument.Parameter) {
	name = term.CleanLine(name)
	f.IO.Out.Named("", name, strings.TrimPrefix(argument.Signature(name, parameters), name))
}

// showTreeLine prints a line of a tree, whose name ends with a colon.
func showTreeLine(f *cmdutil.Factory, line string) {
	body := strings.TrimLeft(line, " ")
	name, _, _ := strings.Cut(body, ":")
	f.IO.Out.Named(line[:len(line)-len(body)], name, strings.TrimPrefix(body, name))
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

// showResource prints a resource.
func showResource(f *cmdutil.Factory, r *mcp.Resource, whole bool) {
	size := ""
	if r.Size != nil {
		size = ", " + term.FormatBytes(int(*r.Size))
	}
	f.IO.Out.Named("", term.CleanLine(r.URI), "  "+term.CleanLine(r.MIMEType)+size)
	cmdutil.ShowDescription(f, r.Title, r.Description, whole)
}

// showTemplate prints a resource template.
func showTemplate(f *cmdutil.Factory, t *mcp.ResourceTemplate, whole bool) {
	f.IO.Out.Named("", term.CleanLine(t.URITemplate), "  "+term.CleanLine(t.MIMEType))
	cmdutil.ShowDescription(f, t.Title, t.Description, whole)
}

// showPrompt prints a prompt, with the descriptions of its arguments if whole is true.
func showPrompt(f *cmdutil.Factory, prompt *mcp.Prompt, whole bool) {
	showSignature(f, prompt.Name, argument.PromptParameters(prompt))
	cmdutil.ShowDescription(f, prompt.Title, prompt.Description, whole)
	for _, a := range prompt.Arguments {
		if whole && a.Description != "" {
			f.IO.Out.Named("  ", term.CleanLine(a.Name), ": "+term.CleanLine(a.Description))
		}
	}
}
