package page_test

import (
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/consoletest"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
)

// Hidden characters are visible on pages, and unchanged in the fields that a browser sends back.
func TestHiddenCharactersAreShown(t *testing.T) {
	const evil = "a\u202e\u200b\U000e0041\x1b"
	const shown = `a\u{202e}\u{200b}\u{e0041}\x1b`
	for text, want := range map[string]string{
		"<p>" + evil + "</p>\n":                                "<p>" + shown + "</p>\n",
		`<input value="` + evil + `"><b title="` + evil + `">`: `<input value="` + evil + `"><b title="` + shown + `">`,
		"<textarea name=\"x\">" + evil + "</textarea>" + evil:  "<textarea name=\"x\">" + evil + "</textarea>" + shown,
		`<input value="` + evil:                                `<input value="` + evil,
		"é 日本 ❤️":                                              "é 日本 ❤️",
	} {
		if got := page.ShowHidden(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
}

// The elements of different names have different ids.
func TestElementIDsDiffer(t *testing.T) {
	seen := map[string]string{}
	for _, name := range []string{"a b", "a_20b", "a%20b", "a_b", "a_5Fb", "a_5F20b", "a__20b", "a/b",
		"a_2Fb", "é", "_C3_A9"} {
		id := page.ElementID(name)
		if other, ok := seen[id]; ok || strings.ContainsAny(id, " %/") {
			t.Errorf("the id of %q is %q, also that of %q", name, id, other)
		}
		seen[id] = name
	}
}

// The tests of the screens check that no page contains a script or style of its own, which data could become part of.
func TestInlineCodeIsFound(t *testing.T) {
	for text, want := range map[string]string{
		`<p title="style=x onload=y">onload=z</p><script type="module" src="/assets/d/keys.js"></script>`: "",
		`<p class="a" Style="color: red">`:                     `<p class="a" Style="color: red">`,
		`<p><img src="x" onerror="alert(1)">`:                  `<img src="x" onerror="alert(1)">`,
		`<iframe srcdoc="x">`:                                  `<iframe srcdoc="x">`,
		`<style>p { color: red }</style>`:                      `<style>`,
		`<script>alert(1)</script>`:                            `<script>`,
		`<script type="module" src="/assets/x">1</script>`:     `<script type="module" src="/assets/x">`,
		`<script type="module" src="https://a/x.js"></script>`: `<script type="module" src="https://a/x.js">`,
	} {
		if got := consoletest.Inline(text); got != want {
			t.Errorf("%s: got %q, want %q", text, got, want)
		}
	}
}
