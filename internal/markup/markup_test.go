package markup_test

import (
	"html"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/internal/markup"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, (*testing.M).Run)) }

func TestTextIsEscaped(t *testing.T) {
	for text, want := range map[string]markup.HTML{
		"plain é 日本":          "plain é 日本",
		`"><script>'&amp;`:    "&#34;&gt;&lt;script&gt;&#39;&amp;amp;",
		"bad \xff\xfe\x00 ok": "bad \uFFFD\uFFFD ok",
		"":                    "",
	} {
		if got := markup.Text(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

func FuzzText(f *testing.F) {
	f.Add("\"'<>&\xff\x00")
	f.Fuzz(func(t *testing.T, text string) {
		got := string(markup.Text(text))
		if strings.ContainsAny(got, "\"'<>\x00") || !utf8.ValidString(got) {
			t.Errorf("%q: got %q, want valid text without markup", text, got)
		}
		if !strings.Contains(text, "\x00") && utf8.ValidString(text) && html.UnescapeString(got) != text {
			t.Errorf("%q: a browser reads %q", text, html.UnescapeString(got))
		}
	})
}
