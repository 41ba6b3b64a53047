package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// clean escapes characters of a server's text that would act on a terminal, hide text or change its
// direction. Line breaks and tabs stay.
func clean(text string) string {
	return escape(text, func(r rune) bool { return r == '\n' || r == '\t' })
}

// cleanLine is clean for text on one line: white space becomes single spaces.
func cleanLine(text string) string {
	return escape(strings.Join(strings.Fields(text), " "), func(rune) bool { return false })
}

// cleanJSON is clean for JSON text: the result is equivalent JSON.
func cleanJSON(text string) string {
	if !strings.ContainsFunc(text, isUnsafe) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		switch {
		case !isUnsafe(r) || r < ' ': // white space between tokens; in strings it is escaped already
			b.WriteRune(r)
		default:
			for _, unit := range utf16.AppendRune(nil, r) {
				fmt.Fprintf(&b, `\u%04x`, unit)
			}
		}
	}
	return b.String()
}

func escape(text string, keep func(r rune) bool) string {
	bad := func(r rune) bool { return isUnsafe(r) && !keep(r) }
	if utf8.ValidString(text) && !strings.ContainsFunc(text, bad) {
		return text
	}
	var b strings.Builder
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !bad(r):
			b.WriteRune(r)
		case r < 0x100:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return b.String()
}

// isUnsafe reports whether a character is invisible or acts on a terminal, such as a control or a
// bidirectional mark. It includes joiners, so that some emoji and scripts are shown as codes.
func isUnsafe(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7F
	}
	const blank = '\u2800' // a braille pattern without dots
	return r == blank || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Co, unicode.Cs, unicode.Zl, unicode.Zp,
		unicode.Other_Default_Ignorable_Code_Point) || unicode.Is(unicode.Variation_Selector, r) && r > 0xFE0F
}

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
