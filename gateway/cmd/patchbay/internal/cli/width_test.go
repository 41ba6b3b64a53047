package cli

import (
	"strings"
	"testing"
)

func TestWidthOfText(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "é": 1, "e\u0301": 1, "日本": 4, "한글": 4, "ｱ": 1, "Ａ": 2,
		"🎉": 2, "❤": 1, "→…": 2, "\u1112\u1161\u11ab": 2, "𠀀": 2} {
		if got := textWidth(text); got != want {
			t.Errorf("%q: got %d columns, want %d", text, got, want)
		}
	}
}

func TestTextIsWrapped(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"short", "short"},
		{"ab one two three four five", "ab one two three\n  four five"},
		{"  x: one two three four", "  x: one two three\n    four"},
		{"one two three four five six", "one two three four\n  five six"},
		{"    one two three four\n", "    one two three\n      four\n"},
		{"  see " + strings.Repeat("x", 40) + " there", "  see\n    " + strings.Repeat("x", 40) + "\n    there"},
		{"日本語日本語日本語日本語", "日本語日本語日本語日\n  本語"},
		{"a\n\nb", "a\n\nb"},
	} {
		if got := wrap(test.text, 20, "  "); got != test.want {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
	if text := strings.Repeat("word ", 30); wrap(text, 0, "") != text {
		t.Error("text is wrapped although the width is unknown")
	}
}

func FuzzWrap(f *testing.F) {
	f.Add("    one 日本語 two", 20)
	f.Add(strings.Repeat(" ", 99)+"x y", 21)
	f.Fuzz(func(t *testing.T, text string, width int) {
		width = minWrapped + width&63
		got := wrap(text, width, "  ")
		if squeeze := strings.NewReplacer(" ", "", "\n", ""); squeeze.Replace(got) != squeeze.Replace(text) {
			t.Errorf("%q became %q", text, got)
		}
		for line := range strings.SplitSeq(got, "\n") {
			if textWidth(line) > width && (strings.Contains(strings.Trim(line, " "), " ") || strings.ContainsFunc(line, isWide)) {
				t.Errorf("%q: a line of %d columns, want at most %d: %q", text, textWidth(line), width, line)
			}
		}
	})
}

// Descriptions and trees fit the terminal. In a pipe they are not wrapped.
func TestListsAreWrappedOnATerminal(t *testing.T) {
	const columns = 40
	words := func(text string) string { return strings.Join(strings.Fields(text), " ") }
	for _, url := range []string{newDeepServer(t), listen(t, newServer("demo"))} {
		for _, args := range [][]string{{"tools", url}, {"prompts", url}, {"resources", url}, {"tools", url, "book"},
			{"tools", url, "roll_dice"}} {
			o := atTerminal(t, "", func(p *factory) { p.IO.Out.width = func() int { return columns } }, args...)
			pipe := patchbay(t, "", args...)
			if words(o.stdout) != words(pipe.stdout) {
				t.Errorf("%q: got %s, want the words of %s", args, o.stdout, pipe.stdout)
			}
			for line := range strings.Lines(o.stdout) {
				if textWidth(strings.TrimSuffix(line, "\n")) > columns && len(strings.Fields(line)) > 1 {
					t.Errorf("%q: %q has more than %d columns", args, line, columns)
				}
			}
		}
	}
}
