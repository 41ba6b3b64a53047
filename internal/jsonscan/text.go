package jsonscan

import (
	"bytes"
	"errors"
	"math/bits"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	lowBits  = 0x0101010101010101 // of each of eight bytes
	highBits = 0x8080808080808080 // of each of eight bytes
)

// plain returns the end of the bytes that need no decoding in a string: all but the quote, the
// backslash and control characters. high contains bits of highBits if some of the bytes are not
// ASCII.
func plain[T string | []byte](data T, at int) (end int, high uint64) {
	for ; at+32 <= len(data); at += 32 { // long texts take half the time
		b := data[at : at+32]
		w, x, y, z := word(b[:8]), word(b[8:16]), word(b[16:24]), word(b[24:])
		if stops(w)|stops(x)|stops(y)|stops(z) != 0 {
			break
		}
		high |= w | x | y | z
	}
	for ; at+8 <= len(data); at += 8 {
		x := word(data[at : at+8])
		if stop := stops(x); stop != 0 {
			first := stop & -stop
			return at + bits.TrailingZeros64(first)/8, (high | x&(first-1)) & highBits
		}
		high |= x
	}
	for ; at < len(data); at++ {
		c := data[at]
		if c < ' ' || c == '"' || c == '\\' {
			break
		}
		high |= uint64(c)
	}
	return at, high & highBits
}

// stops returns highBits of bytes of x. The first is that of the first byte that ends a run.
func stops(x uint64) uint64 {
	// Each difference borrows into the high bit of exactly the bytes that end the run. A borrow can
	// affect only later bytes. With bit 1 inverted, the quote follows the control characters
	// directly, in place of the space.
	control := (x ^ 2*lowBits) - (' '+1)*lowBits
	backslash := (x ^ '\\'*lowBits) - lowBits
	return (control | backslash) &^ x & highBits
}

// word reads eight bytes in little-endian order.
func word[T string | []byte](b T) uint64 {
	_ = b[7]
	return uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16 | uint64(b[3])<<24 |
		uint64(b[4])<<32 | uint64(b[5])<<40 | uint64(b[6])<<48 | uint64(b[7])<<56
}

// text scans the string whose opening quote is at data[at].
func (s *scanner) text(at int) (end int, escaped, ok bool) {
	end, high := plain(s.data, at+1)
	if high == 0 && s.peek(end) == '"' {
		return end + 1, false, true // the common case
	}
	return s.oddText(at, end, high)
}

// oddText is text for a string that is not plain ASCII. i and high are what plain returned for its
// beginning.
func (s *scanner) oddText(at, i int, high uint64) (end int, escaped, ok bool) {
	for {
		switch s.peek(i) {
		case '"':
			if high != 0 && !utf8.Valid(s.data[at+1:i]) {
				end, ok = s.fail(at, InvalidUTF8)
				return end, escaped, ok
			}
			return i + 1, escaped, true
		case '\\':
			escaped = true
			if i, ok = s.escape(i); !ok {
				return i, escaped, false
			}
		default:
			end, ok = s.fail(i, Malformed)
			return end, escaped, ok
		}
		var h uint64
		i, h = plain(s.data, i)
		high |= h
	}
}

// escape scans the escape whose backslash is at data[at]. A surrogate pair is one escape.
func (s *scanner) escape(at int) (int, bool) {
	switch s.peek(at + 1) {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return at + 2, true
	case 'u':
		r, ok := hexRune(s.data, at)
		if !ok {
			return s.fail(at, Malformed)
		}
		if !utf16.IsSurrogate(r) {
			return at + 6, true
		}
		low, ok := hexRune(s.data, at+6)
		if !ok || utf16.DecodeRune(r, low) == utf8.RuneError {
			return s.fail(at, LoneSurrogate)
		}
		return at + 12, true
	}
	return s.fail(at, Malformed)
}

// hexRune reads \uXXXX at data[at].
func hexRune(data []byte, at int) (rune, bool) {
	if at+6 > len(data) || data[at] != '\\' || data[at+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range data[at+2 : at+6] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// ReplaceSurrogates returns a copy of JSON text in which each escaped lone surrogate is replaced
// with U+FFFD.
func ReplaceSurrogates(data []byte) []byte {
	data = bytes.Clone(data)
	for at := 0; at < len(data); at++ {
		if data[at] != '\\' {
			continue
		}
		r, ok := hexRune(data, at)
		if !ok {
			at++ // the character after the backslash
			continue
		}
		if utf16.IsSurrogate(r) {
			if low, _ := hexRune(data, at+6); utf16.DecodeRune(r, low) != utf8.RuneError {
				at += 6
			} else {
				copy(data[at+2:], "fffd")
			}
		}
		at += 5
	}
	return data
}

// unescape decodes the text between the quotes of a validated string.
func unescape(text []byte) []byte {
	out := make([]byte, 0, len(text))
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 || i+1 == len(text) {
			return append(out, text...)
		}
		out = append(out, text[:i]...)
		c := text[i+1]
		size := 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			r, _ := hexRune(text, i)
			size = 6
			if utf16.IsSurrogate(r) {
				low, _ := hexRune(text, i+6)
				r = utf16.DecodeRune(r, low)
				size = 12
			}
			out = utf8.AppendRune(out, r)
			text = text[min(i+size, len(text)):]
			continue
		}
		out = append(out, c)
		text = text[i+size:]
	}
}

var errNotString = errors.New("not a JSON string")

// Unquote decodes a JSON string with its quotes. It validates raw first and returns an error for
// anything but a valid string.
func Unquote(raw []byte) (string, error) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", errNotString
	}
	s := scanner{data: raw}
	end, escaped, ok := s.text(0)
	if !ok {
		return "", s.err()
	}
	if end != len(raw) {
		return "", &SyntaxError{Offset: end, Reason: TrailingData}
	}
	text := raw[1 : end-1]
	if escaped {
		text = unescape(text)
	}
	return string(text), nil
}

const hexDigits = "0123456789abcdef"

// AppendQuote appends s to dst as a JSON string. It replaces bytes that are not UTF-8 with U+FFFD.
// It escapes only what must be escaped, and U+2028 and U+2029, which some readers take for line
// ends.
func AppendQuote(dst []byte, s string) []byte {
	dst = append(dst, '"')
	for at := 0; at < len(s); {
		end, high := plain(s, at)
		if run := s[at:end]; high == 0 || isSafe(run) {
			dst = append(dst, run...)
		} else {
			dst = appendRunes(dst, run)
		}
		if at = end; at < len(s) {
			dst = appendEscape(dst, s[at])
			at++
		}
	}
	return append(dst, '"')
}

// OneLine puts valid JSON on a single line, in place. Strings contain no line breaks, so all line
// breaks are white space.
func OneLine(text []byte) {
	for _, c := range []byte("\n\r") {
		for rest := text; ; {
			i := bytes.IndexByte(rest, c)
			if i < 0 {
				break
			}
			rest[i] = ' '
			rest = rest[i+1:]
		}
	}
}

// IsOneLine reports whether [OneLine] would not change text.
func IsOneLine(text []byte) bool {
	return bytes.IndexByte(text, '\n') < 0 && bytes.IndexByte(text, '\r') < 0
}

// isSafe reports whether text, whose ASCII characters need no escapes, needs no escapes at all.
func isSafe(text string) bool {
	return utf8.ValidString(text) && !strings.Contains(text, "\u2028") && !strings.Contains(text, "\u2029")
}

// appendRunes appends text whose ASCII characters need no escapes.
func appendRunes(dst []byte, text string) []byte {
	for _, r := range text {
		if r == '\u2028' || r == '\u2029' {
			dst = append(append(dst, `\u202`...), hexDigits[r&0xF])
			continue
		}
		dst = utf8.AppendRune(dst, r) // U+FFFD for each byte that is not UTF-8
	}
	return dst
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\b':
		return append(dst, `\b`...)
	case '\f':
		return append(dst, `\f`...)
	case '\n':
		return append(dst, `\n`...)
	case '\r':
		return append(dst, `\r`...)
	case '\t':
		return append(dst, `\t`...)
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&0xF])
}
