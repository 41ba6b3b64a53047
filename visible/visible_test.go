package visible_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/visible"
)

func TestHiddenCharacters(t *testing.T) {
	for name, chars := range map[string]string{
		"C0 and C1":                    "\x00\x1b\x7f\u0080\u009b",
		"bidirectional":                "\u061c\u200e\u200f\u202a\u202e\u2066\u2069",
		"zero width":                   "\u200b\u200c\u200d\u2060\ufeff\u180e",
		"tags":                         "\U000e0001\U000e0041\U000e007f",
		"variation selectors":          "\ufe00\ufe0f\U000e0100\U000e01ef\u180b",
		"fillers of Hangul":            "\u115f\u1160\u3164\uffa0",
		"soft hyphen":                  "\u00ad",
		"separators":                   "\u2028\u2029",
		"interlinear annotations":      "\ufff9\ufffa\ufffb",
		"invisible operators":          "\u2061\u2062\u2063\u2064",
		"private use":                  "\ue000\uf8ff\U000f0000\U0010fffd",
		"ignored in display":           "\u034f\u17b4\u17b5\u206a",
		"unassigned, to be ignored":    "\u2065\ufff0\U000e0080\U000e0fff",
		"noncharacters":                "\ufdd0\uffff\U0001ffff",
		"displayed as an empty space":  "\u2800\U0001d159\U00013441\U00016fe4",
		"shorthand and music controls": "\U0001bca0\U0001d173",
	} {
		for _, r := range chars {
			if !visible.Hidden(r) {
				t.Errorf("%s: U+%04X is not hidden", name, r)
			}
			text := "a" + string(r) + "b"
			if got := visible.Strip(text); got != "ab" {
				t.Errorf("%s: Strip(%+q) = %+q, want ab", name, text, got)
			}
			if got := visible.Escape(text, nil); len(got) < 6 || strings.ContainsFunc(got, visible.Hidden) {
				t.Errorf("%s: Escape(%+q) = %+q, want the character escaped", name, text, got)
			}
		}
	}
	for _, r := range " ~é\u00a0אغ漢é\u0301\u3000\ufffc\ufffd\U0001f600" {
		if visible.Hidden(r) {
			t.Errorf("U+%04X is hidden", r)
		}
	}
}

func TestEmojiAndScriptsKeepTheirJoiners(t *testing.T) {
	for _, text := range []string{"❤\ufe0f", "👩\u200d💻", "🏳\ufe0f\u200d🌈", "1\ufe0f\u20e3", "می\u200cخواهم", "a\tb\r\nc"} {
		if got := visible.Strip(text); got != text {
			t.Errorf("Strip(%+q) = %+q, want the same", text, got)
		}
	}
	for text, want := range map[string]string{
		"a\u200db": "ab", "a\rb": "ab", "é\u200d\u200dé": "é\u200dé", "\u200dé": "é", "é\u200d": "é", "a\ufe0f": "a",
		"❤\ufe0f\ufe0f": "❤\ufe0f", "a\xff\u202eb": "a\xffb",
	} {
		if got := visible.Strip(text); got != want {
			t.Errorf("Strip(%+q) = %+q, want %+q", text, got, want)
		}
	}
}

func TestEscape(t *testing.T) {
	for text, want := range map[string]string{
		"plain\\": `plain\`, "a\x1b\xffb": `a\x1b\xffb`, "é\u200dé": `é\u{200d}é`, "\U000e0041": `\u{e0041}`,
		"❤\ufe0f": "❤\ufe0f", "a\ufe0f": `a\u{fe0f}`,
	} {
		if got := visible.Escape(text, nil); got != want {
			t.Errorf("Escape(%+q) = %+q, want %+q", text, got, want)
		}
	}
	if got, want := visible.EscapeAll(`\u{202e}`+"\u202e"), `\\u{202e}\u{202e}`; got != want {
		t.Errorf("EscapeAll: got %q, want %q", got, want)
	}
	if got, want := visible.EscapeJSON("{\n\"\u202e\":\"\U000e0041\"}"), "{\n\"\\u202e\":\"\\udb40\\udc41\"}"; got != want {
		t.Errorf("EscapeJSON: got %q, want %q", got, want)
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("a\u202eb👩\u200d💻\xff")
	f.Fuzz(func(t *testing.T, text string) {
		stripped := visible.Strip(text)
		if r, found := visible.First(stripped); found {
			t.Errorf("Strip(%+q) = %+q contains U+%04X", text, stripped, r)
		}
		if escaped := visible.Escape(text, nil); !utf8.ValidString(escaped) {
			t.Errorf("Escape(%+q) = %+q is not valid UTF-8", text, escaped)
		}
		encoded, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if json.Unmarshal(encoded, &before) != nil || json.Unmarshal([]byte(visible.EscapeJSON(string(encoded))), &after) != nil ||
			before != after {
			t.Errorf("EscapeJSON(%s) = %s differs", encoded, visible.EscapeJSON(string(encoded)))
		}
	})
}
