// Package fold compares names as a careless reader does: without the case of letters, and without what
// surrounds them. Some servers read JSON in this way. For them, a member whose name only resembles the
// name that a check was about replaces what was checked.
package fold

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Key returns the same text for all names that a careless reader takes for one: names that are equal
// under simple case folding of Unicode, when white space, control and format characters around them
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
	name = strings.TrimFunc(name, isIgnored)
	name, _, _ = strings.Cut(name, "\x00")
	return strings.Map(least, strings.TrimFunc(name, isIgnored))
}

func isIgnored(r rune) bool {
	return r == utf8.RuneError || unicode.IsSpace(r) || unicode.In(r, unicode.Cc, unicode.Cf)
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
