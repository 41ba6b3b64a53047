package cmdutil

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/target"
	"github.com/patchbay-mcp/patchbay/mcp/driver/command"
)

// FlagError returns the usage error of a flag of the command line args that could not be parsed.
// Parsing stopped at that flag, so FlagError searches args for --json.
func FlagError(f *Factory, cmd *cobra.Command, args []string, err error) error {
	f.Flags.JSON = f.Flags.JSON || HasJSONFlag(args)
	if advice := misplacedCommand(cmd, argumentsOf(cmd, args)); advice != "" {
		return exit.UsageError(fmt.Errorf("%w: %s", err, advice))
	}
	return exit.UsageError(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
}

// HasJSONFlag reports whether a command line contains --json.
func HasJSONFlag(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// argumentsOf returns the command line after the command's name, from the first word without "-".
func argumentsOf(cmd *cobra.Command, args []string) []string {
	for _, name := range strings.Fields(cmd.CommandPath())[1:] {
		at := slices.Index(args, name)
		if at < 0 {
			return nil // an alias
		}
		args = args[at+1:]
	}
	first := slices.IndexFunc(args, func(word string) bool { return !strings.HasPrefix(word, "-") })
	if first < 0 {
		return nil
	}
	return args[first:]
}

// misplacedCommand returns advice if words, which follow the name of a command, look like the
// command of a server without "--" before it.
func misplacedCommand(cmd *cobra.Command, words []string) string {
	_, form, takesCommand := strings.Cut(cmd.Use, " | ")
	if len(words) == 0 || slices.Contains(words, "--") || !takesCommand || !isProgram(words[0]) {
		return ""
	}
	parents := strings.TrimSuffix(cmd.CommandPath(), cmd.Name())
	form = strings.TrimSuffix(strings.NewReplacer(" [NAME]", "", "[TOOL]", "TOOL").Replace(form), "COMMAND…")
	return "put the command after --, as in: " + parents + form + (&target.Target{Command: words}).String()
}

// interpreters lists programs that run servers, also on machines that lack them.
var interpreters = []string{"node", "python", "python3", "go", "java", "dotnet", "ruby", "php"}

// isProgram reports whether a word is a program or a script.
func isProgram(word string) bool {
	if command.IsPackageRunner(word) || slices.Contains(interpreters, word) {
		return true
	}
	if _, err := exec.LookPath(word); err == nil {
		return true
	}
	info, err := os.Stat(word)
	return err == nil && info.Mode().IsRegular()
}

// codeOfServer is the code of a gateway's errors about a server of its configuration.
const codeOfServer = -32000
