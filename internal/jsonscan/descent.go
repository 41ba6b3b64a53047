package jsonscan

// A Descent is a pass over checked JSON that enters containers. [Members] and [Elements] skip a
// container before the caller enters it, and so read its text twice. Unchecked text ends the pass
// early and is otherwise harmless.
//
// Into enters the next value, Value skips it. Within a container, Key or More moves to the next
// member or element, and leaves the container at its end.
type Descent struct {
	data []byte
	at   int // negative once the text ended the pass
}

// Descend starts a pass.
func Descend(data []byte) Descent { return Descent{data: data} }

// Into enters the next value if it is an object, for '{', or an array, for '['. Otherwise it
// returns false and does not move.
func (d *Descent) Into(bracket byte) bool {
	if d.peek() != bracket {
		return false
	}
	d.at++
	return true
}

// Key returns the decoded key of the next member of an object and moves to the member's value. The
// key aliases the text unless it contains escapes. At the end of the object, Key leaves it and
// returns false.
func (d *Descent) Key() (key []byte, ok bool) {
	if d.peek() == ',' {
		d.at++
	}
	switch d.peek() {
	case '"':
		return d.key()
	case '}':
		d.at++
	default:
		d.at = -1
	}
	return nil, false
}

func (d *Descent) key() (key []byte, ok bool) {
	start := d.at + 1
	end, _ := plain(d.data, start)
	escaped := end < len(d.data) && d.data[end] == '\\'
	if escaped {
		end = skipString(d.data, end) - 1
	}
	if end < 0 || end >= len(d.data) || d.data[end] != '"' {
		d.at = -1
		return nil, false
	}
	if d.at = end + 1; !d.Into(':') {
		d.at = -1
		return nil, false
	}
	key = d.data[start:end]
	if escaped {
		key = unescape(key)
	}
	return key, true
}

// More reports whether the array contains another element. If not, it leaves the array.
func (d *Descent) More() bool {
	if d.peek() == ',' {
		d.at++
	}
	return d.peek() != 0 && !d.Into(']')
}

// Value skips the next value and returns it, or nil.
func (d *Descent) Value() []byte {
	if d.peek() == 0 {
		return nil
	}
	start := d.at
	d.at = skip(d.data, start)
	return d.Since(start)
}

// At returns the offset of the next token.
func (d *Descent) At() int {
	d.peek()
	return d.at
}

// Since returns the text from an offset up to the current position; nil if the text ended the
// pass.
func (d *Descent) Since(at int) []byte {
	if at < 0 || d.at < at {
		return nil
	}
	return d.data[at:d.at:d.at]
}

// peek returns the first byte of the next token, or 0 at the end.
func (d *Descent) peek() byte {
	if d.at < 0 {
		return 0
	}
	for ; d.at < len(d.data); d.at++ {
		if c := d.data[d.at]; !isSpace(c) {
			return c
		}
	}
	return 0
}
