package jsonc

import (
	"bytes"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// A layout is how a text is formatted.
type layout struct {
	newline, unit string
	inline        bool // the text is a single line
}

// layoutOf returns the line break, the indentation of one level, and whether the text is a single
// line. A text without members uses the default, two spaces.
func layoutOf(text, plain []byte) layout {
	l := layout{newline: "\n", unit: "  "}
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		l.newline = "\r\n"
	}
	c := readContainer(plain, pastSpace(plain, 0))
	if len(c.items) == 0 {
		return l
	}
	l.inline = !bytes.ContainsAny(text[c.open:c.closing], "\r\n")
	base, indent := lineIndent(text, c.open), lineIndent(text, c.items[0].start)
	if unit, ok := strings.CutPrefix(indent, base); ok && unit != "" && isFirstOnLine(text, c.items[0].start) {
		l.unit = unit
	}
	return l
}

// format returns a value whose first line is indented.
func (e *editor) format(value []byte, indent string) string {
	if e.layout.inline {
		return inline(value)
	}
	return e.layout.lines(value, indent)
}

// lines formats objects with a line for each member, and arrays of simple values as a single line.
func (l layout) lines(value []byte, indent string) string {
	inner := l.newline + indent + l.unit
	var parts []string
	brackets := "{}"
	switch rawjson.Kind(value) {
	case '{':
		for key, member := range rawjson.Members(value) {
			quoted := string(rawjson.AppendQuote(nil, string(key)))
			parts = append(parts, inner+quoted+": "+l.lines(member, indent+l.unit))
		}
	case '[':
		brackets = "[]"
		simple := true
		for element := range rawjson.Elements(value) {
			kind := rawjson.Kind(element)
			simple = simple && kind != '{' && kind != '['
			parts = append(parts, inner+l.lines(element, indent+l.unit))
		}
		if simple {
			return inline(value)
		}
	}
	if len(parts) == 0 {
		return inline(value)
	}
	return brackets[:1] + strings.Join(parts, ",") + l.newline + indent + brackets[1:]
}

// inline formats a value as a single line, with spaces after colons and commas.
func inline(value []byte) string {
	var parts []string
	switch rawjson.Kind(value) {
	case '{':
		for key, member := range rawjson.Members(value) {
			parts = append(parts, string(rawjson.AppendQuote(nil, string(key)))+": "+inline(member))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case '[':
		for element := range rawjson.Elements(value) {
			parts = append(parts, inline(element))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	return string(bytes.TrimSpace(value))
}
