package term

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/visible"
)

func TestStructuredContentIsLaidOut(t *testing.T) {
	for _, test := range []struct{ value, want string }{
		{`{"name": "Ann", "age": 42, "ok": true, "none": null, "empty": ""}`,
			"name:  Ann\nage:   42\nok:    true\nnone:  null\nempty: \"\""},
		{`{"text": "a\nb", "x": 1}`, "text:\n  a\n  b\nx:    1"},
		{`{"deep": {"a": [1]}, "list": [1, 2], "x": 1}`,
			"deep:\n  {\n    \"a\": [\n      1\n    ]\n  }\nlist:\n  [\n    1,\n    2\n  ]\nx: 1"},
		{`[{"city": "東京", "n": 5}, {"city": "Rome", "n": 1000}, {"n": null, "more": "x\ty"}]`,
			"city     n  more\n東京     5\nRome  1000\n      null  \"x\\ty\""},
		{`{"rows": [{"a": 1, "b": "x"}], "next": "c"}`, "rows:\n  a  b\n  1  x\nnext: c"},
		{`[{"long": "` + strings.Repeat("word ", 8) + `w", "b": 2}, {"b": 3}]`,
			"long: word word word word word word word\n  word w\nb:    2\n\nb: 3"},
		{`[{"a": [1]}]`, "[\n  {\n    \"a\": [\n      1\n    ]\n  }\n]"},
		{`[]`, "[]"}, {`{}`, "{}"}, {`5`, "5"}, {`[{}]`, "{}"}, {`{"\u001b[2J": "\u202ex"}`, `\x1b[2J: \u{202e}x`},
		{`[{"a\nb": "\u001b"}]`, "\"a\\nb\"\n\\x1b"},
	} {
		if got := LaidOut([]byte(test.value), 40); got != test.want {
			t.Errorf("%s:\ngot\n%s\nwant\n%s", test.value, got, test.want)
		}
	}
}

func FuzzLaidOut(f *testing.F) {
	f.Add(`{"a": [{"b": "\u001b", "c": 1}], "日": "x\ny"}`, 30)
	f.Fuzz(func(t *testing.T, value string, width int) {
		if rawjson.Valid([]byte(value)) != nil {
			t.Skip()
		}
		text := LaidOut([]byte(value), width)
		if !utf8.ValidString(text) ||
			strings.ContainsFunc(text, func(r rune) bool { return visible.Hidden(r) && r != '\n' && r != '\t' }) {
			t.Errorf("%s became %q, want valid UTF-8 without control characters", value, text)
		}
	})
}
