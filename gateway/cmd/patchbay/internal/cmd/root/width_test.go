package root

import (
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/cmdutil"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
)

// Descriptions and trees fit the terminal. In a pipe they are not wrapped.
func TestListsAreWrappedOnATerminal(t *testing.T) {
	const columns = 40
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, url := range []string{newDeepServer(t), listenHTTP(t, newServer("demo"))} {
		for _, args := range [][]string{{"tools", url}, {"prompts", url}, {"resources", url}, {"tools", url, "book"},
			{"tools", url, "roll_dice"}} {
			o := atTerminal(t, "", func(p *cmdutil.Factory) { p.IO.Out.Width = func() int { return columns } }, args...)
			pipe := patchbay(t, "", args...)
			if words(o.stdout) != words(pipe.stdout) {
				t.Errorf("%q: got %s, want the words of %s", args, o.stdout, pipe.stdout)
			}
			for line := range strings.Lines(o.stdout) {
				if term.TextWidth(strings.TrimSuffix(line, "\n")) > columns && len(strings.Fields(line)) > 1 {
					t.Errorf("%q: %q has more than %d columns", args, line, columns)
				}
			}
		}
	}
}
