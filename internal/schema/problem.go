package schema

import (
	"bytes"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

const maxProblems = 5

// A ValidationError contains the problems of a JSON value. Its text helps a model to correct the
// value.
type ValidationError struct {
	Problems []Problem // 1 to 5
}

// A Problem is a problem of a value.
type Problem struct {
	Path string // JSON pointer to the invalid value
	Text string // the value and the allowed values
}

// Error returns all problems, with their paths.
func (e *ValidationError) Error() string {
	var b strings.Builder
	for i, p := range e.Problems {
		if i > 0 {
			b.WriteString("; ")
		}
		if p.Path != "" {
			b.WriteString(p.Path + ": ")
		}
		b.WriteString(p.Text)
	}
	return b.String()
}

func shown(raw []byte) string {
	const longest = 60
	switch jsonscan.Kind(raw) {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '"':
		return "the string " + string(quote(cut(string(unquote(raw)), longest)))
	case '0':
		return "the number " + cut(string(raw), longest)
	}
	return string(raw)
}

// cut shortens text to at most longest bytes and an ellipsis.
func cut(text string, longest int) string {
	if len(text) <= longest {
		return text
	}
	for longest > 0 && !utf8.RuneStart(text[longest]) {
		longest--
	}
	return text[:longest] + "…"
}

func shortList(values []string) string {
	const most, longest = 20, 60
	var b strings.Builder
	for i, v := range values {
		if i == most {
			b.WriteString(" and " + strconv.Itoa(len(values)-most) + " more")
			break
		}
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(cut(v, longest))
	}
	return b.String()
}

// Nearest returns the candidate that is most similar to a misspelt name, or "".
func Nearest(name string, candidates []string) string {
	const longest, most = 64, 1000 // more would take too much time
	if len(name) < 2 || len(name) > longest {
		return ""
	}
	plain := nameMarks.Replace(strings.ToLower(name))
	best, bestDistance := "", max(1, len(name)/3)+1
	for _, c := range candidates[:min(len(candidates), most)] {
		if len(c) > longest {
			continue
		}
		if d := distance(plain, nameMarks.Replace(strings.ToLower(c))); d < bestDistance {
			best, bestDistance = c, d
		}
	}
	return best
}

var nameMarks = strings.NewReplacer("_", "", "-", "", " ", "")

// distance returns the number of bytes to insert, delete, replace or swap between two names.
func distance(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			d := min(last[j+1]+1, row[j]+1)
			if a[i] == b[j] {
				d = min(d, last[j])
			} else {
				d = min(d, last[j]+1)
			}
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				d = min(d, before[j-1]+1)
			}
			row[j+1] = d
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// lookup returns the value that a JSON pointer names.
func lookup(doc []byte, pointer string) ([]byte, bool) {
	at := bytes.TrimSpace(doc)
	if pointer == "" {
		return at, len(at) > 0
	}
	for step := range strings.SplitSeq(pointer[1:], "/") {
		var ok bool
		if at, ok = child(at, pointerUnescapes.Replace(step)); !ok {
			return nil, false
		}
	}
	return at, true
}

var pointerUnescapes = strings.NewReplacer("~1", "/", "~0", "~")

// child returns the member or the item of a container that a step of a JSON pointer names.
func child(raw []byte, step string) ([]byte, bool) {
	if jsonscan.Kind(raw) == '{' {
		return jsonscan.Get(raw, step)
	}
	index, err := strconv.Atoi(step)
	if err != nil {
		return nil, false
	}
	for item := range jsonscan.Elements(raw) {
		if index == 0 {
			return item, true
		}
		index--
	}
	return nil, false
}
