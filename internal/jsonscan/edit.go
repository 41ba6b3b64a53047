package jsonscan

import "bytes"

// Edit returns an object or an array whose members or elements change replaces. The key of an element is
// nil. Edit returns the value itself if no member changes, and for other kinds of values.
func Edit(value []byte, change func(key, member []byte) ([]byte, []byte)) []byte {
	var b []byte
	changed := false
	add := func(key, member []byte) {
		newKey, newMember := change(key, member)
		if len(b) > 1 {
			b = append(b, ',')
		}
		if key != nil {
			b = append(AppendQuote(b, string(newKey)), ':')
		}
		b = append(b, newMember...)
		changed = changed || !bytes.Equal(key, newKey) || !bytes.Equal(member, newMember)
	}
	switch Kind(value) {
	case '{':
		b = append(b, '{')
		for key, member := range Members(value) {
			if key == nil {
				key = []byte{}
			}
			add(key, member)
		}
		b = append(b, '}')
	case '[':
		b = append(b, '[')
		for element := range Elements(value) {
			add(nil, element)
		}
		b = append(b, ']')
	}
	if !changed {
		return value
	}
	return b
}

// EditText returns a value with all its strings and names of members replaced by change.
func EditText(value []byte, change func(string) string) []byte {
	switch Kind(value) {
	case '"':
		text, err := Unquote(value)
		if err != nil {
			return value
		}
		if changed := change(text); changed != text {
			return AppendQuote(nil, changed)
		}
		return value
	case '{', '[':
		return Edit(value, func(key, member []byte) ([]byte, []byte) {
			if key != nil {
				key = []byte(change(string(key)))
			}
			return key, EditText(member, change)
		})
	}
	return value
}
