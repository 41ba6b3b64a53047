package term

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/visible"
)

// Clean escapes characters of a server's text that would act on a terminal, hide text or change its
// direction. Line breaks and tabs stay.
func Clean(text string) string {
	return visible.Escape(text, func(r rune) bool { return r == '\n' || r == '\t' })
}

// CleanLine cleans text for a single line: white space becomes single spaces.
func CleanLine(text string) string {
	return visible.Escape(strings.Join(strings.Fields(text), " "), nil)
}

// CleanJSON is clean for JSON text: the result is equivalent JSON.
func CleanJSON(text string) string { return visible.EscapeJSON(text) }

// FormatBytes returns a number of bytes for people.
func FormatBytes(n int) string {
	const kilo = 1000
	switch {
	case n < kilo:
		return fmt.Sprintf("%d B", n)
	case n < kilo*kilo:
		return fmt.Sprintf("%.1f kB", float64(n)/kilo)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/kilo/kilo)
}

// Indent adds a prefix to each line.
func Indent(text, prefix string) string {
	return prefix + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+prefix)
}

// Shorten cuts text to a number of characters.
func Shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	runes := []rune(text)
	return string(runes[:most-1]) + "…"
}
