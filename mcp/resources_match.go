package mcp

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A uriMatcher finds the variables of a URI that a template made. It is made of regular expressions, so the time it takes
// is linear in the length of the URI, whatever the URI is.
//
// Where a URI can be read in several ways, a variable takes as much as it can, but as little as it can before another
// one that may be left out, so that {+path}{?q} finds the query. A URI that no expansion gives is read once more,
// with values that hold what an expansion would have encoded, as long as it may stand there in a URI and means nothing
// to the template: people and models write user/bob@example.com.
type uriMatcher struct {
	parts    []templatePart
	lists    map[string]bool
	patterns [2]*regexp.Regexp // of what expansions give, and of what else is taken
}

// matcher returns the matcher of a template. The variables of lists are []string, all others strings. A variable that
// stands in several places is found if the first reading of the URI is the same in all.
func (t *uriTemplate) matcher(lists map[string]bool) (*uriMatcher, error) {
	m := &uriMatcher{parts: t.parts, lists: lists}
	for _, p := range t.parts {
		if err := m.check(p); err != nil {
			return nil, err
		}
	}
	for i, lenient := range []bool{false, true} {
		pattern, err := regexp.Compile(m.pattern(lenient))
		if err != nil {
			return nil, fmt.Errorf("it is too complex: %w", err)
		}
		m.patterns[i] = pattern
	}
	return m, nil
}

func (m *uriMatcher) check(p templatePart) error {
	for i, v := range p.vars {
		switch list := m.lists[v.name]; {
		case v.explode && !list:
			return fmt.Errorf("variable %q is exploded, so it must be a list", v.name)
		case v.prefix > 0 && list:
			return fmt.Errorf("variable %q has a prefix, so it must not be a list", v.name)
		case slices.ContainsFunc(p.vars[:i], func(before templateVar) bool { return before.name == v.name }):
			return fmt.Errorf("variable %q stands twice in one expression", v.name)
		}
	}
	return nil
}

// pattern returns the regular expression of all URIs.
func (m *uriMatcher) pattern(lenient bool) string {
	pattern := "^"
	for i, p := range m.parts {
		w := patternWriter{part: p, lists: m.lists, lenient: lenient}
		w.brief = i+1 < len(m.parts) && m.parts[i+1].op != nil && m.parts[i+1].op.first != ""
		switch {
		case p.op == nil:
			pattern += regexp.QuoteMeta(p.literal)
		case p.op.named:
			pattern += w.named()
		default:
			pattern += w.unnamed()
		}
	}
	return pattern + "$"
}

// A patternWriter writes the pattern of one expression.
type patternWriter struct {
	part    templatePart
	lists   map[string]bool
	lenient bool // values hold more than an expansion leaves unencoded
	brief   bool // values take as little as they can
}

// unnamed returns the pattern of an expression whose variables are known by their place: a group for each. Those at the
// end may be absent.
func (w patternWriter) unnamed() string {
	p, pattern := w.part, ""
	for i := len(p.vars) - 1; i >= 0; i-- {
		pattern = "(" + w.value(p.vars[i]) + ")" + pattern
		if i > 0 {
			pattern = "(?:" + regexp.QuoteMeta(p.op.sep) + pattern + ")?"
		}
		w.brief = true // all but the last stand before one that may be left out
	}
	if p.op.first != "" {
		pattern = "(?:" + regexp.QuoteMeta(p.op.first) + pattern + ")?"
	}
	return pattern
}

// named returns the pattern of an expression whose variables carry their names: one group, in which they may stand in
// any order.
func (w patternWriter) named() string {
	items := make([]string, len(w.part.vars))
	for i, v := range w.part.vars {
		items[i] = regexp.QuoteMeta(v.name) + "(?:=" + w.value(v) + ")?"
	}
	op, item := w.part.op, "(?:"+strings.Join(items, "|")+")"
	return "(?:" + regexp.QuoteMeta(op.first) + "(" + item + "(?:" + op.sep + item + ")*" + w.lazily() + "))?"
}

func (w patternWriter) lazily() string {
	if w.brief {
		return "?"
	}
	return ""
}

// value returns the pattern of one variable's value.
func (w patternWriter) value(v templateVar) string {
	op := w.part.op
	list := w.lists[v.name] && !(op.named && v.explode) // there the items stand apart already
	more := ""
	switch {
	case op.reserved:
		more = "!$&'()*+,;=:@/?#[]"
	case w.lenient:
		more = "!$&'()*+,;=:@"
		if op.first == "?" || op.first == "&" {
			more += "/?"
		}
		if op.named || list || len(w.part.vars) > 1 {
			more = strings.ReplaceAll(more, op.sep, "")
		}
		if list {
			more = strings.ReplaceAll(more, op.listSep(v), "")
		}
	}
	one := "(?:[-A-Za-z0-9._~" + regexp.QuoteMeta(more) + "]|%[0-9A-Fa-f]{2})*" + w.lazily()
	if !list {
		return one
	}
	return one + "(?:" + regexp.QuoteMeta(op.listSep(v)) + one + ")*" + w.lazily()
}

// listSep is what stands between two items of a list.
func (op *templateOperator) listSep(v templateVar) string {
	if v.explode {
		return op.sep
	}
	return ","
}

// match returns the variables of a URI, decoded, as strings and []string; undefined ones are absent. False means that it
// is no URI of the template.
func (m *uriMatcher) match(uri string) (map[string]any, bool) {
	if len(uri) > maxURI {
		return nil, false
	}
	for _, pattern := range m.patterns {
		if found := pattern.FindStringSubmatchIndex(uri); found != nil {
			if vars, ok := m.read(uri, found[2:]); ok {
				return vars, true
			}
		}
	}
	return nil, false
}

// read returns the variables that are found in the groups of a pattern.
func (m *uriMatcher) read(uri string, groups []int) (map[string]any, bool) {
	r := uriReading{lists: m.lists, values: map[string]any{}}
	next := func() (text string, ok bool) {
		start, end := groups[0], groups[1]
		groups = groups[2:]
		if start < 0 {
			return "", false
		}
		return uri[start:end], true
	}
	for _, p := range m.parts {
		if p.op != nil && !r.take(p, next) {
			return nil, false
		}
	}
	return r.values, r.agree()
}

// A uriReading is what a URI says of its template's variables.
type uriReading struct {
	lists    map[string]bool
	values   map[string]any
	prefixes []uriPrefix
}

// A uriPrefix is the beginning of a variable's value.
type uriPrefix struct {
	templateVar
	text string
}

// take notes the variables of one expression. False means that they contradict what is noted already.
func (r *uriReading) take(p templatePart, next func() (string, bool)) bool {
	items := make([][]string, len(p.vars))
	if p.op.named {
		text, ok := next()
		if ok && !r.splitNamed(p, text, items) {
			return false
		}
	} else {
		for i, v := range p.vars {
			if text, ok := next(); ok {
				items[i] = r.split(p.op, v, text)
			}
		}
		if p.op.first == "" && slices.Equal(items[0], []string{""}) && (len(items) == 1 || items[1] == nil) {
			items[0] = nil // nothing at all is no value
		}
	}
	for i, v := range p.vars {
		if items[i] != nil && !r.note(v, items[i]) {
			return false
		}
	}
	return true
}

func (r *uriReading) splitNamed(p templatePart, text string, items [][]string) bool {
	for item := range strings.SplitSeq(text, p.op.sep) {
		name, value, _ := strings.Cut(item, "=")
		i := slices.IndexFunc(p.vars, func(v templateVar) bool { return v.name == name })
		switch v := p.vars[i]; {
		case v.explode:
			items[i] = append(items[i], value)
		case items[i] != nil:
			return false
		default:
			items[i] = r.split(p.op, v, value)
		}
	}
	return true
}

// split returns the items of a list, or the one item that a string is.
func (r *uriReading) split(op *templateOperator, v templateVar, text string) []string {
	if !r.lists[v.name] {
		return []string{text}
	}
	return strings.Split(text, op.listSep(v))
}

// note decodes the value of one variable and keeps it. A variable that stands in several places must be the same in all.
func (r *uriReading) note(v templateVar, items []string) bool {
	for i, item := range items {
		text, ok := unescape(item)
		if !ok {
			return false
		}
		items[i] = text
	}
	if v.prefix > 0 {
		r.prefixes = append(r.prefixes, uriPrefix{v, items[0]})
		return utf8.RuneCountInString(items[0]) <= v.prefix
	}
	var value any = items
	if !r.lists[v.name] {
		value = items[0]
	}
	before, ok := r.values[v.name]
	r.values[v.name] = value
	return !ok || reflect.DeepEqual(before, value)
}

// agree reports whether the prefixes are those of their variables. A variable of which only prefixes are known
// is the longest of them.
func (r *uriReading) agree() bool {
	slices.SortFunc(r.prefixes, func(a, b uriPrefix) int { return cmp.Compare(b.prefix, a.prefix) })
	for _, p := range r.prefixes {
		if _, ok := r.values[p.name]; !ok {
			r.values[p.name] = p.text
		}
		if firstRunes(r.values[p.name].(string), p.prefix) != p.text {
			return false
		}
	}
	return true
}
