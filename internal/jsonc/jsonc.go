// Package jsonc reads JSON with comments and trailing commas, as configuration files have them.
package jsonc

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// Plain replaces comments, trailing commas and a byte order mark by spaces, and validates the JSON.
// Its errors have the line and the column.
func Plain(text []byte) ([]byte, error) {
	plain := bytes.Clone(text)
	if bytes.HasPrefix(plain, []byte("\uFEFF")) {
		blank(plain[:len("\uFEFF")])
	}
	if at := blankComments(plain); at >= 0 {
		return nil, fmt.Errorf("%s: unterminated comment", position(text, at))
	}
	blankTrailingCommas(plain)
	if err := jsonscan.Valid(plain, jsonscan.Limits{}); err != nil {
		var syntax *jsonscan.SyntaxError
		if errors.As(err, &syntax) {
			return nil, fmt.Errorf("%s: %v", position(text, syntax.Offset), syntax.Reason)
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

// blankComments blanks comments. It returns the offset of an unterminated one, or -1.
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

// position returns the line and the column, in bytes, of an offset. Both count from 1.
func position(text []byte, at int) string {
	before := text[:min(at, len(text))]
	return fmt.Sprintf("line %d, column %d", 1+bytes.Count(before, []byte("\n")),
		len(before)-bytes.LastIndexByte(before, '\n'))
}
