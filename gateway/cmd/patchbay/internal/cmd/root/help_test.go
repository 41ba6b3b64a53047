package root

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// The help that a new user reads first fits a terminal of 80 columns and 24 lines, and names every command.
func TestHelpFitsTheScreen(t *testing.T) {
	for _, test := range []struct {
		args  []string
		lines int
	}{{nil, 20}, {[]string{"gateway", "--help"}, 24}} {
		o := atTerminal(t, "", func(p *cmdutil.Factory) { p.IO.Out.Width = func() int { return 80 } }, test.args...)
		text := o.stdout + o.stderr
		lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
		if len(lines) > test.lines {
			t.Errorf("%q: %d lines, want at most %d:\n%s", test.args, len(lines), test.lines, text)
		}
		for _, line := range lines {
			if term.TextWidth(line) > 80 {
				t.Errorf("%q: a line of %d columns: %s", test.args, term.TextWidth(line), line)
			}
		}
		root := rootCommand(newRun(strings.NewReader(""), &strings.Builder{}, &strings.Builder{}))
		cmd, _, err := root.Find(slices.DeleteFunc(slices.Clone(test.args), func(w string) bool { return w == "--help" }))
		if err != nil {
			t.Fatal(err)
		}
		words := strings.Fields(text)
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && !slices.Contains(words, sub.Name()) {
				t.Errorf("%q does not name %s", test.args, sub.Name())
			}
		}
	}
}

// Every topic and the help of every command fit a screen, and their paragraphs are short. Two topics are tables of all
// commands and of all flags.
func TestHelpIsShort(t *testing.T) {
	const maxLines, maxWords = 40, 80
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		words := strings.Fields(cmd.CommandPath())[1:]
		o := patchbay(t, "", append([]string{"help"}, words...)...)
		if lines := strings.Count(o.stdout, "\n"); lines > maxLines && cmd.Name() != "commands" && cmd.Name() != "flags" {
			t.Errorf("help %s: %d lines, want at most %d", strings.Join(words, " "), lines, maxLines)
		}
		for paragraph := range strings.SplitSeq(cmd.Long, "\n\n") {
			if n := len(strings.Fields(paragraph)); n > maxWords && !strings.HasPrefix(paragraph, " ") {
				t.Errorf("help %s: a paragraph of %d words, want at most %d: %s", strings.Join(words, " "), n, maxWords, paragraph)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(rootCommand(newRun(strings.NewReader(""), &strings.Builder{}, &strings.Builder{})))
}

// A separate topic describes global flags, and long lines are wrapped at the width of the terminal.
func TestHelpIsWrapped(t *testing.T) {
	narrow := func(p *cmdutil.Factory) { p.IO.Out.Width = func() int { return 60 } }
	var check func(cmd *cobra.Command)
	check = func(cmd *cobra.Command) {
		args := append([]string{"help"}, strings.Fields(cmd.CommandPath())[1:]...)
		o := atTerminal(t, "", narrow, args...)
		if cmd.Runnable() && strings.Contains(o.stdout, "--sample-with command") {
			t.Errorf("%q lists the flags of every command", args)
		}
		for line := range strings.Lines(o.stdout) {
			line = strings.TrimRight(line, "\n")
			if long := term.TextWidth(line) > 60; long && cmd.Name() != "flags" && strings.Contains(strings.TrimSpace(line[:40]), " ") &&
				!strings.HasPrefix(strings.TrimSpace(line), "-") {
				t.Errorf("%q: a line of %d columns: %s", args, term.TextWidth(line), line)
			}
		}
		for _, sub := range cmd.Commands() {
			check(sub)
		}
	}
	check(rootCommand(newRun(strings.NewReader(""), &strings.Builder{}, &strings.Builder{})))
	if o := patchbay(t, "", "help", "flags"); !strings.Contains(o.stdout, "--sample-with command") {
		t.Errorf("help flags: %s", o.stdout)
	}
	if o := patchbay(t, "", "help", "commands"); !strings.Contains(o.stdout, "gateway audit verify ") {
		t.Errorf("help commands: %s", o.stdout)
	}
}
