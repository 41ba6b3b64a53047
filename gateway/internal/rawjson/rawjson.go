// Package rawjson reads and writes parts of JSON text without decoding the rest.
//
// [Valid] checks text; the other readers require text that was checked, and return slices of it.
// Text that was not checked may end an iteration early and is otherwise harmless. All functions are
// safe for concurrent use.
package rawjson

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth limits the nested containers of text: readers of the same text may be recursive.
const maxDepth = 64

// A validator is a decoder with its input, which are reused.
type validator struct {
	input bytes.Buffer
	jsontext.Decoder
}

var validators = sync.Pool{New: func() any { return new(validator) }}

// Valid returns an error unless data is one value with only white space around it. No object may
// contain a name twice, and strings must be valid Unicode.
func Valid(data []byte) error {
	d := validators.Get().(*validator)
	defer validators.Put(d)
	d.input = *bytes.NewBuffer(data)
	d.Reset(&d.input)
	defer func() { d.input = bytes.Buffer{}; d.Reset(&d.input) }() // the pool must not retain data
	for {
		switch _, err := d.ReadToken(); {
		case err != nil:
			return explain(err)
		case d.StackDepth() > maxDepth:
			return fmt.Errorf("nested too deeply at byte %d: want at most %d levels", d.InputOffset(), maxDepth)
		case d.StackDepth() > 0:
			continue
		}
		if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
			return fmt.Errorf("data after the value at byte %d", d.InputOffset())
		}
		return nil
	}
}

func explain(err error) error {
	wrong, ok := errors.AsType[*jsontext.SyntacticError](err)
	switch {
	case !ok:
		return errors.New("malformed JSON at byte 0: empty text")
	case errors.Is(err, jsontext.ErrDuplicateName):
		return fmt.Errorf("duplicate key at byte %d", wrong.ByteOffset)
	}
	return fmt.Errorf("malformed JSON at byte %d: %w", wrong.ByteOffset, wrong.Err)
}

// End returns the offset behind the value that starts at data[at], after white space. It checks the
// value.
func End(data []byte, at int) (int, error) {
	d := jsontext.NewDecoder(bytes.NewBuffer(data[at:]))
	_, err := d.ReadValue()
	return at + int(d.InputOffset()), err
}

// Kind returns the type of a value by its first byte after white space: '{', '[', '"', '0' for a
// number, 't', 'f', 'n', or 0 if raw does not start with a value.
func Kind(raw []byte) byte {
	if kind := jsontext.Value(raw).Kind(); kind != jsontext.KindInvalid && kind != '}' && kind != ']' {
		return byte(kind)
	}
	return 0
}

// Members returns an iterator over the members of an object, in order: the decoded name and the raw
// value. A value that is not an object has no members.
func Members(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		if Kind(object) != '{' {
			return
		}
		at := bytes.IndexByte(object, '{') + 1
		for {
			name, behind := next(object, at)
			value, end := next(object, behind)
			if len(name) < len(`""`) || name[0] != '"' || len(value) == 0 {
				return
			}
			if bytes.IndexByte(name, '\\') < 0 {
				name = name[1 : len(name)-1]
			} else {
				name, _ = jsontext.AppendUnquote(nil, name)
			}
			if !yield(name, value) {
				return
			}
			at = end
		}
	}
}

// Elements returns an iterator over the raw elements of an array. A value that is not an array has
// no elements.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		if Kind(array) != '[' {
			return
		}
		at := bytes.IndexByte(array, '[') + 1
		for {
			value, end := next(array, at)
			if len(value) == 0 || !yield(value) {
				return
			}
			at = end
		}
	}
}

// next returns the value at an offset, after white space and separators, and the offset behind the
// value. The value is empty at the end of a container and of the text.
func next(text []byte, at int) (value []byte, end int) {
	for at < len(text) && isBetween(text[at]) {
		at++
	}
	start, depth := at, 0
	for ; at < len(text); at++ {
		switch c := text[at]; c {
		case '"':
			at = closingQuote(text, at)
		case '{', '[':
			depth++
			continue
		case '}', ']':
			if depth--; depth < 0 {
				return text[start:at:at], at // of a number or a literal; empty at the end of the container
			}
		default:
			if depth == 0 && isBetween(c) {
				return text[start:at:at], at
			}
			continue
		}
		if depth == 0 {
			end = min(at+1, len(text))
			return text[start:end:end], end
		}
	}
	return text[start:], len(text)
}

// isBetween reports whether a byte separates values.
func isBetween(c byte) bool {
	return c == ',' || c == ':' || c == ' ' || c == '\n' || c == '\t' || c == '\r'
}

// closingQuote returns the offset of the quote that ends the string at an offset.
func closingQuote(text []byte, at int) int {
	for start := at + 1; ; {
		n := bytes.IndexByte(text[at+1:], '"')
		if n < 0 {
			return len(text)
		}
		if at += n + 1; text[at-1] != '\\' {
			return at
		}
		if escapes := len(text[start:at]) - len(bytes.TrimRight(text[start:at], `\`)); escapes%2 == 0 {
			return at
		}
	}
}

// Get returns the raw value of a member of an object, and whether the object contains the member.
func Get(object []byte, name string) ([]byte, bool) {
	for key, value := range Members(object) {
		if string(key) == name {
			return value, true
		}
	}
	return nil, false
}

// GetString returns a member of an object if the member is a string, else "".
func GetString(object []byte, name string) string {
	raw, _ := Get(object, name)
	text, _ := Unquote(raw)
	return text
}

// Set returns a copy of an object in which a member has the given value: in its place if the
// object contains the member, else at the end.
func Set(object []byte, name string, value []byte) []byte {
	out := append(make([]byte, 0, len(object)+len(name)+len(value)+len(`{"":,}`)), '{')
	replaced := false
	add := func(name string, value []byte) {
		out = append(append(append(AppendQuote(out, name), ':'), value...), ',')
	}
	for key, old := range Members(object) {
		if string(key) == name {
			old, replaced = value, true
		}
		add(string(key), old)
	}
	if !replaced {
		add(name, value)
	}
	out[len(out)-1] = '}'
	return out
}

// Unquote decodes a JSON string with its quotes. It returns an error for anything but one valid
// string.
func Unquote(raw []byte) (string, error) {
	if n := len(raw) - 1; n > 0 && raw[0] == '"' && raw[n] == '"' && isPlain(raw[1:n]) {
		return string(raw[1:n]), nil
	}
	text, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return "", err
	}
	return string(text), nil
}

// isPlain reports whether the text of a string consists of printable ASCII without escapes.
func isPlain(text []byte) bool {
	return !slices.ContainsFunc(text, func(c byte) bool { return c < ' ' || c > '~' || c == '"' || c == '\\' })
}

// AppendQuote appends s to dst as a JSON string. It replaces bytes that are not UTF-8 with U+FFFD.
// It escapes only characters that must be escaped, and U+2028 and U+2029, which some readers take
// for line ends.
func AppendQuote(dst []byte, s string) []byte {
	start := len(dst)
	dst, _ = jsontext.AppendQuote(dst, s) // the error reports bytes that are not UTF-8
	if strings.Contains(s, "\u2028") || strings.Contains(s, "\u2029") {
		dst = append(dst[:start], lineEnds.Replace(string(dst[start:]))...)
	}
	return dst
}

var lineEnds = strings.NewReplacer("\u2028", `\u2028`, "\u2029", `\u2029`)
