package pin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/patchbay-mcp/patchbay/host/internal/catalogue"
	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/visible"
)

const (
	// maxDiffLines limits the lines of a definition that are compared, and maxDiffCells the steps
	// of the comparison: a definition of 64 KiB may contain more lines than a user reads.
	maxDiffLines, maxDiffCells = 5000, 4 << 20
	// maxDiffText limits a line, in bytes. The rest is in the next line.
	maxDiffText = 400
)

// Diff returns how each pending form differs from the newest approved form: lines that begin with
// "- " for approved values, "+ " for pending values, each with the JSON pointer of the value, and
// "! " for characters that a user cannot see. Control, bidirectional, tag and other invisible
// characters are escaped as \u{202e}, so that the lines are safe to show. Without a pending form,
// Diff returns the lines of the approved form.
func (p *Pin) Diff() (lines []string) {
	var old Definition
	if len(p.Approved) > 0 {
		old = p.Approved[0]
	}
	if len(p.Pending) == 0 {
		return appendDefinition(nil, "  ", old)
	}
	for _, now := range p.Pending {
		if len(p.Approved) == 0 || old.JSON == nil || now.JSON == nil {
			if len(p.Approved) > 0 {
				lines = appendDefinition(lines, "- ", old)
			}
			lines = appendDefinition(lines, "+ ", now)
			continue
		}
		lines = appendDiff(lines, flatten(old.JSON), flatten(now.JSON))
		lines = appendWarnings(lines, flatten(now.JSON))
	}
	return lines
}

func appendDefinition(lines []string, sign string, d Definition) []string {
	if d.JSON == nil {
		return append(lines, fmt.Sprintf("! the definition is too large to be shown: SHA-256 %s", d.Digest))
	}
	all := flatten(d.JSON)
	for _, l := range all {
		lines = append(lines, sign+l.String())
	}
	return appendWarnings(lines, all)
}

// A textLine is a scalar of a JSON value, or a line of a string.
type textLine struct {
	path string
	text string // a line of a string, or the JSON of another scalar
	kind byte   // of the value, as jsonscan.Kind returns it
}

// String returns the line as it is shown.
func (l textLine) String() string {
	if l.kind != '"' {
		return l.path + " " + visible.EscapeAll(l.text)
	}
	return l.path + ` "` + visible.EscapeAll(l.text) + `"`
}

// flatten returns the lines of a JSON value, with the members of objects in the order of their
// names. Text other than JSON is a single line.
func flatten(raw json.RawMessage) []textLine {
	if jsonscan.Valid(raw, jsonscan.Limits{}) != nil {
		return []textLine{{"", string(raw), '"'}}
	}
	return appendLines(nil, "", bytes.TrimSpace(raw))
}

func appendLines(lines []textLine, path string, raw []byte) []textLine {
	if len(lines) >= maxDiffLines {
		return lines
	}
	before := len(lines)
	switch kind := jsonscan.Kind(raw); kind {
	case '{':
		members := map[string][]byte{}
		for key, value := range jsonscan.Members(raw) {
			members[string(key)] = value
		}
		for _, key := range slices.Sorted(maps.Keys(members)) {
			lines = appendLines(lines, path+"/"+visible.EscapeAll(pointerStep.Replace(key)), members[key])
		}
	case '[':
		n := 0
		for value := range jsonscan.Elements(raw) {
			lines = appendLines(lines, path+"/"+strconv.Itoa(n), value)
			n++
		}
	case '"':
		text, _ := jsonscan.Unquote(raw)
		for line := range strings.SplitSeq(text, "\n") {
			for len(line) > maxDiffText {
				cut := len(strings.ToValidUTF8(line[:maxDiffText], ""))
				lines, line = append(lines, textLine{path, line[:cut], kind}), line[cut:]
			}
			lines = append(lines, textLine{path, line, kind})
		}
		return lines
	}
	if len(lines) == before {
		lines = append(lines, textLine{path, string(raw), jsonscan.Kind(raw)})
	}
	return lines
}

var pointerStep = strings.NewReplacer("~", "~0", "/", "~1")

// appendDiff appends the lines that only one of two definitions contains.
func appendDiff(lines []string, a, b []textLine) []string {
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	var common [][]int32 // [i][j]: the length of the longest common subsequence of a[i:] and b[j:]
	if len(a)*len(b) <= maxDiffCells {
		common = make([][]int32, len(a)+1)
		for i := range common {
			common[i] = make([]int32, len(b)+1)
		}
		for i := len(a) - 1; i >= 0; i-- {
			for j := len(b) - 1; j >= 0; j-- {
				if common[i][j] = max(common[i+1][j], common[i][j+1]); a[i] == b[j] {
					common[i][j] = common[i+1][j+1] + 1
				}
			}
		}
	}
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case common != nil && i < len(a) && j < len(b) && a[i] == b[j]:
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common == nil || common[i+1][j] >= common[i][j+1]):
			lines = append(lines, "- "+a[i].String())
			i++
		default:
			lines = append(lines, "+ "+b[j].String())
			j++
		}
	}
	return lines
}

// appendWarnings appends the characters in the lines of a definition that a user cannot see.
func appendWarnings(lines []string, all []textLine) []string {
	const most = 5 // characters that are named
	counts := map[string]int{}
	named := map[string][]string{}
	var paths []string
	for _, l := range all {
		hidden := append(hiddenRunes(l.path), hiddenRunes(l.text)...)
		if len(hidden) == 0 {
			continue
		}
		if counts[l.path] == 0 {
			paths = append(paths, l.path)
		}
		counts[l.path] += len(hidden)
		for _, r := range hidden {
			if name := fmt.Sprintf("%U (%s)", r, hiddenKind(r)); len(named[l.path]) < most &&
				!slices.Contains(named[l.path], name) {
				named[l.path] = append(named[l.path], name)
			}
		}
	}
	for _, path := range paths {
		lines = append(lines, fmt.Sprintf("! %s has %d characters that are not visible: %s", path, counts[path],
			strings.Join(named[path], ", ")))
	}
	if len(all) >= maxDiffLines {
		lines = append(lines, fmt.Sprintf("! only the first %d lines are compared", maxDiffLines))
	}
	return lines
}

// hiddenRunes returns the characters of a line that a user does not see, except tabs.
func hiddenRunes(text string) (hidden []rune) {
	for _, r := range text {
		if r != '\t' && visible.Hidden(r) {
			hidden = append(hidden, r)
		}
	}
	return hidden
}

func hiddenKind(r rune) string {
	switch {
	case r >= 0xE0000 && r <= 0xE007F:
		return "tag"
	case unicode.Is(unicode.Bidi_Control, r):
		return "bidirectional"
	case unicode.IsControl(r):
		return "control"
	}
	return "invisible"
}

// changedMembers returns the names of the members in which two definitions differ, as text.
func changedMembers(old, now json.RawMessage) string {
	if !jsonscan.IsObject(old) || !jsonscan.IsObject(now) {
		return ""
	}
	const most = 5
	var names []string
	add := func(a, b json.RawMessage) {
		for key, value := range jsonscan.Members(a) {
			other, ok := jsonscan.Get(b, string(key))
			if name := fmt.Sprintf("%.40q", key); (!ok || catalogue.DigestOf(value) != catalogue.DigestOf(other)) &&
				!slices.Contains(names, name) && len(names) <= most {
				names = append(names, name)
			}
		}
	}
	add(now, old)
	add(old, now)
	if len(names) > most {
		names[most] = "others"
	}
	return strings.ReplaceAll(strings.Join(names, ", "), `"`, "")
}

// hasHidden reports whether a string of a definition contains characters that users do not see.
func hasHidden(raw json.RawMessage) bool {
	return slices.ContainsFunc(flatten(raw), func(l textLine) bool { return len(hiddenRunes(l.text)) > 0 })
}

// Describe returns the status of a quarantined definition as a clause, with the changed members.
func (p *Pin) Describe() string {
	what := fmt.Sprintf("%s %.128q", p.Kind, p.Name)
	if p.Kind == Server {
		what = "its " + p.Name
	}
	status := "is new since the server was approved"
	var last Definition
	if len(p.Pending) > 0 {
		last = p.Pending[0]
	}
	if len(p.Approved) > 0 {
		status = "has changed since it was approved"
		if members := changedMembers(p.Approved[0].JSON, last.JSON); members != "" {
			status += " (" + members + ")"
		}
	}
	if hasHidden(last.JSON) {
		status += " and has characters that are not visible"
	}
	return "the definition of " + what + " " + status
}
