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
		c := Open(obj)
		for key, ok := c.Next(); ok; key, ok = c.Next() {
			value, whole := c.Value()
			if !whole || !yield(key, value) {
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
			value, ok := c.Value()
			if !ok || !yield(value) {
				return
			}
		}
	}
}

// Get returns the raw value of one member of an object that was checked, and whether it is there.
func Get(obj []byte, key string) ([]byte, bool) {
	c := Open(obj)
	for {
		name, ok := c.Next()
		if !ok {
			return nil, false
		}
		value, ok := c.Value()
		if string(name) == key {
			return value, ok
		}
	}
}

// A Cursor walks over the members of an object that was checked, as [Members] does, and into the objects in it. After
// each Next the value is taken once, by Value or by Leave.
type Cursor struct {
	data []byte
	at   int // of a value whose key was passed, else of what comes next
}

// Open gives a cursor before the first member of an object.
func Open(obj []byte) Cursor { return open(obj, '{') }

// open puts a cursor behind the bracket of a container. In anything else it finds nothing.
func open(data []byte, bracket byte) Cursor {
	at := skipSpace(data, 0)
	if at == len(data) || data[at] != bracket {
		return Cursor{}
	}
	return Cursor{data, at + 1}
}

// Next passes to the next member and returns its decoded key.
func (c *Cursor) Next() (key []byte, ok bool) {
	at := skipSpace(c.data, c.at)
	if at == len(c.data) || c.data[at] != '"' {
		c.at = at
		return nil, false
	}
	start := at + 1
	at, _ = plain(c.data, start)
	if at == len(c.data) || c.data[at] != '"' {
		return c.nextEscaped(start)
	}
	return c.data[start:at], c.colon(at + 1)
}

// nextEscaped is Next for a key that holds more than plain text.
func (c *Cursor) nextEscaped(start int) (key []byte, ok bool) {
	end := skipString(c.data, start)
	if end < 0 {
		c.at = len(c.data)
		return nil, false
	}
	return unescape(c.data[start : end-1]), c.colon(end)
}

// colon passes over what stands between a key and its value.
func (c *Cursor) colon(at int) bool {
	at = skipSpace(c.data, at)
	if at == len(c.data) || c.data[at] != ':' {
		c.at = len(c.data)
		return false
	}
	c.at = skipSpace(c.data, at+1)
	return true
}

// Offset is where the value of the member begins, in the object that was opened.
func (c *Cursor) Offset() int { return c.at }

// Value takes the value of the member.
func (c *Cursor) Value() (value []byte, ok bool) {
	c.at = skipSpace(c.data, c.at)
	return c.take(skip(c.data, c.at))
}

// Enter gives a cursor before the first member of the value of the member, if that is an object.
func (c *Cursor) Enter() (inner Cursor, ok bool) {
	if c.at == len(c.data) || c.data[c.at] != '{' {
		return Cursor{}, false
	}
	return Cursor{c.data, c.at + 1}, true
}

// Leave takes the value over whose members inner has walked to the end.
func (c *Cursor) Leave(inner *Cursor) (value []byte, ok bool) {
	if inner.at == len(c.data) || c.data[inner.at] != '}' {
		return c.take(-1)
	}
	return c.take(inner.at + 1)
}

// take takes the value that goes up to an offset, which is negative when it does not end.
func (c *Cursor) take(end int) (value []byte, ok bool) {
	start := c.at
	if end < 0 {
		c.at = len(c.data)
		return nil, false
	}
	c.at = skipSpace(c.data, end)
	if c.at < len(c.data) && c.data[c.at] == ',' {
		c.at++
	}
	return c.data[start:end:end], true
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
