// Package fold compares names as a careless reader does: without the case of letters, and without what
// surrounds them. Some servers read JSON in this way. For them, a member whose name only resembles the
// name that a check was about replaces what was checked.
package fold

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/internal/visible"
)

// Key returns the same text for all names that a careless reader takes for one: names that are equal
// under full case folding of Unicode, when hidden characters, white space and controls around them,
// and all that follows a NUL are left out.
func Key[T string | []byte](name T) string {
	b := make([]byte, 0, len(name))
	for i := range len(name) {
		c := name[i]
		if c <= ' ' || c >= 0x7f {
			return odd(string(name))
		}
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		b = append(b, c)
	}
	return string(b)
}

// odd is Key for a name that may have other characters than those of visible ASCII.
func odd(name string) string {
	name = strings.TrimFunc(strings.Map(seen, name), isIgnored)
	name, _, _ = strings.Cut(name, "\x00")
	name = strings.Map(least, unfolded(strings.TrimFunc(name, isIgnored)))
	return strings.ReplaceAll(name, "i\u0307", "i") // the lower case of U+0130
}

// seen drops hidden characters. ASCII controls within a name are kept: readers do not skip them.
func seen(r rune) rune {
	if r >= utf8.RuneSelf && visible.Hidden(r) {
		return -1
	}
	return r
}

// isIgnored reports whether a character does not count at the ends of a name.
func isIgnored(r rune) bool {
	return r == utf8.RuneError || unicode.IsSpace(r) || unicode.Is(unicode.Cc, r)
}

// least returns the character that stands for all that fold to r: the lower case of an ASCII letter, else
// the least of them. Two letters count as i that fold to nothing: the lower case of the first and the
// upper case of the second are equal to the case of i in some languages and libraries.
func least(r rune) rune {
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
