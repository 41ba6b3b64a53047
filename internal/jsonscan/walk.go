package jsonscan

import (
	"bytes"
	"iter"
)

// Kind tells the type of a JSON value by its first byte, white space aside: '{', '[', '"', '0' for a number, 't', 'f',
// 'n', or 0 when raw begins no value.
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

// Members iterates over an object that was checked, in order: the decoded key and the raw value of each member. Both
// alias obj, but for a key that was written with escapes. A value that is not an object has no members. Bytes that
// were not checked end the iteration early, and do no other harm.
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

// Elements iterates over the raw elements of an array that was checked. They alias arr. A value that is not an array
// has no elements.
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

// Get returns the raw value of one member of an object that was checked, and whether it is there.
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

func skipSpace(data []byte, at int) int {
	for at < len(data) && isSpace(data[at]) {
		at++
	}
	return at
}

// skip returns the offset past the value at data[at], or -1 when no value begins there or it does not end. It follows
// brackets and quotes alone.
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

// skipString takes the offset behind the opening quote.
func skipString(data []byte, at int) int {
	if at > len(data) {
		return -1
	}
	first := bytes.IndexByte(data[at:], '"')
	if first < 0 {
		return -1
	}
	if end := at + first; first == 0 || data[end-1] != '\\' {
		return end + 1 // most strings hold no quote
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
