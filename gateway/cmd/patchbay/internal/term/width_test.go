package term

import (
	"strings"
	"testing"
)

func TestWidthOfText(t *testing.T) {
	for text, want := range map[string]int{"": 0, "abc": 3, "é": 1, "e\u0301": 1, "日本": 4, "한글": 4, "ｱ": 1, "Ａ": 2,
		"🎉": 2, "❤": 1, "→…": 2, "\u1112\u1161\u11ab": 2, "𠀀": 2} {
		if got := TextWidth(text); got != want {
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
		if got := Wrap(test.text, 20, "  "); got != test.want {
			t.Errorf("%q: got %q, want %q", test.text, got, test.want)
		}
	}
	if text := strings.Repeat("word ", 30); Wrap(text, 0, "") != text {
		t.Error("text is wrapped although the width is unknown")
	}
}

func FuzzWrap(f *testing.F) {
	f.Add("    one 日本語 two", 20)
	f.Add(strings.Repeat(" ", 99)+"x y", 21)
	f.Fuzz(func(t *testing.T, text string, width int) {
		width = minWrapped + width&63
		got := Wrap(text, width, "  ")
		if squeeze := strings.NewReplacer(" ", "", "\n", ""); squeeze.Replace(got) != squeeze.Replace(text) {
			t.Errorf("%q became %q", text, got)
		}
		for line := range strings.SplitSeq(got, "\n") {
			if TextWidth(line) > width && (strings.Contains(strings.Trim(line, " "), " ") || strings.ContainsFunc(line, isWide)) {
				t.Errorf("%q: a line of %d columns, want at most %d: %q", text, TextWidth(line), width, line)
			}
		}
	})
}
