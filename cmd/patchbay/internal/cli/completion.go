package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// completionTimeout bounds the completion of a name from a server.
const completionTimeout = 2 * time.Second

// A lister returns names that a server has, such as those of its tools.
type lister func(ctx context.Context, c *mcp.Client) []string

// completeNames completes targets, and then names from the server, if the target is a URL. It never
// starts a command: completion must not run code. It uses no server of a project file that the user
// has not trusted.
func (p *program) completeNames(names lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if p.shell != nil {
			return p.shell.completeNames(cmd.Context(), cmd.Name(), names, args), cobra.ShellCompDirectiveNoFileComp
		}
		if len(args) == 0 {
			return p.targetNames(typed), cobra.ShellCompDirectiveNoFileComp
		}
		p.flags.noInput = true
		t, err := p.named(cmd.Context(), args[0], refuseTrust)
		if err != nil || t.url == "" || names == nil || len(args) > 1 || p.addToTarget(t) != nil {
			return nil, cobra.ShellCompDirectiveDefault
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		c, err := p.connect(ctx, t)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer p.close(c)
		return matching(names(ctx, c), typed), cobra.ShellCompDirectiveNoFileComp
	}
}

// targetNames returns the names of servers, and those with the prefix of an application. It ignores
// files that cannot be read.
func (p *program) targetNames(typed string) (names []string) {
	for f, err := range configs.Files(p.flags.config) {
		if err != nil {
			continue
		}
		for _, name := range f.Names() {
			for _, name := range []string{name, f.Target(name)} {
				if !slices.Contains(names, name) && len(names) < maxNames {
					names = append(names, name)
				}
			}
		}
	}
	return matching(names, typed)
}

// maxNames bounds the names of servers, so that project files do not slow completion down.
const maxNames = 1000

// maxCompleted bounds a completed name, in bytes: a longer one would fill the terminal.
const maxCompleted = 1000

// shellActive are the characters with which a shell runs other commands or reads more of a line.
// Shells insert the common beginning of several completions unquoted.
const shellActive = "$`;&|<>()'\"\\!"

// matching returns the names that begin with what was typed and are safe on a command line and on a
// terminal. A name that begins with a hyphen would be a flag.
func matching(names []string, typed string) (found []string) {
	for _, name := range names {
		if len(name) <= maxCompleted && strings.HasPrefix(name, typed) && !strings.HasPrefix(name, "-") &&
			!strings.ContainsAny(name, shellActive) &&
			!strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || isUnsafe(r) }) {
			found = append(found, name)
		}
	}
	return found
}

// completeFlags completes the values of flags with a fixed set of values, and of directories.
func completeFlags(root *cobra.Command) {
	for name, values := range map[string][]string{"revision": revisions(), "log-level": logLevels,
		"color": {"auto", "always", "never"}, "images": {"auto", "never"}} {
		complete := func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return matching(values, typed), cobra.ShellCompDirectiveNoFileComp
		}
		_ = root.RegisterFlagCompletionFunc(name, complete) // the flag exists
	}
	for _, name := range []string{"cwd", "save", "root"} {
		_ = root.MarkPersistentFlagDirname(name)
	}
}
