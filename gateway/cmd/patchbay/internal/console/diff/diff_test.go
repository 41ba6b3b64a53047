package diff_test

import (
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/diff"
)

func TestLines(t *testing.T) {
	for _, test := range []struct{ old, now, want string }{
		{"a b c", "a b c", " a  b  c"},
		{"a b c", "a x c", " a -b +x  c"},
		{"", "a", "+a"},
		{"a", "", "-a"},
		{"a b c d", "b d e", "-a  b -c  d +e"},
	} {
		var got []string
		for _, l := range diff.Lines(strings.Fields(test.old), strings.Fields(test.now)) {
			got = append(got, l.Mark+l.Text)
		}
		if strings.Join(got, " ") != test.want {
			t.Errorf("%s to %s: got %q, want %q", test.old, test.now, strings.Join(got, " "), test.want)
		}
	}
}
