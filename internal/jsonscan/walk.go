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

// A Member is a member of an object, or of an object in it.
type Member struct {
	Key   []byte // decoded
	Value []byte // raw
	At    int    // where the value begins in the object that is walked over; 0 for an inner member
	Inner bool   // it stands in the object under the key that was named
}

// MembersAndInner is [Members] that also gives, in the same pass, the members of the object that stands under one key.
// They come before that object itself.
func MembersAndInner(obj []byte, key string) iter.Seq[Member] {
	return func(yield func(Member) bool) {
		c := open(obj, '{')
		for {
			name, ok := c.name()
			if !ok {
				return
			}
			m := Member{Key: decodeKey(name), At: c.at}
			if string(m.Key) == key && c.at < len(c.data) && c.data[c.at] == '{' {
				in := cursor{data: c.data, at: c.at + 1}
				for name, value, ok := in.member(); ok; name, value, ok = in.member() {
					if !yield(Member{Key: decodeKey(name), Value: value, Inner: true}) {
						return
					}
				}
				m.Value, ok = c.container(in.end, '}')
			} else {
				m.Value, ok = c.element()
			}
			if !ok || !yield(m) {
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
	end  int // where it came to its end
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
	c.space()
	if c.at >= len(c.data) || c.data[c.at] != want {
		c.at, c.end = -1, c.at
		return false
	}
	c.at++
	return true
}

// member returns the key as it is written, without its quotes.
func (c *cursor) member() (key, value []byte, ok bool) {
	if key, ok = c.name(); !ok {
		return nil, nil, false
	}
	value, ok = c.element()
	return key, value, ok
}

// name passes over a key, which it returns as member does, up to the value.
func (c *cursor) name() (key []byte, ok bool) {
	if !c.enter('"') {
		return nil, false
	}
	start := c.at
	end := skipString(c.data, start)
	if end < 0 {
		return nil, false
	}
	c.at = end
	if !c.enter(':') {
		return nil, false
	}
	c.space()
	return c.data[start : end-1], true
}

func (c *cursor) element() (value []byte, ok bool) {
	if c.at < 0 {
		return nil, false
	}
	c.space()
	return c.take(skip(c.data, c.at))
}

// container takes a container whose last byte is at an offset.
func (c *cursor) container(last int, bracket byte) (value []byte, ok bool) {
	if last >= len(c.data) || c.data[last] != bracket {
		return c.take(-1)
	}
	return c.take(last + 1)
}

// take takes the value that goes up to an offset, which is negative when it does not end.
func (c *cursor) take(end int) (value []byte, ok bool) {
	if end < 0 {
		c.at = -1
		return nil, false
	}
	start := c.at
	c.at = end
	c.enter(',')
	return c.data[start:end:end], true
}

func (c *cursor) space() {
	for c.at < len(c.data) && isSpace(c.data[c.at]) {
		c.at++
	}
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
