package cli

import (
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A completer returns completions of what was typed, after words that follow the target.
type completer func(ctx context.Context, c *mcp.Client, words []string, typed string) []string

// completeArguments completes the target and the first word as completeNames does, and then
// arguments.
func completeArguments(f *factory, cmd *cobra.Command, arguments completer) *cobra.Command {
	names := cmd.ValidArgsFunction
	cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) < 2 {
			return names(cmd, args, typed)
		}
		var found []string
		directive := whileConnected(f, cmd, args[0], func(ctx context.Context, c *mcp.Client) {
			found = matching(arguments(ctx, c, args[1:], typed), typed)
		})
		if len(found) > 0 && !slices.ContainsFunc(found, func(s string) bool { return !strings.HasSuffix(s, "=") }) {
			directive |= cobra.ShellCompDirectiveNoSpace // the value follows
		}
		return found, directive
	}
	return cmd
}

// whileConnected calls f with a client of the server at a URL. It never starts a command, logs in,
// or uses a server of a project file that the user has not trusted.
func whileConnected(
	p *factory, cmd *cobra.Command, target string, f func(ctx context.Context, c *mcp.Client),
) cobra.ShellCompDirective {
	p.Flags.noInput, p.Observe.completing = true, true
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
	defer cancel()
	t, err := p.Config.named(ctx, target, refuseTrust)
	if err != nil || t.url == "" && t.host == nil || p.Config.addToTarget(ctx, t) != nil {
		return cobra.ShellCompDirectiveDefault
	}
	c, err := p.Client.connect(ctx, t)
	if err != nil {
		return cobra.ShellCompDirectiveNoFileComp
	}
	f(ctx, c)
	p.Client.close(c)
	return cobra.ShellCompDirectiveNoFileComp
}

// toolArguments completes the arguments of the tool that is the first word.
func toolArguments(ctx context.Context, c *mcp.Client, words []string, typed string) []string {
	tools, _ := collect(c.Tools(ctx))
	tool, err := find(tools, words[0], "tool", toolName)
	if err != nil {
		return nil
	}
	parameters, _ := parametersOf(tool.InputSchema)
	return completeParameters(parameters, words[1:], typed)
}

// promptArguments completes the arguments of the prompt that is the first word. The server completes
// their values.
func promptArguments(ctx context.Context, c *mcp.Client, words []string, typed string) (found []string) {
	prompts, _ := collect(c.Prompts(ctx))
	prompt, err := find(prompts, words[0], "prompt", promptName)
	if err != nil {
		return nil
	}
	name, value, hasValue := strings.Cut(typed, "=")
	if !hasValue || c.Capabilities().Completions == nil {
		return completeParameters(promptParameters(prompt), words[1:], typed)
	}
	known, err := assignments(words[1:])
	if err != nil {
		known = nil // some are in another form
	}
	delete(known, name)
	completion, err := c.Complete(ctx, &mcp.CompleteParams{Ref: mcp.CompletionRef{Prompt: prompt.Name},
		Argument: mcp.CompleteArgument{Name: name, Value: value}, Context: mcp.CompleteContext{Arguments: known}})
	if err != nil {
		return nil
	}
	for _, v := range completion.Values {
		found = append(found, assignment(name, v)...)
	}
	return found
}

// completeParameters returns the keys that were not given, or the values of the key that was typed.
func completeParameters(parameters []parameter, given []string, typed string) (found []string) {
	name, _, hasValue := strings.Cut(typed, "=")
	for i := range parameters {
		switch p := &parameters[i]; {
		case hasValue && p.name == name:
			for _, v := range p.values() {
				found = append(found, assignment(name, v)...)
			}
		case !hasValue && isPlainKey(p.name) && (p.items != nil || !isGiven(p.name, given)):
			found = append(found, p.name+"=")
		}
	}
	return found
}

// values returns the values of an enum or a boolean, also as elements of an array.
func (p *parameter) values() (all []string) {
	if p.items != nil && p.choices == nil {
		p = p.items
	}
	for _, c := range p.choices {
		all = append(all, c.text())
	}
	if p.isYesNo() {
		all = []string{"true", "false"}
	}
	return all
}

// isYesNo reports whether true and false are the values, apart from null, and are not listed as
// choices.
func (p *parameter) isYesNo() bool {
	others := slices.ContainsFunc(p.types, func(t string) bool { return t != "boolean" && t != "null" })
	return p.choices == nil && p.takes("boolean") && !others
}

// assignment returns key=value, or nothing for a value that means a file.
func assignment(name, value string) []string {
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

func isGiven(name string, given []string) bool {
	return slices.ContainsFunc(given, func(word string) bool {
		return strings.HasPrefix(word, name+"=") || strings.HasPrefix(word, name+":=")
	})
}
