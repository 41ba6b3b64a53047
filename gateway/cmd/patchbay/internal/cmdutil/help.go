package cmdutil

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

const (
	// maxSubcommands is the maximum number of subcommands that help lists automatically. The text of a command
	// with more subcommands lists them in groups, and the topic "commands" describes them.
	maxSubcommands = 10
	// helpWidth is the width of help that is not written to a terminal.
	helpWidth = 100
	// topicWidth is the width of the topic "flags".
	topicWidth = 80
)

// SetHelp sets how root and its subcommands write help: with lines that fit the terminal, and with
// the flags that every command takes in a separate topic.
func SetHelp(f *Factory, root *cobra.Command) {
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "commands":
			cmd.Long = strings.TrimRight(commandTable(root), "\n")
		case "flags":
			cmd.Long = strings.TrimRight(root.PersistentFlags().FlagUsagesWrapped(topicWidth), "\n")
		}
	}
	root.SetHelpFunc(func(cmd *cobra.Command, _ []string) {
		_, _ = fmt.Fprint(cmd.OutOrStdout(), helpText(cmd, cmp.Or(f.IO.Out.Width(), helpWidth)))
	})
}

func helpText(cmd *cobra.Command, width int) string {
	var b strings.Builder
	text := func(format string, args ...any) { b.WriteString(term.Wrap(fmt.Sprintf(format, args...), width, "  ")) }
	b.WriteString(fill(cmp.Or(cmd.Long, cmd.Short), width))
	if !cmd.Runnable() {
		return b.String() // a help topic
	}
	if cmd.HasParent() {
		text("\nUsage:\n  %s\n", cmd.UseLine())
	} else {
		text("\nUsage:\n  patchbay COMMAND [TARGET] [ARGUMENT…] [FLAG…]; patchbay COMMAND --help\n")
	}
	if cmd.Example != "" {
		text("\nExamples:\n%s\n", cmd.Example)
	}
	if listed := cmd.Commands(); len(listed) > 0 && len(listed) <= maxSubcommands {
		text("\nCommands:\n%s", commandTable(cmd))
	}
	if !cmd.HasParent() {
		return b.String()
	}
	if flags := cmd.LocalFlags(); flags.HasAvailableFlags() {
		b.WriteString("\nFlags (of every command: patchbay help flags):\n" + flags.FlagUsagesWrapped(width))
	}
	return b.String()
}

// fill breaks each paragraph at width. Indented lines and tables keep their breaks.
func fill(text string, width int) string {
	isProse := func(line string) bool { return line != "" && line[0] != ' ' && !strings.Contains(line, "  ") }
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		if last := len(lines) - 1; last >= 0 && isProse(lines[last]) && isProse(line) {
			lines[last] += " " + line
			continue
		}
		lines = append(lines, line)
	}
	var b strings.Builder
	for _, line := range lines {
		hang := "  "
		if isProse(line) {
			hang = ""
		}
		b.WriteString(term.Wrap(line, width, hang) + "\n")
	}
	return b.String()
}

// commandTable returns a table of all commands below cmd and their descriptions.
func commandTable(cmd *cobra.Command) string {
	var rows [][2]string
	columns := 0
	var add func(parent *cobra.Command)
	add = func(parent *cobra.Command) {
		for _, c := range parent.Commands() {
			if c.IsAvailableCommand() {
				_, name, _ := strings.Cut(c.CommandPath(), cmd.CommandPath()+" ")
				rows = append(rows, [2]string{name, c.Short})
				columns = max(columns, len(name))
			}
			add(c)
		}
	}
	add(cmd)
	var b strings.Builder
	for _, row := range rows {
		fmt.Fprintf(&b, "  %-*s  %s\n", columns, row[0], row[1])
	}
	return b.String()
}
