package jsonscan

import (
	"bytes"
	"iter"
)

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
// the raw value. Both alias obj, except a key with escapes. A value that is not an object has no
// members. Text that was not validated may end the iteration early and is otherwise harmless.
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

// Elements returns an iterator over the raw elements of a validated array. They alias arr. A value
// that is not an array has no elements.
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

// Get returns the raw value of one member of a validated object, and whether it is there.
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

// WithMember returns a copy of a validated object in which one member has the given value: in its
// place if it is there, else at the end.
func WithMember(obj []byte, key string, value []byte) []byte {
	out := append(make([]byte, 0, len(obj)+len(key)+len(value)+len(`{"":,}`)), '{')
	add := func(k string, v []byte) {
		out = append(append(AppendQuote(out, k), ':'), v...)
		out = append(out, ',')
	}
	replaced := false
	for k, v := range Members(obj) {
		if string(k) == key {
			v, replaced = value, true
		}
		add(string(k), v)
	}
	if !replaced {
		add(key, value)
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
		return end + 1 // most strings have no escaped quote
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
