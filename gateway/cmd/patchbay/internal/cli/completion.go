package cli

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/configs"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/visible"
)

// completionTimeout bounds the completion of a name from a server.
const completionTimeout = 2 * time.Second

// A lister returns names that a server has, such as those of its tools.
type lister func(ctx context.Context, c *mcp.Client) []string

// completeNames completes targets, and then names from the server, if the target is a URL. It never
// starts a command: completion must not run code. It uses no server of a project file that the user
// has not trusted.
func completeNames(f *factory, names lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if f.shell != nil {
			return f.shell.completeNames(cmd.Context(), cmd.Name(), names, args), cobra.ShellCompDirectiveNoFileComp
		}
		if len(args) == 0 {
			return append(f.Config.targetNames(typed), f.hosts.names(f, typed)...), cobra.ShellCompDirectiveNoFileComp
		}
		if names == nil || len(args) > 1 {
			return nil, cobra.ShellCompDirectiveDefault
		}
		var found []string
		directive := whileConnected(f, cmd, args[0], func(ctx context.Context, c *mcp.Client) {
			found = matching(names(ctx, c), typed)
		})
		return found, directive
	}
}

// targetNames returns the names of servers, and those with the prefix of an application. It ignores
// files that cannot be read.
func (p *finder) targetNames(typed string) (names []string) {
	for f, err := range configs.Files(p.Flags.config) {
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

// shellActive are the characters with which a shell runs other commands, reads more of a line, or
// replaces a word by names of files. Shells insert the common beginning of several completions
// unquoted.
const shellActive = "$`;&|<>()'\"\\!*[]{}^"

// matching returns the names that begin with what was typed and are safe on a command line and on a
// terminal. A name that begins with a hyphen would be a flag.
func matching(names []string, typed string) (found []string) {
	for _, name := range names {
		if strings.HasPrefix(name, typed) && isSafeWord(name) {
			found = append(found, name)
		}
	}
	return found
}

// isSafeWord reports whether a word means itself in the shells, unquoted.
func isSafeWord(word string) bool {
	const first = "-~#=@%" // a flag, a directory, a comment, a program, an array, a job
	value := word[strings.IndexByte(word, '=')+1:]
	return word != "" && len(word) <= maxCompleted && !strings.ContainsAny(word[:1], first) &&
		!strings.HasPrefix(value, "~") && !strings.ContainsAny(word, shellActive) &&
		(!strings.Contains(word, "?") || strings.Contains(word, "://")) && // the URL is no name of a file
		!strings.ContainsFunc(word, func(r rune) bool { return r <= ' ' || visible.Hidden(r) })
}

// completeCommand completes the command after "--": programs as its first word, then files. It reports
// whether the arguments of patchbay are a request for such a completion.
func completeCommand(f *factory, args []string) bool {
	if len(args) < 2 || args[0] != cobra.ShellCompRequestCmd && args[0] != cobra.ShellCompNoDescRequestCmd {
		return false
	}
	words, typed := args[1:len(args)-1], args[len(args)-1]
	dash := slices.Index(words, "--")
	if dash < 0 {
		return false
	}
	if dash == len(words)-1 {
		for _, name := range matching(programs(), typed) {
			f.IO.Out.printf("%s", name)
		}
	}
	f.IO.Out.printf(":%d", cobra.ShellCompDirectiveDefault) // files, if there is no completion
	return true
}

// programs returns the names of the programs in $PATH.
func programs() (names []string) {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		entries, _ := os.ReadDir(dir) // skip folders that cannot be read
		for _, e := range entries {
			if _, err := exec.LookPath(filepath.Join(dir, e.Name())); err == nil && filepath.IsAbs(dir) {
				names = append(names, e.Name())
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// completeFlags completes the values of flags with a fixed set of values, and of directories.
func completeFlags(root *cobra.Command) {
	for name, values := range map[string][]string{"revision": revisions(), "log-level": logLevels,
		"color": {"auto", "always", "never"}} {
		complete := func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
			return matching(values, typed), cobra.ShellCompDirectiveNoFileComp
		}
		_ = root.RegisterFlagCompletionFunc(name, complete) // the flag exists
	}
	for _, name := range []string{"cwd", "save", "root"} {
		_ = root.MarkPersistentFlagDirname(name)
	}
}
