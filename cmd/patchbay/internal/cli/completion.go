package cli

import (
	"context"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/host"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// completionTimeout is how long somebody who has pressed the tabulator waits.
const completionTimeout = 2 * time.Second

// A lister gives the names of one kind of thing that a server has.
type lister func(ctx context.Context, c *mcp.Client) []string

func toolNames(ctx context.Context, c *mcp.Client) (names []string) {
	list, _ := collect(c.Tools(ctx)) // what was read before an error helps as well
	for _, t := range list {
		names = append(names, t.Name)
	}
	return names
}

func promptNames(ctx context.Context, c *mcp.Client) (names []string) {
	list, _ := collect(c.Prompts(ctx))
	for _, prompt := range list {
		names = append(names, prompt.Name)
	}
	return names
}

func resourceURIs(ctx context.Context, c *mcp.Client) (names []string) {
	list, _ := collect(c.Resources(ctx))
	for _, r := range list {
		names = append(names, r.URI)
	}
	return names
}

// completeNames completes targets, and then the names that a server behind a URL has. A command is not started for this:
// pressing the tabulator runs nobody's code.
func (p *program) completeNames(names lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return p.targetNames(typed), cobra.ShellCompDirectiveNoFileComp
		}
		t, err := p.named(args[0])
		if err != nil || t.url == "" || names == nil || len(args) > 1 || p.addToTarget(t) != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		p.flags.noInput = true
		c, err := p.connect(ctx, t)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer p.close(c)
		return matching(names(ctx, c), typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// targetNames returns the names of configured servers.
func (p *program) targetNames(typed string) (names []string) {
	configs, _ := host.LoadConfigs(p.flags.config) // a file that cannot be read names nothing
	for _, c := range configs {
		names = append(names, c.Names()...)
	}
	return matching(names, typed)
}

// matching returns the names that begin with what was typed and can stand on a command line and on a terminal. One that
// begins with a hyphen would be a flag there.
func matching(names []string, typed string) (found []string) {
	for _, name := range names {
		if strings.HasPrefix(name, typed) && !strings.HasPrefix(name, "-") && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || isUnsafe(r) }) {
			found = append(found, name)
		}
	}
	return found
}

// completeFlags completes the values of flags that are one of few, or folders. Files are completed anyway.
func completeFlags(root *cobra.Command) {
	for name, values := range map[string][]string{
		"revision":  revisions(),
		"log-level": logLevels,
	} {
		complete := func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return matching(values, typed), cobra.ShellCompDirectiveNoFileComp
		}
		_ = root.RegisterFlagCompletionFunc(name, complete) // there is such a flag
	}
	for _, name := range []string{"cwd", "save", "root"} {
		_ = root.MarkPersistentFlagDirname(name)
	}
}
