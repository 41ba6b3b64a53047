package configs

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// A yamlFile is a file with the positions of its values.
type yamlFile struct {
	text  []byte
	lines []int // offsets
	root  *yaml.Node
}

// readYAML returns the positions of a valid file.
func readYAML(text []byte) (*yamlFile, error) {
	if hasOtherBreaks(text) {
		return nil, errors.New("cannot edit the file: it has line breaks other than \\n and \\r\\n")
	}
	f := &yamlFile{text: text, lines: []int{0}}
	for i, c := range text {
		if c == '\n' {
			f.lines = append(f.lines, i+1)
		}
	}
	var doc yaml.Node
	if err := yaml.Load(text, &doc); err != nil {
		return nil, err
	}
	if f.root = &doc; doc.Kind == yaml.DocumentNode && len(doc.Content) > 0 {
		f.root = doc.Content[0]
	}
	return f, nil
}

// offset returns the offset of a node.
func (f *yamlFile) offset(n *yaml.Node) int {
	if n.Line < 1 || n.Line > len(f.lines) {
		return len(f.text)
	}
	at := f.lines[n.Line-1]
	if n.Line == 1 {
		at += len(f.text) - len(bytes.TrimPrefix(f.text, []byte("\uFEFF")))
	}
	for i := 1; i < n.Column && at < len(f.text); i++ {
		_, size := utf8.DecodeRune(f.text[at:])
		at += size
	}
	return at
}

// lineAfter returns the offset of the line after a node that occupies a single line.
func (f *yamlFile) lineAfter(n *yaml.Node) int {
	if n.Line < len(f.lines) {
		return f.lines[n.Line]
	}
	return len(f.text)
}

// member returns a key of a mapping and its value, or nil.
func member(mapping *yaml.Node, name string) (key, value *yaml.Node) {
	if mapping == nil || mapping.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == name {
			return mapping.Content[i], mapping.Content[i+1]
		}
	}
	return nil, nil
}

func isFlow(n *yaml.Node) bool { return n.Style&yaml.FlowStyle != 0 }

// setYAML writes an entry as the first entry of its mapping. It tries the possible places, and
// takes the first place that keeps all other values.
func setYAML(text []byte, within, name string, entry []field) ([]byte, error) {
	original, err := parseYAML(text)
	if err != nil {
		return nil, err
	}
	base, err := removeYAML(text, within, name)
	switch {
	case errors.Is(err, jsonc.ErrAbsent):
		base = text
	case err != nil:
		return nil, err
	}
	f := &yamlFile{text: base}
	if !isBlankYAML(base) {
		if f, err = readYAML(base); err != nil {
			return nil, err
		}
	}
	for _, c := range f.places(within, name, entry) {
		out := slices.Concat(base[:c.at], []byte(c.text), base[c.at+c.drop:])
		after, err := parseYAML(out)
		if err != nil || sameOthers(original, after, within, name) != nil {
			continue
		}
		if servers, _ := after[within].(object); servers[name] != nil {
			return out, nil
		}
	}
	return nil, errOtherValues
}

// A place is where an entry can be written, instead of some bytes.
type yamlPlace struct {
	at, drop int
	text     string
}

func (f *yamlFile) places(within, name string, entry []field) (all []yamlPlace) {
	nl := newlineOf(f.text)
	flow := keyOf(name) + ": " + literalOf(entry, ": ")
	block := func(indent string) string {
		text := indent + keyOf(name) + ":" + nl
		for _, field := range entry {
			text += indent + "  " + keyOf(field.name) + ": " + literalOf(field.value, ": ") + nl
		}
		return text
	}
	end := len(f.text)
	open := "" // ends the last line
	if end > 0 && f.text[end-1] != '\n' && string(f.text) != "\uFEFF" {
		open = nl
	}
	key, value := member(f.root, within)
	switch {
	case f.root == nil:
		all = append(all, yamlPlace{end, 0, open + within + ":" + nl + block("  ")})
	case key == nil && isFlow(f.root):
		at := f.offset(f.root) + 1
		first := within + ": {" + flow + "}"
		all = append(all, yamlPlace{at, 0, first + ", "}, yamlPlace{at, 0, first})
	case key == nil:
		all = append(all, yamlPlace{end, 0, open + within + ":" + nl + block("  ")})
		if len(f.root.Content) > 0 {
			at := f.lines[f.root.Content[0].Line-1]
			all = append(all, yamlPlace{at, 0, within + ":" + nl + block("  ")})
		}
	case value.Kind == yaml.MappingNode && isFlow(value):
		at := f.offset(value) + 1
		rest, ok := []byte(nil), false
		if value.Line == key.Line {
			rest, ok = bytes.CutPrefix(f.text[at:f.lineAfter(key)], []byte("}"))
		}
		if ok && len(value.Content) == 0 {
			text := strings.TrimRight(string(rest), " \r\n") + nl + block(strings.Repeat(" ", key.Column+1))
			all = append(all, yamlPlace{at - 2, len(rest) + 3, text})
		}
		all = append(all, yamlPlace{at, 0, flow + ", "}, yamlPlace{at, 0, flow})
	case value.Kind == yaml.MappingNode && len(value.Content) > 0:
		indent := strings.Repeat(" ", value.Content[0].Column-1)
		all = append(all, yamlPlace{f.lineAfter(key), 0, block(indent)})
	case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
		at, drop := f.offset(value), len(value.Value)
		if drop > 0 {
			all = append(all, yamlPlace{at, drop, "{" + flow + "}"})
		}
		if f.lineAfter(key) == end {
			all = append(all, yamlPlace{end, 0, open + block("  ")})
		}
		all = append(all, yamlPlace{f.lineAfter(key), 0, block(strings.Repeat(" ", key.Column+1))})
	}
	return all
}

// removeYAML removes the lines of an entry, or the entry of a mapping in braces if it is JSON.
func removeYAML(text []byte, within, name string) ([]byte, error) {
	before, err := parseYAML(text)
	if err != nil {
		return nil, err
	}
	servers, _ := before[within].(object)
	if _, has := servers[name]; !has {
		return nil, jsonc.ErrAbsent
	}
	f, err := readYAML(text)
	if err != nil {
		return nil, err
	}
	parent, mapping := member(f.root, within)
	key, value := member(mapping, name)
	if key == nil {
		return nil, fmt.Errorf("cannot remove %s.%s: it is part of an alias; remove it with an editor", within, name)
	}
	start, end := f.entryLines(key)
	if isFlow(mapping) {
		start, end = f.flowEntry(key, value)
	}
	out := slices.Concat(text[:start], text[end:])
	if at := f.offset(parent) + len(within); len(servers) == 1 && !isFlow(mapping) && text[at] == ':' {
		out = slices.Concat(text[:at+1], []byte(" {}"), text[at+1:start], text[end:])
	}
	after, err := parseYAML(out)
	if err == nil {
		err = sameOthers(before, after, within, name)
	}
	if servers, _ := after[within].(object); err != nil || servers[name] != nil {
		return nil, fmt.Errorf("cannot remove %s.%s: other values would change; remove it with an editor", within, name)
	}
	return out, nil
}

// entryLines returns the part of a text that contains an entry of a block mapping: its line and the
// following lines with a larger indent. Comments and empty lines at the end stay.
func (f *yamlFile) entryLines(key *yaml.Node) (start, end int) {
	start, end = f.lines[key.Line-1], f.lineAfter(key)
	for n := key.Line; n < len(f.lines); n++ {
		next := len(f.text)
		if n+1 < len(f.lines) {
			next = f.lines[n+1]
		}
		line := bytes.TrimRight(f.text[f.lines[n]:next], " \t\r\n")
		indent := len(line) - len(bytes.TrimLeft(line, " "))
		switch {
		case len(line) == 0, line[indent] == '#':
		case indent < key.Column:
			return start, end
		default:
			end = next
		}
	}
	return start, end
}

// flowEntry returns the part of a text with an entry of a flow mapping and a comma. The part is empty
// if the value is not JSON.
func (f *yamlFile) flowEntry(key, value *yaml.Node) (start, end int) {
	start = f.offset(key)
	end = jsonEnd(f.text, f.offset(value))
	if end < 0 {
		return start, start
	}
	rest := bytes.TrimLeft(f.text[end:], " \t\r\n")
	if bytes.HasPrefix(rest, []byte(",")) {
		rest = bytes.TrimLeft(rest[1:], " ")
		return start, len(f.text) - len(rest)
	}
	if before := bytes.TrimRight(f.text[:start], " \t\r\n"); bytes.HasSuffix(before, []byte(",")) {
		start = len(before) - 1
	}
	return start, end
}

// flowKeys matches the plain keys that this package writes.
var flowKeys = regexp.MustCompile(`([{,] ?)([A-Za-z][A-Za-z0-9_-]*): `)

// jsonEnd returns the offset after the value at an offset if it is JSON, or text that this package
// writes; -1 for another value.
func jsonEnd(text []byte, at int) int {
	if end, err := rawjson.End(text, at); err == nil {
		return end
	}
	depth := 0
	for i := at; i < len(text); i++ {
		switch text[i] {
		case '"':
			end, err := rawjson.End(text, i)
			if err != nil {
				return -1
			}
			i = end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				quoted := flowKeys.ReplaceAll(text[at:i+1], []byte(`$1"$2": `))
				if rawjson.Valid(quoted) == nil {
					return i + 1
				}
				return -1
			}
		case '#', '\'':
			return -1
		}
		if depth == 0 {
			return -1
		}
	}
	return -1
}
