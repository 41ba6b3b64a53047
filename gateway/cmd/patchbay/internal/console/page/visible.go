package page

import (
	"bytes"

	"github.com/patchbay-mcp/patchbay/visible"
)

// exact contains the marks around text that a page must contain unchanged, because the browser
// sends it back: the value of a field and the text of a textarea. Only templates can contain these
// marks: components escape the characters < and " of data.
var exact = []struct{ begin, end string }{{`value="`, `"`}, {"<textarea", "</textarea>"}}

// showHidden returns a page with each hidden character, such as one that changes the direction of
// text, escaped as \u{202e}.
func showHidden(page []byte) []byte {
	var out bytes.Buffer
	for len(page) > 0 {
		begin, end := len(page), len(page)
		for _, mark := range exact {
			at := bytes.Index(page[:begin], []byte(mark.begin))
			if at < 0 {
				continue
			}
			from := at + len(mark.begin)
			begin, end = at, len(page)
			if length := bytes.Index(page[from:], []byte(mark.end)); length >= 0 {
				end = from + length + len(mark.end)
			}
		}
		out.WriteString(visible.Escape(string(page[:begin]), isSpace))
		out.Write(page[begin:end])
		page = page[end:]
	}
	return out.Bytes()
}

// Escape returns a text with hidden characters escaped, for a response that no template writes.
func Escape(text string) string { return string(showHidden([]byte(text))) }

// isSpace reports whether a control character is white space of HTML.
func isSpace(r rune) bool { return r == '\n' || r == '\t' || r == '\r' }
