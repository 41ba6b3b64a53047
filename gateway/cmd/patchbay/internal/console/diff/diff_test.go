package diff_test

import (
	"fmt"
	"slices"
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

// A difference after the last line that is compared must not look like equal texts.
func TestLinesSayThatTheyAreCut(t *testing.T) {
	same := slices.Repeat([]string{"x"}, diff.MaxLines)
	if !diff.IsEqual(diff.Lines(same, same)) {
		t.Error("texts of the greatest length: got a difference")
	}
	for _, now := range [][]string{append(slices.Clone(same), "evil"), append(slices.Clone(same), "x", "y")} {
		all := diff.Lines(same, now)
		if last := all[len(all)-1]; diff.IsEqual(all) || last.Kind != diff.Cut ||
			!strings.Contains(last.Text, "only the first 2000 lines") {
			t.Errorf("%d lines: got the last line %v, want a line that tells of the cut", len(now), last)
		}
	}
}

// A comparison that would need too many steps lists each line once.
func TestCompleteTakesLimitedSteps(t *testing.T) {
	var old, now []string
	for i := range 1000 {
		old, now = append(old, fmt.Sprint("a", i)), append(now, fmt.Sprint("b", i))
	}
	old[0], now[0] = "begin", "begin"
	old[999], now[999] = "end", "end"
	steps := 998*998 - 1
	all, isExact := diff.Complete(old, now, &steps)
	if isExact || steps != 998*998-1 || len(all) != 1998 || all[1].Text != "a1" || all[999].Text != "b1" ||
		all[0].Kind != diff.Same || all[1997].Kind != diff.Same {
		t.Errorf("got %d lines, exact %t, %d steps left", len(all), isExact, steps)
	}
	steps++
	if _, isExact = diff.Complete(old, now, &steps); !isExact || steps != 0 {
		t.Errorf("with enough steps: exact %t, %d steps left", isExact, steps)
	}
	if _, isExact = diff.Complete(old, now, &steps); isExact {
		t.Error("a second comparison used the same steps")
	}
}
