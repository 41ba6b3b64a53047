package mcphttp

import (
	"encoding/base64"
	"errors"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
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

// encodeHeaderValue encodes s, which must be valid UTF-8.
func encodeHeaderValue(s string) string {
	if isPlainValue(s) && !(strings.HasPrefix(s, encodedPrefix) && strings.HasSuffix(s, encodedSuffix)) {
		return s
	}
	return encodedPrefix + base64.StdEncoding.EncodeToString([]byte(s)) + encodedSuffix
}

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

// maxNumber is the length from which a number is not compared, since parsing it would be slow.
const maxNumber = 1000

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

// parseInteger parses a JSON number that is a safe integer, in any notation.
func parseInteger(s string) (n int64, ok bool) {
	if len(s) > maxNumber || jsonscan.Kind([]byte(s)) != '0' || jsonscan.Valid([]byte(s), jsonscan.Limits{}) != nil {
		return 0, false
	}
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		if exponent, err := strconv.Atoi(s[i+1:]); err != nil || exponent > maxNumber || exponent < -maxNumber {
			return 0, false
		}
	}
	rational, ok := new(big.Rat).SetString(s)
	if !ok || !rational.IsInt() || rational.Num().CmpAbs(big.NewInt(maxSafeInteger)) > 0 {
		return 0, false
	}
	return rational.Num().Int64(), true
}
