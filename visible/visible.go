// Package visible finds characters that a person does not see, or that change how other characters
// are displayed. All code that shows text of servers, callers or identity providers must use its
// table, which is the only definition of such characters.
package visible

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// hidden contains characters outside the categories of [Hidden] that are displayed as nothing or as
// an empty space: the blank braille pattern, a note head, two hieroglyphs, a Khitan filler, and
// tags.
var hidden = &unicode.RangeTable{
	R16: []unicode.Range16{{Lo: 0x2800, Hi: 0x2800, Stride: 1}},
	R32: []unicode.Range32{
		{Lo: 0x13441, Hi: 0x13442, Stride: 1}, {Lo: 0x16FE4, Hi: 0x16FE4, Stride: 1},
		{Lo: 0x1D159, Hi: 0x1D159, Stride: 1}, {Lo: 0xE0000, Hi: 0xE0FFF, Stride: 1},
	},
}

// Hidden reports whether a character is invisible or changes how other characters are displayed.
// Hidden characters are
//
//   - C0 and C1 controls, which include tabs and line breaks;
//   - bidirectional controls, zero-width characters, soft hyphens, annotations and tags;
//   - line and paragraph separators, and variation selectors;
//   - Hangul fillers and other code points that Unicode defines as default ignorable;
//   - private use characters, surrogates and noncharacters.
func Hidden(r rune) bool {
	if r < utf8.RuneSelf {
		return r < ' ' || r == 0x7F
	}
	return unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Co, unicode.Cs,
		unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point,
		unicode.Noncharacter_Code_Point, hidden)
}

// First returns the first hidden character of a text. In a text, tabs and line breaks are not
// hidden, and neither are characters that emoji and some scripts require: a joiner between two
// visible characters outside ASCII, and a presentation selector after a symbol.
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

// isHiddenIn reports whether r, the first character of rest, is hidden when it follows the
// character before.
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

// selects reports whether a presentation selector between two characters has an effect.
func selects(before, next rune) bool {
	const keycap = 0x20E3
	return unicode.In(before, unicode.So, unicode.Sm, unicode.Sk) || before == '‼' || before == '⁉' || next == keycap
}

// Escape returns a text with each hidden character escaped, such as \u{202e}, unless keep returns
// true for it. A nil keep returns false for all characters. Bytes of invalid UTF-8 are escaped as
// \xff.
func Escape(text string, keep func(rune) bool) string {
	return escape(text, keep, func(b *strings.Builder, r rune) {
		if r < 0x100 {
			fmt.Fprintf(b, `\x%02x`, r)
			return
		}
		fmt.Fprintf(b, `\u{%x}`, r)
	})
}

// EscapeAll is like [Escape], but escapes backslashes too, so that different texts never have the
// same result.
func EscapeAll(text string) string {
	return Escape(strings.ReplaceAll(text, `\`, `\\`), nil)
}

// EscapeJSON is like [Escape], but for valid JSON: the result is equivalent JSON with the same
// white space.
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
