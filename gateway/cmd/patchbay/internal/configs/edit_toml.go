package configs

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
)

// setTOML writes an entry as a table in place of the old entry, or at the end.
func setTOML(text []byte, within, name string, entry []field) ([]byte, error) {
	before, err := parseTOML(text)
	if err != nil {
		return nil, err
	}
	nl := newlineOf(text)
	var table strings.Builder
	fmt.Fprintf(&table, "[%s.%s]", keyOf(within), keyOf(name))
	for _, f := range entry {
		fmt.Fprintf(&table, "%s%s = %s", nl, keyOf(f.name), literalOf(f.value, " = "))
	}
	out, at := text, -1
	for _, span := range slices.Backward(entrySpans(text, within, name)) {
		out = slices.Concat(out[:span.start], out[span.end:])
		at = -1
		if span.header {
			at = span.start
		}
	}
	switch {
	case at >= 0: // the rest of the line is there
		out = slices.Concat(out[:at], []byte(table.String()), out[at:])
	case len(out) == 0 || string(out) == "\uFEFF":
		out = append(bytes.Clone(out), table.String()+nl...)
	case out[len(out)-1] == '\n':
		out = append(bytes.Clone(out), nl+table.String()+nl...)
	default:
		out = append(bytes.Clone(out), nl+nl+table.String()...)
	}
	after, err := parseTOML(out)
	if err != nil {
		return nil, fmt.Errorf("cannot add the table %s.%s: %w; write the other servers as tables, too: [%s.NAME]",
			within, name, err, within)
	}
	return out, sameOthers(before, after, within, name)
}

// removeTOML removes the tables and keys of an entry.
func removeTOML(text []byte, within, name string) ([]byte, error) {
	before, err := parseTOML(text)
	if err != nil {
		return nil, err
	}
	if servers, _ := before[within].(object); servers[name] == nil {
		return nil, jsonc.ErrAbsent
	}
	out := text
	for _, span := range slices.Backward(entrySpans(text, within, name)) {
		start, end := wholeLines(out, span.start, span.end)
		out = slices.Concat(out[:start], out[end:])
	}
	after, err := parseTOML(out)
	if err != nil {
		return nil, fmt.Errorf("cannot edit the file: %w", err)
	}
	if servers, _ := after[within].(object); servers[name] != nil {
		return nil, fmt.Errorf("cannot remove %s.%s: it is within the value of a key; remove it with an editor",
			within, name)
	}
	return out, sameOthers(before, after, within, name)
}

// wholeLines extends a part of a text to its line break, if a comment does not follow, and to an
// empty line before it.
func wholeLines(text []byte, start, end int) (from, to int) {
	rest := end
	for rest < len(text) && (text[rest] == ' ' || text[rest] == '\t' || text[rest] == '\r') {
		rest++
	}
	if rest < len(text) && text[rest] != '\n' {
		return start, end // a comment stays
	}
	atEnd := rest == len(text)
	if end = rest; !atEnd {
		end++
	}
	lines := 1 // line breaks before the part: an empty line, or two at the end of the text
	if atEnd {
		lines = 2
	}
	before := start
	for range lines {
		switch {
		case bytes.HasSuffix(text[:before], []byte("\r\n")):
			before -= 2
		case bytes.HasSuffix(text[:before], []byte("\n")):
			before--
		}
	}
	if !atEnd && before > 0 && text[before-1] != '\n' {
		before = start // the line before is not empty
	}
	return before, end
}

// A span is a part of a file of TOML with an entry.
type span struct {
	start, end int
	header     bool // it begins with the header of a table
}

// entrySpans returns the parts of a valid file with an entry: a table with its tables, or keys.
// Comments between the lines of a table are in its part.
func entrySpans(text []byte, within, name string) (all []span) {
	joins := false
	for _, s := range tomlStatements(text) {
		isEntry := len(s.path) > 1 && s.path[0] == within && s.path[1] == name
		if !isEntry {
			joins = false
			continue
		}
		if last := len(all) - 1; joins {
			all[last].end = s.end
		} else {
			all = append(all, span{s.start, s.end, s.header})
		}
		joins = true
	}
	return all
}

// A statement is a header of a table, or a key with its value.
type statement struct {
	start, end int
	path       []string // of the table or key, from the root
	header     bool
}

// tomlStatements returns the statements of a valid file. Of a file that is not valid it returns some.
func tomlStatements(text []byte) (all []statement) {
	s := &tomlScanner{text: text}
	if bytes.HasPrefix(text, []byte("\uFEFF")) {
		s.at = len("\uFEFF")
	}
	var table []string
	for s.skipSpace(true); s.at < len(text); s.skipSpace(true) {
		start := s.at
		if text[s.at] == '[' {
			s.at++
			if s.at < len(text) && text[s.at] == '[' {
				s.at++
			}
			table = s.key()
			for s.at < len(text) && text[s.at] == ']' {
				s.at++
			}
			all = append(all, statement{start, s.at, table, true})
		} else {
			key := s.key()
			s.at++ // the equals sign
			s.value()
			all = append(all, statement{start, s.at, slices.Concat(table, key), false})
		}
		if s.at <= start {
			return all
		}
	}
	return all
}

// A tomlScanner reads the tokens of a valid file.
type tomlScanner struct {
	text []byte
	at   int
}

// skipSpace skips spaces, and with lines also line breaks and comments.
func (s *tomlScanner) skipSpace(lines bool) {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; {
		case c == ' ' || c == '\t':
		case lines && (c == '\n' || c == '\r'):
		case lines && c == '#':
			for s.at+1 < len(s.text) && s.text[s.at+1] != '\n' {
				s.at++
			}
		default:
			return
		}
	}
}

// key reads a dotted key and the spaces after it.
func (s *tomlScanner) key() (path []string) {
	for {
		s.skipSpace(false)
		start := s.at
		if s.at < len(s.text) && (s.text[s.at] == '"' || s.text[s.at] == '\'') {
			s.quoted()
		} else {
			for s.at < len(s.text) && !bytes.ContainsRune([]byte(" \t.=]\r\n#"), rune(s.text[s.at])) {
				s.at++
			}
		}
		path = append(path, keyText(string(s.text[start:s.at])))
		s.skipSpace(false)
		if s.at >= len(s.text) || s.text[s.at] != '.' {
			return path
		}
		s.at++
	}
}

// keyText returns the text of a simple key.
func keyText(key string) string {
	var parsed map[string]any
	if err := toml.Unmarshal([]byte(key+"=1"), &parsed); err == nil {
		for name := range parsed {
			return name
		}
	}
	return key
}

// quoted skips a string of any of the four forms.
func (s *tomlScanner) quoted() {
	quote := s.text[s.at]
	end := []byte{quote}
	if triple := bytes.Repeat(end, 3); bytes.HasPrefix(s.text[s.at:], triple) {
		end = triple
	}
	for s.at += len(end); s.at < len(s.text); s.at++ {
		if bytes.HasPrefix(s.text[s.at:], end) {
			s.at += len(end)
			for len(end) > 1 && s.at < len(s.text) && s.text[s.at] == quote { // """" ends with a quote
				s.at++
			}
			return
		}
		if quote == '"' && s.text[s.at] == '\\' {
			s.at++
		}
	}
}

// value skips a value, to the end of its last token.
func (s *tomlScanner) value() {
	s.skipSpace(false)
	depth := 0
	for s.at < len(s.text) {
		switch c := s.text[s.at]; c {
		case '"', '\'':
			s.quoted()
			if depth == 0 {
				return
			}
			continue
		case '[', '{':
			depth++
		case ']', '}':
			if depth--; depth <= 0 {
				s.at++
				return
			}
		case '#', '\n', '\r':
			if depth == 0 {
				s.at = len(bytes.TrimRight(s.text[:s.at], " \t"))
				return
			}
			s.skipSpace(true)
			continue
		}
		s.at++
	}
	s.at = len(bytes.TrimRight(s.text[:min(s.at, len(s.text))], " \t"))
}
