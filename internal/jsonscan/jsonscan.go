// Package jsonscan validates JSON text strictly and reads text that was validated.
//
// Every message of a peer is validated by it first. Valid text can be understood in only a single
// way: no object contains a duplicate key at any depth, every string is valid Unicode, and only
// white space surrounds the value. Anything else is rejected with a [*SyntaxError]. The package
// returns positions and slices of the text, so later readers see the same bytes.
//
// All functions are safe for concurrent use. They do not allocate for valid messages of ordinary
// shape.
package jsonscan

import (
	"bytes"
	"cmp"
	"fmt"
	"iter"
	"slices"
)

const (
	// DefaultDepth is the maximum nesting depth of containers. Real messages stay below 20. The
	// limit bounds the stack of recursive readers of the same text.
	DefaultDepth = 64

	// DefaultKeys is the maximum number of members of an object. It bounds the work of finding
	// duplicates.
	DefaultKeys = 10_000
)

// Limits limits the accepted text. The zero value means the defaults.
type Limits struct {
	Depth int // nested containers, including the outermost; 0 means DefaultDepth
	Keys  int // members of an object; 0 means DefaultKeys
}

func (l Limits) orDefault() Limits {
	return Limits{cmp.Or(max(l.Depth, 0), DefaultDepth), cmp.Or(max(l.Keys, 0), DefaultKeys)}
}

// A Reason says why text was rejected.
type Reason uint8

// The reasons. The last three concern text that is JSON by the grammar.
const (
	Malformed     Reason = iota + 1 // not JSON: wrong or missing token, control character, unknown escape
	InvalidUTF8                     // a string contains bytes that are not UTF-8
	LoneSurrogate                   // a \u escape is half of a surrogate pair
	ByteOrderMark                   // the text begins with U+FEFF
	TrailingData                    // something other than white space follows the value
	DuplicateKey                    // an object contains a key twice, compared after decoding escapes
	TooDeep                         // more nested containers than Limits.Depth
	TooManyKeys                     // an object contains more members than Limits.Keys
)

var reasons = [...]string{
	"unknown reason", "malformed JSON", "invalid UTF-8", "lone surrogate", "byte order mark", "data after the value",
	"duplicate key", "nested too deeply", "too many keys in one object",
}

// String returns a fixed phrase that may be shown to a peer.
func (r Reason) String() string {
	if int(r) >= len(reasons) {
		r = 0
	}
	return reasons[r]
}

// A SyntaxError describes why text was rejected.
type SyntaxError struct {
	Offset int    // in bytes, where the error was detected
	Reason Reason // the kind of error
}

// Error describes the error without quoting the text.
func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%v at byte %d", e.Reason, e.Offset)
}

// WellFormed reports whether the text is JSON by the grammar, but breaks a rule of this package:
// duplicate keys, depth or number of keys. Such text was scanned to its end. Below the depth limit,
// only brackets and quotes were checked.
func (e *SyntaxError) WellFormed() bool {
	return e.Reason >= DuplicateKey
}

// Kind returns the type of a JSON value by its first byte after white space: '{', '[', '"', '0' for
// a number, 't', 'f', 'n', or 0 if raw does not start with a value.
func Kind(raw []byte) byte {
	at := skipSpace(raw, 0)
	if at == len(raw) {
		return 0
	}
	switch c := raw[at]; c {
	case '{', '[', '"', 't', 'f', 'n':
		return c
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		return '0'
	}
	return 0
}

// Members returns an iterator over the members of a validated object, in order: the decoded key and
// the raw value. Both alias obj, except a key with escapes. A value that is not an object contains
// no members. Text that was not validated may end the iteration early and is otherwise harmless.
func Members(obj []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(key, value []byte) bool) {
		d := Descend(obj)
		d.Into('{')
		for key, ok := d.Key(); ok; key, ok = d.Key() {
			if value := d.Value(); value == nil || !yield(key, value) {
				return
			}
		}
	}
}

// Elements returns an iterator over the raw elements of a validated array. They alias arr, which
// must not change. A value that is not an array contains no elements.
func Elements(arr []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		d := Descend(arr)
		if !d.Into('[') {
			return
		}
		for d.More() {
			if value := d.Value(); value == nil || !yield(value) {
				return
			}
		}
	}
}

// Get returns the raw value of a member of a validated object, and whether it is there.
func Get(obj []byte, key string) ([]byte, bool) {
	d := Descend(obj)
	d.Into('{')
	for name, ok := d.Key(); ok; name, ok = d.Key() {
		if value := d.Value(); string(name) == key {
			return value, value != nil
		}
	}
	return nil, false
}

// GetNonNull is like [Get], except that it reports a member whose value is null as absent.
func GetNonNull(obj []byte, key string) ([]byte, bool) {
	value, ok := Get(obj, key)
	if Kind(value) == 'n' {
		return nil, false
	}
	return value, ok
}

// Has reports whether a validated object contains a member.
func Has(obj []byte, key string) bool {
	_, ok := Get(obj, key)
	return ok
}

// GetString returns the string in a member of a validated object: empty for any other value, and
// without the member.
func GetString(obj []byte, key string) string {
	raw, _ := Get(obj, key)
	text, _ := Unquote(raw)
	return text
}

// IsString reports whether a validated value is the string s, with or without escapes.
func IsString(raw []byte, s string) bool {
	if Kind(raw) != '"' {
		return false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1:len(raw)-1]) == s
	}
	text, err := Unquote(raw)
	return err == nil && text == s
}

// IsObject reports whether a validated value is an object.
func IsObject(raw []byte) bool { return Kind(raw) == '{' }

// HasObject reports whether a validated object contains an object at a path of members.
func HasObject(obj []byte, path ...string) bool {
	for _, key := range path {
		if !IsObject(obj) {
			return false
		}
		obj, _ = Get(obj, key)
	}
	return IsObject(obj)
}

// AppendMembers appends the members of a validated object that keep accepts, each after a comma. A nil
// keep accepts all.
func AppendMembers(dst, obj []byte, keep func(key string) bool) []byte {
	for k, value := range Members(obj) {
		if key := string(k); keep == nil || keep(key) {
			dst = append(append(AppendQuote(append(dst, ','), key), ':'), value...)
		}
	}
	return dst
}

// Filter returns a copy of a validated object with the members that keep accepts.
func Filter(obj []byte, keep func(key string) bool) []byte {
	out := AppendMembers(nil, obj, keep)
	if len(out) == 0 {
		return []byte("{}")
	}
	out[0] = '{'
	return append(out, '}')
}

// Without returns a copy of a validated object without the given members.
func Without(obj []byte, keys ...string) []byte {
	return Filter(obj, func(key string) bool { return !slices.Contains(keys, key) })
}

// WithMember returns a copy of a validated object in which a member contains the given value: in
// its place if it is there, else at the end.
func WithMember(obj []byte, key string, value []byte) []byte {
	out := append(make([]byte, 0, len(obj)+len(key)+len(value)+len(`{"":,}`)), '{')
	replaced := false
	for k, v := range Members(obj) {
		if string(k) == key {
			v, replaced = value, true
		}
		if end, high := plain(k, 0); end == len(k) && high == 0 { // as most are: no copy
			out = append(append(append(out, '"'), k...), '"')
		} else {
			out = AppendQuote(out, string(k))
		}
		out = append(append(append(out, ':'), v...), ',')
	}
	if !replaced {
		out = append(append(AppendQuote(out, key), ':'), value...)
		out = append(out, ',')
	}
	out[len(out)-1] = '}'
	return out
}

func skipSpace(data []byte, at int) int {
	for at < len(data) && isSpace(data[at]) {
		at++
	}
	return at
}

// skip returns the offset behind the value at data[at], or -1 if no value begins there or it does
// not end. It checks only brackets and quotes.
func skip(data []byte, at int) int {
	if at >= len(data) {
		return -1
	}
	switch data[at] {
	case '"':
		return skipString(data, at+1)
	case '{', '[':
		return skipContainer(data, at)
	}
	end := at
	for end < len(data) && !endsScalar(data[end]) {
		end++
	}
	if end == at {
		return -1
	}
	return end
}

func skipContainer(data []byte, at int) int {
	for depth := 0; at < len(data); {
		switch data[at] {
		case '"':
			if at = skipString(data, at+1); at < 0 {
				return -1
			}
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return at + 1
			}
		}
		at++
	}
	return -1
}

// skipString returns the offset behind a string. at is the offset behind the opening quote.
func skipString(data []byte, at int) int {
	if at > len(data) {
		return -1
	}
	first := bytes.IndexByte(data[at:], '"')
	if first < 0 {
		return -1
	}
	if end := at + first; first == 0 || data[end-1] != '\\' {
		return end + 1 // most strings contain no escaped quote
	}
	for at < len(data) {
		switch data[at] {
		case '"':
			return at + 1
		case '\\':
			at++
		}
		at++
	}
	return -1
}

func endsScalar(c byte) bool {
	return isSpace(c) || c == ',' || c == ']' || c == '}' || c == ':' || c == '"' || c == '{' || c == '['
}
