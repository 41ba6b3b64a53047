// Package jsonc edits JSON with comments and trailing commas, as configuration files contain them.
package jsonc

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
)

// ErrAbsent is returned by [Remove] if the text lacks the member.
var ErrAbsent = errors.New("no such member")

// Last is the step of a path after the last element of an array.
const Last = "-"

// Set returns a text in which the member at a path is set to a value, which must be valid JSON. A
// member that exists gets the new value; a new member becomes the last of its object, and objects
// on the path that are missing are added. The step of an element of an array is its index. All other
// bytes stay, including comments and formatting; new lines get the indentation of the text. An empty
// text stands for an empty object.
func Set(text []byte, path []string, value []byte) ([]byte, error) {
	if IsBlank(text) {
		text = slices.Concat(endLine(text), []byte("{}\n"))
	}
	plain, err := config.Plain(text)
	if err != nil {
		return nil, err
	}
	e := &editor{text: text, plain: plain, layout: layoutOf(text, plain)}
	at := pastSpace(plain, 0)
	for i, name := range path {
		if plain[at] == '[' && name == Last && i == len(path)-1 {
			e.insert(readContainer(plain, at), "", value)
			break
		}
		c := readContainer(plain, at)
		k := c.index(name)
		if plain[at] != '{' && k < 0 {
			return nil, fmt.Errorf("%s: invalid %s: must be an object", config.Position(text, at), where(path[:i]))
		}
		if k < 0 {
			for _, inner := range slices.Backward(path[i+1:]) {
				value = rawjson.Set([]byte("{}"), inner, value)
			}
			e.insert(c, name, value)
			break
		}
		if at = c.items[k].value; i == len(path)-1 {
			e.replace(at, c.items[k].end, e.format(value, lineIndent(text, c.items[k].start)))
		}
	}
	return e.apply(path)
}

// Remove returns a text without the member at a path, or the element of an array, whose step is its
// index. All other bytes stay, except the comma and the line of the member. The error is ErrAbsent
// if the text lacks it.
func Remove(text []byte, path []string) ([]byte, error) {
	plain, err := config.Plain(text)
	if err != nil {
		return nil, err
	}
	e := &editor{text: text, plain: plain}
	at := pastSpace(plain, 0)
	for i, name := range path {
		c := readContainer(plain, at)
		k := c.index(name)
		if k < 0 {
			return nil, ErrAbsent
		}
		if at = c.items[k].value; i == len(path)-1 {
			e.remove(c, k)
		}
	}
	return e.apply(path)
}

// IsBlank reports whether a text contains only white space and comments.
func IsBlank(text []byte) bool {
	text = bytes.TrimPrefix(text, []byte("\uFEFF"))
	return pastComments(text, 0) == len(text)
}

func endLine(text []byte) []byte {
	if len(text) > 0 && text[len(text)-1] != '\n' && string(text) != "\uFEFF" {
		return append(bytes.Clone(text), '\n')
	}
	return text
}

func where(path []string) string {
	if len(path) == 0 {
		return "configuration"
	}
	return fmt.Sprintf("%.64q", strings.Join(path, "."))
}

// A container is an object or an array in plain JSON.
type container struct {
	open, closing int // offsets of the brackets
	items         []item
}

// An item is a member or an element, which begins with its value and uses its index as a name.
type item struct {
	name              string
	start, value, end int // offsets; that of the end is after the value
}

// readContainer returns the container at an offset. Any other value contains no items.
func readContainer(plain []byte, at int) *container {
	c := &container{open: at, closing: at}
	d := jsontext.NewDecoder(bytes.NewBuffer(plain[at:]))
	kind := d.PeekKind()
	if kind != '{' && kind != '[' {
		return c
	}
	_, err := d.ReadToken()
	for err == nil && d.PeekKind() != '}' && d.PeekKind() != ']' {
		i := item{name: strconv.Itoa(len(c.items)), start: -1}
		if kind == '{' {
			var name jsontext.Value
			if name, err = d.ReadValue(); err != nil {
				break
			}
			i.start = at + int(d.InputOffset()) - len(name)
			i.name, _ = rawjson.Unquote(name) // valid
		}
		var value jsontext.Value
		value, err = d.ReadValue()
		i.end = at + int(d.InputOffset())
		i.value = i.end - len(value)
		if i.start < 0 {
			i.start = i.value
		}
		c.items = append(c.items, i)
	}
	_, _ = d.ReadToken() // the closing bracket
	c.closing = at + int(d.InputOffset()) - 1
	return c
}

func (c *container) index(name string) int {
	return slices.IndexFunc(c.items, func(i item) bool { return i.name == name })
}

// pastSpace returns the offset of the next token of plain JSON.
func pastSpace(plain []byte, at int) int {
	for at < len(plain) && isSpace(plain[at]) {
		at++
	}
	return at
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// pastComments returns the offset of the next token of JSON with comments.
func pastComments(text []byte, at int) int {
	for {
		at = pastSpace(text, at)
		end := pastComment(text, at)
		if end == at {
			return at
		}
		at = end
	}
}

// pastComment returns the offset after the comment at an offset, or the same offset.
func pastComment(text []byte, at int) int {
	switch rest := text[at:]; {
	case bytes.HasPrefix(rest, []byte("//")):
		if end := bytes.IndexAny(rest, "\r\n"); end >= 0 {
			return at + end
		}
		return len(text)
	case bytes.HasPrefix(rest, []byte("/*")):
		if end := bytes.Index(rest[2:], []byte("*/")); end >= 0 {
			return at + end + 4
		}
	}
	return at
}

// An editor collects changes of a text.
type editor struct {
	text, plain []byte
	layout      layout
	changes     []change // at different places
}

// A change replaces a part of a text.
type change struct {
	start, end int
	with       string
}

func (e *editor) replace(start, end int, with string) {
	e.changes = append(e.changes, change{start, end, with})
}

// insert adds a member at the end of an object, or an element of an array.
func (e *editor) insert(c *container, name string, value []byte) {
	quoted := ""
	if e.plain[c.open] == '{' {
		quoted = string(rawjson.AppendQuote(nil, name)) + ": "
	}
	if len(c.items) == 0 {
		e.insertFirst(c, quoted, value)
		return
	}
	first, last := c.items[0], c.items[len(c.items)-1]
	at, before, after := last.end, ",", ""
	if comma := pastComments(e.text, last.end); e.text[comma] == ',' {
		at, before, after = comma+1, "", ","
	}
	if !bytes.ContainsAny(e.text[c.open:first.start], "\r\n") {
		e.replace(at, at, before+" "+quoted+inline(value)+after)
		return
	}
	indent := lineIndent(e.text, last.start)
	if !isFirstOnLine(e.text, last.start) {
		indent = lineIndent(e.text, first.start)
	}
	member := e.layout.newline + indent + quoted + e.format(value, indent) + after
	end := pastLineComments(e.text, at)
	if end == at {
		member, before = before+member, ""
	}
	if before != "" {
		e.replace(at, at, before)
	}
	e.replace(end, end, member)
}

// insertFirst adds the only member of an object.
func (e *editor) insertFirst(c *container, quoted string, value []byte) {
	if e.layout.inline {
		e.replace(c.open+1, c.open+1, quoted+inline(value))
		return
	}
	base := lineIndent(e.text, c.open)
	indent := base + e.layout.unit
	member := e.layout.newline + indent + quoted + e.format(value, indent)
	start := pastLineComments(e.text, c.open+1)
	end := start
	if rest := e.text[start:c.closing]; !bytes.ContainsAny(rest, "\r\n") {
		member += e.layout.newline + base
		end += len(rest) // spaces
	}
	e.replace(start, end, member)
}

// pastLineComments returns the offset after the comments that begin on a line after an offset, or
// the same offset.
func pastLineComments(text []byte, at int) int {
	for next := at; ; next = at {
		for next < len(text) && (text[next] == ' ' || text[next] == '\t') {
			next++
		}
		end := pastComment(text, next)
		if end == next {
			return at
		}
		at = end
	}
}

// remove removes an item with its comma, and its line if the line contains no other text.
func (e *editor) remove(c *container, k int) {
	it := c.items[k]
	if len(c.items) == 1 && isBlankRange(e.text[c.open+1:it.start]) && isBlankRange(e.text[it.end:c.closing]) {
		e.replace(c.open+1, c.closing, "")
		return
	}
	start, end := it.start, it.end
	switch comma := pastComments(e.text, it.end); {
	case e.text[comma] == ',' && comma == it.end:
		end++
	case e.text[comma] == ',':
		e.replace(comma, comma+1, "")
	case k > 0:
		before := pastComments(e.text, c.items[k-1].end)
		e.replace(before, before+1, "")
	}
	rest := end
	for rest < len(e.text) && (e.text[rest] == ' ' || e.text[rest] == '\t') {
		rest++
	}
	endsLine := rest == len(e.text) || e.text[rest] == '\n' || e.text[rest] == '\r'
	if k > 0 && rest == c.closing { // another line may end with the bracket, unless it contains a comment
		endsLine = !bytes.Contains(e.text[c.items[k-1].end:start], []byte("//"))
	}
	switch {
	case isFirstOnLine(e.text, start) && endsLine:
		start -= len(lineIndent(e.text, start))
		if start > 0 && e.text[start-1] == '\n' {
			start--
		}
		if start > 0 && e.text[start-1] == '\r' {
			start--
		}
	case k > 0 && !isFirstOnLine(e.text, start):
		for e.text[start-1] == ' ' || e.text[start-1] == '\t' {
			start--
		}
	default:
		end = rest
	}
	e.replace(start, end, "")
}

func isBlankRange(text []byte) bool {
	return len(bytes.TrimSpace(bytes.ReplaceAll(text, []byte(","), nil))) == 0
}

// lineStart returns the offset of the line of an offset.
func lineStart(text []byte, at int) int { return bytes.LastIndexAny(text[:at], "\r\n") + 1 }

// lineIndent returns the white space at the start of the line of an offset.
func lineIndent(text []byte, at int) string {
	line := text[lineStart(text, at):at]
	return string(line[:len(line)-len(bytes.TrimLeft(line, " \t"))])
}

func isFirstOnLine(text []byte, at int) bool {
	return len(bytes.Trim(text[lineStart(text, at):at], " \t")) == 0
}

// apply returns the changed text. It returns an error instead of a text in which anything but the
// value at the path differs.
func (e *editor) apply(path []string) ([]byte, error) {
	slices.SortFunc(e.changes, func(a, b change) int { return a.start - b.start })
	var out []byte
	at := 0
	for _, c := range e.changes {
		if c.start < at {
			return nil, errors.New("cannot edit the text: changes overlap")
		}
		out = append(append(out, e.text[at:c.start]...), c.with...)
		at = c.end
	}
	out = append(out, e.text[at:]...)
	plain, err := config.Plain(out)
	if err != nil {
		return nil, fmt.Errorf("cannot edit the text: %w", err)
	}
	if !sameExcept(e.plain, plain, path) {
		return nil, fmt.Errorf("cannot edit %s: another value would change", where(path))
	}
	return out, nil
}

// sameExcept reports whether two values differ only in the value at a path.
func sameExcept(before, after []byte, path []string) bool {
	kind := rawjson.Kind(before)
	if len(path) == 0 {
		return true
	}
	if kind != rawjson.Kind(after) || kind != '{' && kind != '[' {
		return false
	}
	old, others := readContainer(before, pastSpace(before, 0)), readContainer(after, pastSpace(after, 0))
	step := path[0]
	a, b := old.index(step), others.index(step)
	if a >= 0 && b >= 0 && len(path) > 1 && !sameExcept(before[old.items[a].value:old.items[a].end],
		after[others.items[b].value:others.items[b].end], path[1:]) {
		return false
	}
	left := old.without(before, a)
	right := others.without(after, b)
	if kind == '[' && step == Last && len(right) > len(left) {
		right = right[:len(right)-1]
	}
	if kind == '[' && len(path) == 1 && len(others.items) < len(old.items) { // later indices changed
		right = others.without(after, -1)
	}
	return slices.Equal(left, right)
}

// without returns the names and values of the items except the given item.
func (c *container) without(plain []byte, k int) (all []string) {
	for i, it := range c.items {
		if i == k {
			continue
		}
		name := it.name
		if plain[c.open] == '[' {
			name = ""
		}
		var value bytes.Buffer
		value.WriteString(name + "\x00")
		value.WriteString(inline(plain[it.value:it.end]))
		all = append(all, value.String())
	}
	return all
}
