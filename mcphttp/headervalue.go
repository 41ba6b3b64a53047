package mcphttp

import (
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The delimiters of a Base64 header value, for text that cannot be a header value itself. They are
// exact: any other spelling is plain text.
//
// Spec: basic/transports/streamable-http#value-encoding (2026-07-28)
const (
	encodedPrefix = "=?base64?"
	encodedSuffix = "?="
)

var (
	errHeaderCharacters = errors.New("invalid characters")
	errHeaderEncoding   = errors.New("invalid Base64 encoding")
)

// encodeHeaderValue returns the header value of s, which must be valid UTF-8.
func encodeHeaderValue(s string) string {
	if isPlainValue(s) && !(strings.HasPrefix(s, encodedPrefix) && strings.HasSuffix(s, encodedSuffix)) {
		return s
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(s)) + encodedSuffix
}

// decodeHeaderValue returns the text of a header value.
func decodeHeaderValue(v string) (string, error) {
	if !isPlainValue(v) {
		return "", errHeaderCharacters
	}
	encoded, ok := strings.CutPrefix(v, encodedPrefix)
	if !ok {
		return v, nil
	}
	if encoded, ok = strings.CutSuffix(encoded, encodedSuffix); !ok {
		return v, nil
	}
	text, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || !utf8.Valid(text) {
		return "", errHeaderEncoding
	}
	return string(text), nil
}

// isPlainValue reports whether s can be a header value as it is: visible ASCII, with spaces and
// tabs inside only.
func isPlainValue(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c > ' ' && c < 0x7f:
		case (c == ' ' || c == '\t') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return true
}

// hasControl reports whether s has a control character, which no header value may have.
//
// Spec: RFC 9110, section 5.5
func hasControl(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// maxSafeInteger is the largest integer that every JSON reader represents exactly. Mirrored
// integers must not exceed it.
const maxSafeInteger = 1<<53 - 1

// maxExponent is more than any number in a body of limited size needs. It prevents overflow.
const maxExponent = 1 << 30

// equalIntegers reports whether two JSON numbers are the same integer in any notation: 42, 42.0 and
// 4.2e1 are equal. Fractions and integers beyond maxSafeInteger equal nothing.
func equalIntegers(a, b string) bool {
	m, ok := parseInteger(a)
	if !ok {
		return false
	}
	n, ok := parseInteger(b)
	return ok && m == n
}

// parseInteger parses a JSON number that is a safe integer. It works on the digits, since a float
// would round.
func parseInteger(s string) (n int64, ok bool) {
	rest, negative := strings.CutPrefix(s, "-")
	mantissa, exponent := rest, 0
	if i := strings.IndexAny(rest, "eE"); i >= 0 {
		if mantissa, exponent, ok = cutExponent(rest, i); !ok {
			return 0, false
		}
	}
	whole, fraction, hasPoint := strings.Cut(mantissa, ".")
	if !isDigits(whole) || len(whole) > 1 && whole[0] == '0' || hasPoint && !isDigits(fraction) {
		return 0, false
	}
	digits := strings.TrimLeft(whole+fraction, "0")
	exponent -= len(fraction)
	trimmed := strings.TrimRight(digits, "0")
	exponent += len(digits) - len(trimmed)
	const most = 16 // digits of maxSafeInteger
	switch {
	case trimmed == "":
		return 0, true
	case exponent < 0 || len(trimmed)+exponent > most:
		return 0, false
	}
	n, err := strconv.ParseInt(trimmed+strings.Repeat("0", exponent), 10, 64)
	if err != nil || n > maxSafeInteger {
		return 0, false
	}
	if negative {
		n = -n
	}
	return n, true
}

// cutExponent splits a number at its exponent mark. It refuses exponents that no safe integer
// needs, before they cost anything.
func cutExponent(s string, at int) (mantissa string, exponent int, ok bool) {
	text := s[at+1:]
	if text == "" || !isDigits(strings.TrimLeft(text[:1], "+-")+text[1:]) {
		return "", 0, false
	}
	exponent, err := strconv.Atoi(text)
	if err != nil || exponent > maxExponent || exponent < -maxExponent {
		return "", 0, false
	}
	return s[:at], exponent, true
}

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
