package cmdutil

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/argument"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// A completer returns completions of typed. The words between the target and typed precede it.
type completer func(ctx context.Context, c *mcp.Client, words []string, typed string) []string

// CompleteArguments completes target and first word as CompleteNames does, and then arguments.
func CompleteArguments(f *Factory, cmd *cobra.Command, arguments completer) *cobra.Command {
	names := cmd.ValidArgsFunction
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) < 2 {
			return names(cmd, args, typed)
		}
		var found []string
		directive := whileConnected(f, cmd, args[0], func(ctx context.Context, c *mcp.Client) {
			found = target.Matching(arguments(ctx, c, args[1:], typed), typed)
		})
		if len(found) > 0 && !slices.ContainsFunc(found, func(s string) bool { return !strings.HasSuffix(s, "=") }) {
			directive |= cobra.ShellCompDirectiveNoSpace // the value follows
		}
		return found, directive
	}
	return cmd
}

// whileConnected calls f with a client of the server at a URL. It must never start a command, log
// in, or use a server of a project file that is not trusted.
func whileConnected(
	p *Factory, cmd *cobra.Command, name string, f func(ctx context.Context, c *mcp.Client),
) cobra.ShellCompDirective {
	p.Flags.NoInput, p.Observe.Completing = true, true
	ctx, cancel := context.WithTimeout(cmd.Context(), CompletionTimeout)
	defer cancel()
	t, err := p.Config.Named(ctx, name, target.RefuseTrust)
	if err != nil || t.URL == "" && t.Host == nil || p.Config.AddToTarget(ctx, t) != nil {
		return cobra.ShellCompDirectiveDefault
	}
	c, err := p.Client.Connect(ctx, t)
	if err != nil {
		return cobra.ShellCompDirectiveNoFileComp
	}
	f(ctx, c)
	p.Client.Close(c)
	return cobra.ShellCompDirectiveNoFileComp
}

// ToolArguments completes the arguments of the tool that is the first word.
func ToolArguments(ctx context.Context, c *mcp.Client, words []string, typed string) []string {
	tools, _ := Collect(c.Tools(ctx))
	tool, err := Find(tools, words[0], "tool", ToolName)
	if err != nil {
		return nil
	}
	parameters, _ := argument.ParametersOf(tool.InputSchema)
	return CompleteParameters(parameters, words[1:], typed)
}

// PromptArguments completes the arguments of the prompt words[0]. The server completes values.
func PromptArguments(ctx context.Context, c *mcp.Client, words []string, typed string) (found []string) {
	prompts, _ := Collect(c.Prompts(ctx))
	prompt, err := Find(prompts, words[0], "prompt", PromptName)
	if err != nil {
		return nil
	}
	name, value, hasValue := strings.Cut(typed, "=")
	if !hasValue || c.Capabilities().Completions == nil {
		return CompleteParameters(argument.PromptParameters(prompt), words[1:], typed)
	}
	known, err := argument.Assignments(words[1:])
	if err != nil {
		known = nil // some are in another form
	}
	delete(known, name)
	completion, err := c.Complete(ctx, &mcp.CompleteParams{Prompt: prompt.Name,
		Argument: name, Value: value, Arguments: known})
	if err != nil {
		return nil
	}
	for _, v := range completion.Values {
		found = append(found, Assignment(name, v)...)
	}
	return found
}

// CompleteParameters returns the keys that were not given, or the values of the key that was typed.
func CompleteParameters(parameters []argument.Parameter, given []string, typed string) (found []string) {
	name, _, hasValue := strings.Cut(typed, "=")
	for i := range parameters {
		switch p := &parameters[i]; {
		case hasValue && p.Name == name:
			for _, v := range p.Values() {
				found = append(found, Assignment(name, v)...)
			}
		case !hasValue && isPlainKey(p.Name) && (p.Items != nil || !IsGiven(p.Name, given)):
			found = append(found, p.Name+"=")
		}
	}
	return found
}

// Assignment returns key=value, or nil for a value that would be read as a file.
func Assignment(name, value string) []string {
	if strings.HasPrefix(value, "@") || !isPlainKey(name) {
		return nil
	}
	return []string{name + "=" + value}
}

// isPlainKey reports whether a key can be written as key=value: other forms read files or JSON.
func isPlainKey(name string) bool {
	return name != "" && !strings.ContainsAny(name[:1], "-@{") && !strings.Contains(name, "=") &&
		!strings.HasSuffix(name, ":")
}

// IsGiven reports whether words give a value to a key.
func IsGiven(name string, given []string) bool {
	return slices.ContainsFunc(given, func(word string) bool {
		return strings.HasPrefix(word, name+"=") || strings.HasPrefix(word, name+":=")
	})
}
