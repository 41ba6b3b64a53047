package config

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Plain returns JSON with comments and trailing commas as plain JSON: it replaces comments, trailing
// commas and a byte order mark by spaces, so that offsets stay the same, and validates the JSON. Its
// errors contain the line and the column.
func Plain(text []byte) ([]byte, error) {
	plain := bytes.Clone(text)
	if bytes.HasPrefix(plain, []byte("\uFEFF")) {
		blank(plain[:len("\uFEFF")])
	}
	if at := blankComments(plain); at >= 0 {
		return nil, fmt.Errorf("%s: unterminated comment", Position(text, at))
	}
	blankTrailingCommas(plain)
	if err := jsonscan.Valid(plain, jsonscan.Limits{}); err != nil {
		var syntax *jsonscan.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("%s: %v", Position(text, syntax.Offset), syntax.Reason)
		}
		return nil, err
	}
	return plain, nil
}

// blank replaces text by white space, except line breaks.
func blank(text []byte) {
	for i, c := range text {
		if c != '\n' && c != '\r' {
			text[i] = ' '
		}
	}
}

// blankComments blanks comments. It returns the offset of an unterminated comment, or -1.
func blankComments(text []byte) int {
	for at := 0; at < len(text); {
		switch {
		case text[at] == '"':
			at = pastString(text, at)
		case bytes.HasPrefix(text[at:], []byte("//")):
			for ; at < len(text) && text[at] != '\n' && text[at] != '\r'; at++ {
				text[at] = ' '
			}
		case bytes.HasPrefix(text[at:], []byte("/*")):
			end := bytes.Index(text[at+2:], []byte("*/"))
			if end < 0 {
				return at
			}
			end += at + 4
			blank(text[at:end])
			at = end
		default:
			at++
		}
	}
	return -1
}

// blankTrailingCommas blanks each comma between a value and a closing bracket.
func blankTrailingCommas(text []byte) {
	comma, before := -1, byte(0) // offset of a possibly trailing comma; last token
	for at := 0; at < len(text); {
		c := text[at]
		switch c {
		case ' ', '\t', '\r', '\n':
			at++
			continue
		case '"':
			at = pastString(text, at)
			comma, before = -1, c
			continue
		case ',':
			comma = -1
			if before != 0 && before != '[' && before != '{' && before != ',' && before != ':' {
				comma = at
			}
		case ']', '}':
			if comma >= 0 {
				text[comma] = ' '
			}
			comma = -1
		default:
			comma = -1
		}
		before = c
		at++
	}
}

// pastString returns the offset after the string whose opening quote is at text[at].
func pastString(text []byte, at int) int {
	for at++; at < len(text); at++ {
		switch text[at] {
		case '\\':
			at++
		case '"':
			return at + 1
		}
	}
	return len(text)
}

// Find returns the offset in plain JSON that a JSON pointer identifies: the offset of the name for
// a member, and of the value for an element. If a part of the path is absent, Find returns the
// offset of the part before.
func Find(plain []byte, pointer string) int {
	d := jsonscan.Descend(plain)
	at := d.At()
	for step := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		found := enter(plain, &d, pointerUnescapes.Replace(step))
		if found < 0 {
			break
		}
		at = found
	}
	return at
}

// enter moves to a member or an element of the next value, and returns its offset, or -1 if it is
// absent.
func enter(plain []byte, d *jsonscan.Descent, step string) int {
	if d.Into('{') {
		for {
			at := pastComma(plain, d.At())
			key, ok := d.Key()
			if !ok {
				return -1
			}
			if string(key) == step {
				return at
			}
			d.Value()
		}
	}
	index, err := strconv.Atoi(step)
	if err != nil || !d.Into('[') {
		return -1
	}
	for d.More() {
		if index == 0 {
			return d.At() // More has moved past the comma
		}
		index--
		d.Value()
	}
	return -1
}

// pastComma returns the offset of the token after a comma, or the same offset.
func pastComma(plain []byte, at int) int {
	if at < 0 || at >= len(plain) || plain[at] != ',' {
		return at
	}
	return at + 1 + bytes.IndexFunc(plain[at+1:], func(r rune) bool { return !strings.ContainsRune(" \t\r\n", r) })
}

// Position returns the line and the column, in bytes, of an offset, as text. Both count from 1.
func Position(text []byte, at int) string {
	before := text[:min(at, len(text))]
	return fmt.Sprintf("line %d, column %d", 1+bytes.Count(before, []byte("\n")),
		len(before)-bytes.LastIndexByte(before, '\n'))
}

// Pointer returns the JSON pointer of a member or an element.
func Pointer(steps ...string) string {
	var b strings.Builder
	for _, step := range steps {
		b.WriteString("/" + pointerEscapes.Replace(step))
	}
	return b.String()
}

var (
	pointerEscapes   = strings.NewReplacer("~", "~0", "/", "~1")
	pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")
)
