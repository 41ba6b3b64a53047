package jsonscan

import (
	"bytes"
	"iter"
)

// Kind tells the type of a JSON value by its first byte, white space aside: '{', '[', '"', '0' for a number, 't', 'f',
// 'n', or 0 when raw begins no value.
func Kind(raw []byte) byte {
	at := 0
	for at < len(raw) && isSpace(raw[at]) {
		at++
	}
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
		c := open(obj, '{')
		for {
			key, value, ok := c.member()
			if !ok || !yield(decodeKey(key), value) {
				return
			}
		}
	}
}

// Elements iterates over the raw elements of an array that was checked. They alias arr. A value that is not an array
// has no elements.
func Elements(arr []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		c := open(arr, '[')
		for {
			value, ok := c.element()
			if !ok || !yield(value) {
				return
			}
		}
	}
}

// Get returns the raw value of one member of an object that was checked, and whether it is there.
func Get(obj []byte, key string) ([]byte, bool) {
	c := open(obj, '{')
	for {
		k, value, ok := c.member()
		if !ok {
			return nil, false
		}
		// An escape never makes a key shorter than what it stands for.
		if len(k) >= len(key) && string(decodeKey(k)) == key {
			return value, true
		}
	}
}

func decodeKey(raw []byte) []byte {
	if bytes.IndexByte(raw, '\\') < 0 {
		return raw
	}
	return unescape(raw)
}

// cursor stands before a member or element of one container; at is negative at its end.
type cursor struct {
	data []byte
	at   int
}

// open puts a cursor behind the bracket of a container.
func open(data []byte, bracket byte) cursor {
	c := cursor{data: data}
	c.enter(bracket)
	return c
}

// enter passes over white space and the byte that has to follow it.
func (c *cursor) enter(want byte) bool {
	if c.at < 0 {
		return false
	}
	for c.at < len(c.data) && isSpace(c.data[c.at]) {
		c.at++
	}
	if c.at >= len(c.data) || c.data[c.at] != want {
		c.at = -1
		return false
	}
	c.at++
	return true
}

// member returns the key as it is written, without its quotes.
func (c *cursor) member() (key, value []byte, ok bool) {
	if !c.enter('"') {
		return nil, nil, false
	}
	start := c.at
	end := skipString(c.data, start)
	if end < 0 {
		return nil, nil, false
	}
	c.at = end
	if !c.enter(':') {
		return nil, nil, false
	}
	value, ok = c.element()
	return c.data[start : end-1], value, ok
}

func (c *cursor) element() (value []byte, ok bool) {
	if c.at < 0 {
		return nil, false
	}
	for c.at < len(c.data) && isSpace(c.data[c.at]) {
		c.at++
	}
	start := c.at
	end := skip(c.data, start)
	if end < 0 {
		c.at = -1
		return nil, false
	}
	c.at = end
	c.enter(',')
	return c.data[start:end:end], true
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
