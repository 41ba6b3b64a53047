package schema

import (
	"slices"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// explain evaluates an invalid value again and collects its problems.
func (e *evaluation) explain(root *node, at int) error {
	if !e.spent() {
		e.reporting = true
		e.frames, e.scope = 0, e.scope[:0]
		e.value(root, at, nil)
	}
	if len(e.problems) == 0 {
		text := "does not match the schema"
		if e.spent() {
			text = "takes more than " + strconv.Itoa(MaxSteps) + " steps to check, want a smaller or simpler value"
		}
		e.problems = []Problem{{Text: text}}
	}
	return &ValidationError{Problems: e.problems}
}

// report adds a problem of the value at an offset, up to maxProblems.
func (e *evaluation) report(at int, text string) {
	const longestPath, longestText = 256, 1024
	if !e.reporting || !e.afford(1+at/bytesPerStep) {
		return
	}
	p := Problem{Path: cut(pointerTo(e.doc, at), longestPath), Text: cut(text, longestText)}
	if !slices.Contains(e.problems, p) {
		e.problems = append(e.problems, p)
	}
	e.reporting = len(e.problems) < maxProblems
}

func (e *evaluation) got(at int) string {
	end := skipValue(e.doc, at)
	e.spend((end - at) / bytesPerStep)
	return "got " + shown(e.doc[at:end])
}

func (e *evaluation) reportGot(at int, want, what string) {
	if e.reporting {
		e.report(at, e.got(at)+", want "+want+what)
	}
}

func (e *evaluation) reportCount(at, got, want int, relation, noun string) {
	if !e.reporting {
		return
	}
	if got != 1 {
		noun = plural(noun)
	}
	e.report(at, "got "+strconv.Itoa(got)+" "+noun+", want "+relation+" "+strconv.Itoa(want))
}

func plural(noun string) string {
	first, rest, more := strings.Cut(noun, " ")
	if stem, ok := strings.CutSuffix(first, "y"); ok {
		first = stem + "ie"
	}
	if first += "s"; more {
		return first + " " + rest
	}
	return first
}

func (e *evaluation) reportType(n *node, at int) {
	if !e.reporting {
		return
	}
	text := e.got(at) + ", want " + typeWords(n.types)
	if plain := inner(e.doc[at:skipString(e.doc, at)]); e.doc[at] == '"' && n.types.takes(plain) {
		text += ": write it without quotes"
	}
	e.report(at, text)
}

// takes reports whether text is JSON of any of the types.
func (t typeSet) takes(text []byte) bool {
	e := evaluation{doc: text, steps: MaxSteps}
	_, ok := e.value(&node{types: t}, 0, nil)
	return ok && jsonscan.Valid(text, jsonscan.Limits{}) == nil
}

// typeWords lists types as in "a string, a number or null".
func typeWords(t typeSet) string {
	names := t.names()
	for i, name := range names {
		if name != "null" {
			names[i] = describeType(name)
		}
	}
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

func (e *evaluation) reportEnum(n *node, at int) {
	if e.reporting {
		e.report(at, e.got(at)+", want "+e.oneOf(n.enum.values, at))
	}
}

// oneOf lists values, and suggests the value that is most similar to a string.
func (e *evaluation) oneOf(values []string, at int) string {
	if len(values) == 1 {
		return values[0]
	}
	text := "one of " + shortList(values)
	if e.doc[at] != '"' {
		return text
	}
	var words []string
	for _, v := range values {
		if v[0] == '"' {
			words = append(words, string(unquote([]byte(v))))
		}
	}
	if like := Nearest(string(unquote(e.doc[at:skipString(e.doc, at)])), words); like != "" {
		text += " (did you mean " + string(quote(like)) + "?)"
	}
	return text
}

func (e *evaluation) reportRequired(n *node, at int) {
	if !e.reporting {
		return
	}
	for _, p := range n.object.properties {
		if !p.required || e.has(at, p.name) {
			continue
		}
		text := "missing required property " + string(quote(p.name))
		if p.node != nil && p.node.types != 0 {
			text += " (" + typeWords(p.node.types) + ")"
		}
		e.report(at, text)
	}
}

// reportUnknown reports the member whose name is at an offset as unknown.
func (e *evaluation) reportUnknown(r *objectRules, at, nameEnd int) {
	if !e.reporting {
		return
	}
	name := string(unquote(e.doc[at:nameEnd]))
	text := "unknown property " + string(quote(cut(name, 60)))
	var known []string
	for _, p := range r.properties {
		known = append(known, p.name)
	}
	e.spend(len(known))
	if like := Nearest(name, known); like != "" {
		text += " (did you mean " + string(quote(like)) + "?)"
	}
	switch {
	case len(known) == 0:
		text += ", want no properties"
	case e.listed != r: // list them once
		text += ", known are " + shortList(known)
		e.listed = r
	}
	e.report(at, text)
}

// reportChoice reports that a value matches no alternative, or too many. If it is clear which
// alternative was meant, its problems are reported, otherwise the types or values of all.
func (e *evaluation) reportChoice(branches []*node, at, fitting int) {
	if !e.reporting {
		return
	}
	if fitting > 0 {
		count := strconv.Itoa(len(branches))
		e.report(at, e.got(at)+", which fits more than one of "+count+" alternatives, want exactly one")
		return
	}
	if values := allEnums(branches); values != nil {
		e.report(at, e.got(at)+", want "+e.oneOf(values, at))
		return
	}
	var fit []*node // by their kind
	var types typeSet
	for _, b := range branches {
		b = b.target()
		types |= b.types
		if e.accepts(&node{types: b.types, enum: b.enum}, at, nil) {
			fit = append(fit, b)
		}
	}
	if e.reportTag(fit, at) {
		return
	}
	if best := e.fewest(fit, at); best != nil {
		e.problems = append(e.problems, best[:min(len(best), maxProblems-len(e.problems))]...)
		e.reporting = len(e.problems) < maxProblems
		return
	}
	text := e.got(at) + ", which fits none of " + strconv.Itoa(len(branches)) + " alternatives"
	if len(fit) == 0 && types != 0 {
		text = e.got(at) + ", want " + typeWords(types)
	}
	e.report(at, text)
}

// allEnums returns the values of alternatives that are all enums, or nil.
func allEnums(branches []*node) []string {
	var values []string
	for _, b := range branches {
		b = b.target()
		if b.enum == nil {
			return nil
		}
		values = append(values, b.enum.values...)
	}
	return values
}

// reportTag looks for a property that is an enum in all alternatives and so selects an alternative.
// It reports the problems of the selected alternative, or the possible values of the property.
func (e *evaluation) reportTag(branches []*node, at int) bool {
	if len(branches) < 2 || e.doc[at] != '{' || branches[0].object == nil {
		return false
	}
	for _, p := range branches[0].object.properties {
		if !e.afford(len(branches)) {
			return false
		}
		tags := make([]*node, 0, len(branches))
		for _, b := range branches {
			if tag := b.tag(p.name); tag != nil {
				tags = append(tags, tag)
			}
		}
		values := allEnums(tags)
		valueAt, present := e.find(at, p.name)
		if len(tags) < len(branches) || values == nil || !present {
			continue
		}
		for i, tag := range tags {
			if e.accepts(tag, valueAt, nil) {
				e.value(branches[i], at, nil)
				return true
			}
		}
		e.report(valueAt, e.got(valueAt)+", want "+e.oneOf(values, valueAt))
		return true
	}
	return false
}

// tag returns the schema of a property if it is an enum, or nil.
func (n *node) tag(name string) *node {
	if n.object == nil {
		return nil
	}
	i, ok := n.object.index[name]
	if !ok || n.object.properties[i].node == nil || n.object.properties[i].node.target().enum == nil {
		return nil
	}
	return n.object.properties[i].node.target()
}

func (e *evaluation) fewest(branches []*node, at int) []Problem {
	outer := e.problems
	defer func() { e.problems, e.reporting = outer, true }()
	var best []Problem
	for _, b := range branches {
		e.problems, e.reporting = nil, true
		e.value(b, at, nil)
		if len(e.problems) > 0 && (best == nil || len(e.problems) < len(best)) {
			best = e.problems
		}
	}
	return best
}
