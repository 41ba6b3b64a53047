// Package fold finds member names that a lenient JSON reader confuses. Some servers ignore case,
// and white space or invisible characters around a name. Such a server could use the member
// "ARGUMENTS", whereas the host has checked the member "arguments".
package fold

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/visible"
)

// Key returns the same text for all names that a lenient reader confuses with each other. Such
// names are equal under full Unicode case folding after the removal of hidden characters, of white
// space and controls around the name, and of everything after a NUL.
func Key[T string | []byte](name T) string {
	b := make([]byte, 0, len(name))
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f {
			return unicodeKey(string(name))
		}
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		b = append(b, c)
	}
	return string(b)
}

// unicodeKey is Key for a name that may contain characters other than visible ASCII.
func unicodeKey(name string) string {
	name = strings.TrimFunc(strings.Map(dropHidden, name), isIgnored)
	name, _, _ = strings.Cut(name, "\x00")
	name = strings.Map(foldRune, expand(strings.TrimFunc(name, isIgnored)))
	return strings.ReplaceAll(name, "i\u0307", "i") // the lower case of U+0130
}

// dropHidden returns -1 for a hidden character. It keeps ASCII controls, because readers do not
// skip them within a name.
func dropHidden(r rune) rune {
	if r >= utf8.RuneSelf && visible.Hidden(r) {
		return -1
	}
	return r
}

// isIgnored reports whether a lenient reader ignores a character at the ends of a name.
func isIgnored(r rune) bool {
	return r == utf8.RuneError || unicode.IsSpace(r) || unicode.Is(unicode.Cc, r)
}

// foldRune returns the representative of all characters that are equal to r under simple case
// folding: a lower case letter for ASCII letters, else the character with the lowest code point. It
// maps İ and ı to i, because the lower case of İ and the upper case of ı are those of i in some
// languages and libraries.
func foldRune(r rune) rune {
	if r == 'İ' || r == 'ı' {
		return 'i'
	}
	found := r
	for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
		found = min(found, next)
	}
	if 'A' <= found && found <= 'Z' {
		found |= 0x20
	}
	return found
}
