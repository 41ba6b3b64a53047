// Package markup builds small HTML pages from literals and escaped text.
package markup

import (
	"html"
	"strings"
)

// HTML is HTML markup. A literal of a program is markup; any other string must pass through [Text].
// The compiler rejects the concatenation of HTML and a string variable, and a test of the
// repository rejects the conversion of a variable.
type HTML string

// Text returns the HTML of a text, for the content of an element or the value of an attribute in
// double quotes. Bytes that are not UTF-8 and NUL become U+FFFD, as a browser shows them.
func Text(text string) HTML {
	text = strings.ToValidUTF8(text, "\uFFFD")
	return HTML(html.EscapeString(strings.ReplaceAll(text, "\x00", "\uFFFD")))
}
