package cli

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/mcp/driver/command"
)

// flagError returns the usage error of a flag that could not be parsed. Parsing has
// stopped at that flag, so flagError searches the command line for --json.
func flagError(f *factory, cmd *cobra.Command, err error) error {
	f.Flags.json = f.Flags.json || hasJSONFlag(f.args)
	if advice := misplacedCommand(cmd, argumentsOf(cmd, f.args)); advice != "" {
		return usage(fmt.Errorf("%w: %s", err, advice))
	}
	return usage(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
}

func hasJSONFlag(args []string) bool {
	if end := slices.Index(args, "--"); end >= 0 {
		args = args[:end]
	}
	return slices.Contains(args, "--json") || slices.Contains(args, "--json=true")
}

// argumentsOf returns the command line after the name of the command, from the first word that is
// not a flag.
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
	return "put the command after --, as in: " + parents + form + (&target{command: words}).String()
}

// interpreters run servers, also on machines where the user has not installed them yet.
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

const (
	// maxTailLines bounds the kept lines of a command's standard error.
	maxTailLines = 10
	// maxTailLine bounds one of them, in bytes.
	maxTailLine = 400
)

// A tail keeps the last lines of what is written to it. It is safe for concurrent use.
type tail struct {
	mu    sync.Mutex // guards the field below
	lines []string
}

// Write implements io.Writer for whole lines.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for line := range strings.SplitSeq(strings.TrimRight(string(b), "\r\n"), "\n") {
		if line = strings.TrimRight(line, "\r "); line == "" {
			continue
		}
		if t.lines = append(t.lines, line[:min(len(line), maxTailLine)]); len(t.lines) > maxTailLines {
			t.lines = slices.Clone(t.lines[1:])
		}
	}
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.Join(t.lines, "\n")
}

// codeOfServer is the code of errors of a gateway about one of its servers.
const codeOfServer = -32000

// showTail shows the last lines of the standard error of the command that is the server.
func (d *dialer) showTail() {
	if text := d.commandStderr.String(); text != "" {
		d.IO.Err.printf("standard error of the command:\n%s", indent(clean(text), "  "))
	}
}
