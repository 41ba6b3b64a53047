package pin_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/host/pin"
)

// FuzzDiff shows definitions: no line can change the terminal, and equal definitions do not differ.
func FuzzDiff(f *testing.F) {
	f.Add(`{"name":"t","description":"a\u202eb\nc"}`, `{"name":"t","description":"a\ud800"}`)
	f.Add(`{"a/b":[1,{"\u0000":""}]}`, "\x1b[31m")
	f.Fuzz(func(t *testing.T, old, now string) {
		definition := func(text string) []pin.Definition { return []pin.Definition{{JSON: json.RawMessage(text)}} }
		p := &pin.Pin{Kind: pin.Tool, Approved: definition(old), Pending: definition(now)}
		for _, line := range p.Diff() {
			if !utf8.ValidString(line) || strings.ContainsFunc(line, func(r rune) bool {
				return r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Bidi_Control)
			}) {
				t.Fatalf("unsafe line %q", line)
			}
		}
		p.Pending = definition(old)
		for _, line := range p.Diff() {
			if !strings.HasPrefix(line, "! ") {
				t.Fatalf("a definition differs from itself: %q", line)
			}
		}
	})
}
