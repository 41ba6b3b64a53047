package cmdutil

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// CompletionTimeout bounds the completion of a name from a server.
const CompletionTimeout = 2 * time.Second

// A Lister returns names that a server lists, such as the names of its tools.
type Lister func(ctx context.Context, c *mcp.Client) []string

// CompleteNames completes targets, and then names from the server, if the target is a URL. It must
// not start a command, because completion must not run code, nor use a server of a project file
// that is not trusted.
func CompleteNames(f *Factory, names Lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if s := f.Client.Shell; s != nil {
			return s.CompleteNames(cmd.Context(), cmd.Name(), names, args), cobra.ShellCompDirectiveNoFileComp
		}
		if len(args) == 0 {
			return append(f.Config.TargetNames(typed), f.Config.HostNames(typed)...), cobra.ShellCompDirectiveNoFileComp
		}
		if names == nil || len(args) > 1 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var found []string
		directive := whileConnected(f, cmd, args[0], func(ctx context.Context, c *mcp.Client) {
			found = target.Matching(names(ctx, c), typed)
		})
		return found, directive
	}
}

// completeFlags completes the values of flags with a fixed set of values, and of directories.
func completeFlags(root *cobra.Command) {
	for name, values := range map[string][]string{"revision": connect.Revisions(), "log-level": connect.LogLevels,
		"color": {"auto", "always", "never"}} {
		complete := func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return target.Matching(values, typed), cobra.ShellCompDirectiveNoFileComp
		}
		_ = root.RegisterFlagCompletionFunc(name, complete) // the flag exists
	}
	for _, name := range []string{"cwd", "save", "root"} {
		_ = root.MarkPersistentFlagDirname(name)
	}
}
