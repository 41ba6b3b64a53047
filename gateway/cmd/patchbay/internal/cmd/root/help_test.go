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
