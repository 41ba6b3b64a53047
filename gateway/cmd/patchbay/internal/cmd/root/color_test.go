package root

import (
	"regexp"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
)

// ownStyles are the only escape sequences of the program in text that it colours.
var ownStyles = regexp.MustCompile(`\x1b\[(1|31|33|0)m`)

func TestColorsAreForTerminals(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	for name, test := range map[string]struct {
		noColor, term string
		terminal      bool
		flag          string
		want          bool
	}{
		"terminal":           {"", "xterm", true, "auto", true},
		"no TERM":            {"", "", true, "auto", true},
		"NO_COLOR":           {"1", "xterm", true, "auto", false},
		"TERM=dumb":          {"", "dumb", true, "auto", false},
		"never":              {"", "xterm", true, "never", false},
		"always":             {"1", "dumb", true, "always", true},
		"pipe":               {"", "xterm", false, "auto", false},
		"always, in a pipe":  {"", "xterm", false, "always", true},
		"always with --json": {"", "xterm", false, "always --json", false},
	} {
		t.Setenv("NO_COLOR", test.noColor)
		t.Setenv("TERM", test.term)
		args := append([]string{"tools", url, "add", "--color"}, strings.Fields(test.flag)...)
		o := patchbay(t, "", args...)
		if test.terminal {
			o = atTerminal(t, "", nil, args...)
		}
		if got := strings.Contains(o.stdout, "\x1b[1m"); o.status != exit.OK || got != test.want {
			t.Errorf("%s: exit code %d, colours: %t, want %t: %q", name, o.status, got, test.want, o.stdout)
		}
	}
	t.Setenv("NO_COLOR", "")
	t.Setenv("TERM", "xterm")
	o := atTerminal(t, "", nil, "call", url, "add", "a=x")
	if !strings.Contains(o.stderr, "\x1b[31mpatchbay:\x1b[0m a: got") {
		t.Errorf("an error: got %q, want it in colour", o.stderr)
	}
	if o := patchbay(t, "", "tools", url, "--color", "red"); o.status != exit.Usage ||
		!strings.Contains(o.stderr, "want one of auto, always, never") {
		t.Errorf("--color red: exit code %d, %s", o.status, o.stderr)
	}
}

// The text of a server has no colours, whatever is set.
func TestServerTextHasNoColors(t *testing.T) {
	url := listenHTTP(t, newOddServer())
	t.Setenv("NO_COLOR", "")
	own := strings.NewReplacer("\r\x1b[K", "", "\rconnecting to "+url+" …\x1b[K", "")
	for _, args := range [][]string{{"tools", url}, {"tools", url, "echo"}, {"call", url, "fail"},
		{"call", url, "refuse"}, {"call", url, "say"}, {"resources", url}} {
		o := atTerminal(t, "", nil, append(args, "--color", "always")...)
		for _, text := range []string{o.stdout, own.Replace(o.stderr)} {
			if strings.Contains(text, "\x1b[31malert") { // of hostile
				t.Errorf("%q: a colour of the server: %q", args, text)
			}
			text = ownStyles.ReplaceAllString(text, "")
			if i := strings.IndexByte(text, 0x1b); i >= 0 {
				t.Errorf("%q: an escape sequence of the server: %q", args, text[i:min(len(text), i+20)])
			}
		}
	}
}
