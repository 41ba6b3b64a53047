// Package visible finds characters that a person does not see, or that change how other characters
// are displayed. Its table is the only definition of such characters: everything that shows text of
// servers, callers and identity providers uses it.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// hidden are the characters that are not in a category of [Hidden] but are displayed as nothing or
// as an empty space: the braille pattern without dots, a note head and two hieroglyphs.
var hidden = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}},
	R32: []unicode.Range32{
		{Lo: 0x13441, Hi: 0x13442, Stride: 1}, {Lo: 0x16FE4, Hi: 0x16FE4, Stride: 1},
		{Lo: 0x1D159, Hi: 0x1D159, Stride: 1}, {Lo: 0xE0000, Hi: 0xE0FFF, Stride: 1},
	},
}

// Hidden reports whether a person does not see a character, or whether it changes how others are
// displayed: C0 and C1 controls, which include tabs and line breaks; bidirectional controls, zero
// width characters, soft hyphens, interlinear annotations and tags; separators of lines and
// paragraphs; variation selectors; fillers of Hangul and others that Unicode says to ignore in
// display, assigned or not; private use, surrogates and noncharacters.
func Hidden(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7F
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs,
		unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Noncharacter_Code_Point, hidden)
}

// First returns the first hidden character of a text. Tabs and line breaks are not hidden, nor are
// characters that emoji and some scripts are written with: a joiner between two visible characters
// beyond ASCII, and the selector of a symbol's presentation.
func First(text string) (r rune, found bool) {
	before := rune(0)
	for i, r := range text {
		if isHiddenIn(text[i:], before, r) {
			return r, true
		}
		before = r
	}
	return 0, false
}

// Strip returns a text without the characters that [First] finds.
func Strip(text string) string {
	if _, found := First(text); !found {
		return text
	}
	var b strings.Builder
	before := rune(0)
	for i, r := range text {
		if isHiddenIn(text[i:], before, r) {
			continue
		}
		if r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD") {
			b.WriteByte(text[i])
		} else {
			b.WriteRune(r)
		}
		before = r
	}
	return b.String()
}

// isHiddenIn reports whether r, the first character of rest, is hidden behind the character before.
func isHiddenIn(rest string, before, r rune) bool {
	if !Hidden(r) || r == '\t' || r == '\n' || strings.HasPrefix(rest, "\r\n") {
		return false
	}
	const zeroWidthNonJoiner, zeroWidthJoiner = '\u200C', '\u200D'
	next, _ := utf8.DecodeRuneInString(rest[utf8.RuneLen(r):])
	switch {
	case isSelector(r):
		return !selects(before, next)
	case r == zeroWidthNonJoiner, r == zeroWidthJoiner:
		return before < utf8.RuneSelf || Hidden(before) && !isSelector(before) ||
			next < utf8.RuneSelf || next == utf8.RuneError || Hidden(next)
	}
	return true
}

// isSelector reports whether a character selects the presentation of a symbol, as text or as emoji.
func isSelector(r rune) bool { return r == 0xFE0E || r == 0xFE0F }

// selects reports whether a selector of a presentation has an effect between two characters.
func selects(before, next rune) bool {
	const keycap = 0x20E3
	return unicode.In(before, unicode.So, unicode.Sm, unicode.Sk) || before == '‼' || before == '⁉' || next == keycap
}

// Escape returns a text whose hidden characters are escaped, such as \u{202e}, except the characters
// that keep, if it is not nil, reports. The bytes of invalid UTF-8 are escaped too, such as \xff.
func Escape(text string, keep func(rune) bool) string {
	return escape(text, keep, func(b *strings.Builder, r rune) {
		if r < 0x100 {
			fmt.Fprintf(b, `\x%02x`, r)
			return
		}
		fmt.Fprintf(b, `\u{%x}`, r)
	})
}

// EscapeAll is [Escape] that escapes backslashes too: two texts never have the same result.
func EscapeAll(text string) string {
	return Escape(strings.ReplaceAll(text, `\`, `\\`), nil)
}

// EscapeJSON is [Escape] for valid JSON: the result is equivalent JSON, with the same white space.
func EscapeJSON(text string) string {
	return escape(text, func(r rune) bool { return r < ' ' }, func(b *strings.Builder, r rune) {
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(b, `\u%04x`, unit)
		}
	})
}

func escape(text string, keep func(rune) bool, write func(*strings.Builder, rune)) string {
	if utf8.ValidString(text) && !strings.ContainsFunc(text, Hidden) {
		return text
	}
	var b strings.Builder
	before := rune(0)
	for i, r := range text {
		switch {
		case r == utf8.RuneError && !strings.HasPrefix(text[i:], "\uFFFD"):
			fmt.Fprintf(&b, `\x%02x`, text[i])
		case !Hidden(r), keep != nil && keep(r), isSelector(r) && !isHiddenIn(text[i:], before, r):
			b.WriteRune(r)
		default:
			write(&b, r)
		}
		before = r
	}
	return b.String()
}
