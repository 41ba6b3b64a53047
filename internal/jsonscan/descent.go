package jsonscan

// A Descent is one pass over JSON that was checked, down into its containers and up again, for what is read to the bottom:
// [Members] and [Elements] pass over a container before its reader enters it. Text that was not checked ends the pass
// early, and does no other harm.
//
// What stands ahead is either entered, by Into, or passed over, by Value. In a container, Key or More goes on to what is
// next, and leaves the container at its end.
type Descent struct {
	data []byte
	at   int // negative when the text ends the pass
}

// Descend begins a pass.
func Descend(data []byte) Descent { return Descent{data: data} }

// Into enters the container ahead, an object for '{' or an array for '['. It reports false, and stays, if the value ahead
// is none such.
func (d *Descent) Into(bracket byte) bool {
	if d.peek() != bracket {
		return false
	}
	d.at++
	return true
}

// Key returns the decoded key of the next member of an object, whose value is then ahead. It aliases the text unless it was
// written with escapes. At the end of the object it reports false.
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

// More reports whether there is another element of an array ahead. If not, the array is left.
func (d *Descent) More() bool {
	if d.peek() == ',' {
		d.at++
	}
	return d.peek() != 0 && !d.Into(']')
}

// Value passes over the value ahead, and gives it; nil if there is none.
func (d *Descent) Value() []byte {
	if d.peek() == 0 {
		return nil
	}
	start := d.at
	d.at = skip(d.data, start)
	return d.Since(start)
}

// At is where the pass stands in the text. Before a value it is where the value begins.
func (d *Descent) At() int {
	d.peek()
	return d.at
}

// Since returns the text from a place on, up to where the pass stands; nil if the text has ended the pass.
func (d *Descent) Since(at int) []byte {
	if at < 0 || d.at < at {
		return nil
	}
	return d.data[at:d.at:d.at]
}

// peek returns the first byte of what is ahead, and 0 at the end.
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
