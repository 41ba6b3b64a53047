package schema

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// The functions below expect valid JSON. For anything else their results are undefined, but they do
// not panic.

// skipSpace returns the index of the first byte at or after i that is not white space.
func skipSpace(b []byte, i int) int {
	for i < len(b) && b[i] <= ' ' {
		i++
	}
	return i
}

// skipString returns the index after the string whose opening quote is at i.
func skipString(b []byte, i int) int {
	i++
	if i < len(b) {
		// Most strings contain no escaped quote.
		if n := bytes.IndexByte(b[i:], '"'); n == 0 || n > 0 && b[i+n-1] != '\\' {
			return i + n + 1
		}
	}
	for ; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return len(b)
}

// skipScalar returns the index after the number or literal that starts at i.
func skipScalar(b []byte, i int) int {
	for i < len(b) {
		switch b[i] {
		case ',', ']', '}', ' ', '\t', '\n', '\r':
			return i
		}
		i++
	}
	return i
}

// skipValue returns the index after the value that starts at i.
func skipValue(b []byte, i int) int {
	for depth := 0; i < len(b); {
		switch b[i] {
		case '"':
			i = skipString(b, i)
		case '{', '[':
			depth++
			i++
			continue
		case '}', ']':
			depth--
			i++
		case ',', ':', ' ', '\t', '\n', '\r':
			i++
			continue
		default:
			i = skipScalar(b, i)
		}
		if depth <= 0 {
			return i
		}
	}
	return len(b)
}

// inner returns the text of a string token between its quotes, with its escapes.
func inner(token []byte) []byte {
	if len(token) < 2 {
		return nil
	}
	return token[1 : len(token)-1]
}

// unquote returns the text of a string token. It copies the text only if it contains escapes.
func unquote(token []byte) []byte {
	text := inner(token)
	if bytes.IndexByte(text, '\\') < 0 {
		return text
	}
	s, err := jsonscan.Unquote(token)
	if err != nil {
		return text
	}
	return []byte(s)
}

// runes counts the characters of a string token.
func runes(token []byte) int { return utf8.RuneCount(unquote(token)) }

// appendCanonical appends a form of a value that is the same for two values if and only if JSON
// Schema considers them equal. It is not JSON.
func appendCanonical(dst, raw []byte) []byte {
	switch jsonscan.Kind(raw) {
	case '"':
		if bytes.IndexByte(raw, '\\') < 0 {
			return append(dst, raw...)
		}
		return append(dst, `"`+canonicalEscapes.Replace(string(unquote(raw)))+`"`...)
	case '0':
		return parseDecimal(nil, raw).append(dst)
	case '[':
		dst = append(dst, '[')
		for item := range jsonscan.Elements(raw) {
			dst = append(appendCanonical(dst, item), ',')
		}
		return append(dst, ']')
	case '{':
		var members []string
		for key, value := range jsonscan.Members(raw) {
			m := appendCanonical(nil, jsonscan.AppendQuote(nil, string(key)))
			members = append(members, string(appendCanonical(append(m, ':'), value)))
		}
		slices.Sort(members)
		return append(append(append(dst, '{'), strings.Join(members, ",")...), '}')
	}
	return append(dst, raw...)
}

// pointerTo returns the JSON pointer of the value or member that starts at an offset.
func pointerTo(doc []byte, offset int) string {
	var path []byte
	at := skipSpace(doc, 0)
	for at < offset && at < len(doc) {
		object := doc[at] == '{'
		index := 0
		for at = skipSpace(doc, at+1); at < len(doc) && doc[at] != '}' && doc[at] != ']'; index++ {
			var name []byte
			if object {
				nameEnd, valueAt := member(doc, at)
				name, at = doc[at:nameEnd], valueAt
			}
			end := skipValue(doc, at)
			if offset < end {
				path = appendStep(path, name, index)
				if offset <= at {
					return string(path)
				}
				break
			}
			at = next(doc, end)
		}
	}
	return string(path)
}

var pointerEscapes = strings.NewReplacer("~", "~0", "/", "~1")
var canonicalEscapes = strings.NewReplacer(`\`, `\\`, `"`, `\"`)

// appendStep appends a name, or an index if the name is nil, to a JSON pointer.
func appendStep(path, name []byte, index int) []byte {
	path = append(path, '/')
	if name == nil {
		return appendInt(path, index)
	}
	return append(path, pointerEscapes.Replace(string(unquote(name)))...)
}
