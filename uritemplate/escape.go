package uritemplate

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Escape percent-encodes every character of s except the unreserved characters of RFC 3986.
func Escape(s string) string {
	return escapeUnless(s, func(rest string) bool { return isUnreserved(rest[0]) })
}

// EscapePath is like [Escape] but keeps the slashes of a path.
func EscapePath(path string) string {
	return escapeUnless(path, func(rest string) bool { return rest[0] == '/' || isUnreserved(rest[0]) })
}

// escapeReserved percent-encodes the characters of s that a URI cannot contain.
func escapeReserved(s string) string { return escapeUnless(s, allowedInURI) }

// escapeUnless percent-encodes the bytes of s for which allowed, called with the rest of s, returns
// false.
func escapeUnless(s string, allowed func(rest string) bool) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; allowed(s[i:]) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// unescape decodes percent-encoding. It reports false if s is malformed or does not decode to
// UTF-8.
func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if !isTriplet(s[i:]) {
				return "", false
			}
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
		}
		b = append(b, c)
	}
	return string(b), utf8.Valid(b)
}

func isUnreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

func isReserved(c byte) bool { return strings.IndexByte(":/?#[]@!$&'()*+,;=", c) >= 0 }

// allowedInURI reports whether a URI may contain the first byte of rest unencoded.
func allowedInURI(rest string) bool {
	return isUnreserved(rest[0]) || isReserved(rest[0]) || isTriplet(rest)
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

// isTriplet reports whether s begins with a percent-encoded byte.
func isTriplet(s string) bool { return len(s) >= 3 && s[0] == '%' && isHex(s[1]) && isHex(s[2]) }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// CheckURI checks a URI by RFC 3986: it begins with a scheme, contains no character that must be
// percent-encoded, and is at most [MaxLength] bytes long.
//
// Spec: server/resources, Security Considerations.
func CheckURI(uri string) error {
	if len(uri) > MaxLength {
		return fmt.Errorf("the URI is %d bytes long, want at most %d", len(uri), MaxLength)
	}
	scheme, _, found := strings.Cut(uri, ":")
	if !found || !isScheme(scheme) {
		return errors.New(`the URI has no scheme such as "file:"`)
	}
	for i := range len(uri) {
		if !allowedInURI(uri[i:]) {
			return fmt.Errorf("the URI has %q at byte %d, which must be percent-encoded", uri[i], i)
		}
	}
	return nil
}

func isScheme(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || ('0' > c || c > '9') && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}
