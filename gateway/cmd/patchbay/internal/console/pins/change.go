package pins

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/diff"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/visible"
)

// A change is the difference between a pending form and the approved form.
type change struct {
	Place   int // among the forms that wait, from 1
	Digest  string
	Old     string // the digest of the approved form; "" for a new definition
	Choice  string // a choice in JSON
	Time    time.Time
	Members []member
	Same    []string // names of members that did not change
	Hidden  int      // characters of the pending form that a person does not see
	Lines   int      // of all members
	TooLong bool     // a form is too large to be kept
	Long    bool     // a person must read it by itself: no approval of many definitions contains it
}

const (
	// maxSteps limits the steps of the comparison of two forms. A definition of 64 KiB may contain 32,000
	// lines on each side, whose comparison takes seconds.
	maxSteps = 100_000
	// maxRead limits the lines of a change that a person reads among others: longer changes hide a line.
	maxRead = 500
	// maxKept limits the lines of the changes that are kept, about 20 MiB, and maxChanges their number: a
	// page shows up to 400 changes.
	maxKept, maxChanges = 200_000, 1000
)

// A changeKey identifies a change by the digests of its forms.
type changeKey struct{ old, now string }

// changes keeps changes, because a stream shows the same page again and again. It is safe for concurrent
// use.
type changes struct {
	mu    sync.Mutex // guards the fields below
	all   map[changeKey]change
	lines int // of all
}

// of returns how a pending form differs from the approved form, which is nil for a new definition.
func (c *changes) of(p *pin, old, now *form) change {
	key := changeKey{now: now.Digest}
	if old != nil {
		key.old = old.Digest
	}
	c.mu.Lock()
	known, ok := c.all[key]
	c.mu.Unlock()
	if !ok || len(now.Definition) == 0 || old != nil && len(old.Definition) == 0 {
		known = compare(old, now)
		c.keep(key, known)
	}
	text, _ := json.Marshal(choice{p.Identity, p.Kind, p.Name, now.Digest}) // texts
	known.Choice, known.Time = string(text), now.Time
	return known
}

// keep keeps a change. It drops all other changes if they have too many lines.
func (c *changes) keep(key changeKey, made change) {
	if made.TooLong {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil || c.lines+made.Lines > maxKept || len(c.all) == maxChanges {
		c.all, c.lines = map[changeKey]change{}, 0
	}
	c.lines += made.Lines
	c.all[key] = made
}

// A member is a member of the definition that changed.
type member struct {
	Name  string
	Lines []line
}

// A line is a line of a comparison.
type line struct {
	Kind, Mark string
	Parts      []part
}

// A part of a line is text, or names characters that a person does not see.
type part struct {
	Text   string
	Hidden string // such as U+200B
}

// compare returns how a pending form differs from the approved form, with all lines of the pending form in
// the members that changed.
func compare(old, now *form) change {
	c := change{Digest: now.Digest}
	var before json.RawMessage
	if old != nil {
		c.Old, before = old.Digest, old.Definition
	}
	if c.TooLong = len(now.Definition) == 0 || old != nil && len(before) == 0; c.TooLong {
		c.Long = true
		return c
	}
	was, is := membersOf(before), membersOf(now.Definition)
	steps := maxSteps
	for _, name := range memberNames(before, now.Definition) {
		if string(was[name]) == string(is[name]) || name == "name" && old == nil {
			c.Same = append(c.Same, name)
			continue
		}
		m := member{Name: name}
		all, isExact := diff.Complete(linesOf(was[name]), linesOf(is[name]), &steps)
		for _, l := range all {
			m.Lines = append(m.Lines, line{l.Kind, l.Mark, parts(l.Text)})
		}
		c.Lines += len(all)
		c.Long = c.Long || !isExact || c.Lines > maxRead
		c.Members = append(c.Members, m)
	}
	decoded, err := decodeStrings(now.Definition)
	if err == nil {
		c.Hidden = hiddenIn(string(decoded))
	}
	return c
}

// whole is the name of the only member of a definition that is not an object.
const whole = "definition"

// membersOf returns the members of a definition.
func membersOf(definition json.RawMessage) map[string]json.RawMessage {
	all := map[string]json.RawMessage{}
	if rawjson.Kind(definition) != '{' {
		if len(definition) > 0 {
			all[whole] = definition
		}
		return all
	}
	for name, value := range rawjson.Members(definition) {
		all[string(name)] = value
	}
	return all
}

// memberNames returns the names of the members of both definitions: the texts that models read
// first.
func memberNames(a, b json.RawMessage) []string {
	all := membersOf(a)
	for name := range membersOf(b) {
		all[name] = nil
	}
	first := []string{"description", "inputSchema", "title"}
	rank := func(name string) int {
		if i := slices.Index(first, name); i >= 0 {
			return i
		}
		return len(first)
	}
	return slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a, b))
	})
}

// linesOf returns the lines of a value: of a text its sentences, otherwise the indented JSON.
func linesOf(value json.RawMessage) (lines []string) {
	if len(value) == 0 {
		return nil
	}
	if rawjson.Kind(value) == '"' {
		if text, err := rawjson.Unquote(value); err == nil {
			for paragraph := range strings.SplitSeq(text, "\n") {
				lines = append(lines, sentences(paragraph)...)
			}
			return lines
		}
	}
	text, err := decodeStrings(value)
	if err != nil {
		return []string{string(value)}
	}
	return strings.Split(string(text), "\n")
}

// decodeStrings returns indented JSON whose strings contain their characters without escapes, so
// that hidden characters are found however the server wrote them.
func decodeStrings(value json.RawMessage) ([]byte, error) {
	return jsontext.AppendFormat(nil, value, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true),
		jsontext.PreserveRawStrings(false), jsontext.Multiline(true), jsontext.WithIndent("  "))
}

// maxSentence limits a line of a text, in bytes: the comparison shows whole lines.
const maxSentence = 300

// sentences returns the sentences of a paragraph, so that a change within a long line stays
// readable.
func sentences(paragraph string) (all []string) {
	for len(paragraph) > 0 {
		end := len(paragraph)
		if i := strings.Index(paragraph, ". "); i >= 0 {
			end = i + len(". ")
		}
		for end > maxSentence {
			if end = len(strings.ToValidUTF8(paragraph[:maxSentence], "")); end == 0 {
				end = maxSentence
			}
		}
		all, paragraph = append(all, paragraph[:end]), paragraph[end:]
	}
	if all == nil {
		all = []string{""}
	}
	return all
}

// maxNamed limits the hidden characters in a row that are named.
const maxNamed = 6

// parts returns the parts of a line.
func parts(text string) (all []part) {
	from := 0
	var hidden []string
	flush := func() {
		if len(hidden) > maxNamed {
			hidden = append(hidden[:maxNamed:maxNamed], fmt.Sprintf("… %d characters", len(hidden)))
		}
		if len(hidden) > 0 {
			all = append(all, part{Hidden: strings.Join(hidden, " ")})
		}
		hidden = nil
	}
	for at, r := range text {
		isHidden := r != '\t' && visible.Hidden(r)
		if isHidden && from < at {
			flush()
			all = append(all, part{Text: text[from:at]})
		}
		if isHidden {
			hidden = append(hidden, fmt.Sprintf("U+%04X", r))
			from = at + len(string(r))
		} else if len(hidden) > 0 {
			flush()
		}
	}
	flush()
	if from < len(text) {
		all = append(all, part{Text: text[from:]})
	}
	return all
}

// hiddenIn returns the number of characters that a person does not see.
func hiddenIn(text string) (n int) {
	for _, r := range text {
		if r != '\t' && r != '\n' && r != '\r' && visible.Hidden(r) {
			n++
		}
	}
	return n
}
