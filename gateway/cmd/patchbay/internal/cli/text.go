package cli

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/visible"
)

// clean escapes characters of a server's text that would act on a terminal, hide text or change its
// direction. Line breaks and tabs stay.
func clean(text string) string {
	return visible.Escape(text, func(r rune) bool { return r == '\n' || r == '\t' })
}

// cleanLine is clean for text on one line: white space becomes single spaces.
func cleanLine(text string) string {
	return visible.Escape(strings.Join(strings.Fields(text), " "), nil)
}

// cleanJSON is clean for JSON text: the result is equivalent JSON.
func cleanJSON(text string) string { return visible.EscapeJSON(text) }

func formatBytes(n int) string {
	const kilo = 1000
	switch {
	case n < kilo:
		return fmt.Sprintf("%d B", n)
	case n < kilo*kilo:
		return fmt.Sprintf("%.1f kB", float64(n)/kilo)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/kilo/kilo)
}

// indent adds a prefix to each line.
func indent(text, prefix string) string {
	return prefix + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+prefix)
}

// shorten cuts text to a number of characters.
func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	runes := []rune(text)
	return string(runes[:most-1]) + "…"
}
