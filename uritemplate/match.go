package uritemplate

import (
	"cmp"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// A Matcher finds the variables of a URI that a template made. It uses regular expressions, so
// matching takes time linear in the length of the URI.
//
// If a URI is ambiguous, a variable matches as much as possible, except before an optional
// variable, where it matches as little as possible, so that {+path}{?q} finds the query. If a URI
// does not match, it is matched a second time by a lenient pattern, whose values may contain
// unencoded characters that are not delimiters of the template: people and models write
// user/bob@example.com.
type Matcher struct {
	parts    []part
	lists    map[string]bool
	patterns [2]*regexp.Regexp // strict and lenient
}

// Matcher returns the matcher of the template. The values of the variables in lists are []string,
// the values of all others are strings. A variable that occurs more than once matches only if its
// values are equal.
func (t *Template) Matcher(lists map[string]bool) (*Matcher, error) {
	m := &Matcher{parts: t.parts, lists: lists}
	for _, p := range t.parts {
		if err := m.check(p); err != nil {
			return nil, err
		}
	}
	for i, lenient := range []bool{false, true} {
		pattern, err := regexp.Compile(m.pattern(lenient))
		if err != nil {
			return nil, fmt.Errorf("template too complex: %w", err)
		}
		m.patterns[i] = pattern
	}
	return m, nil
}

func (m *Matcher) check(p part) error {
	for i, v := range p.vars {
		switch list := m.lists[v.name]; {
		case v.explode && !list:
			return fmt.Errorf("variable %q has an explode modifier, want a list", v.name)
		case v.prefix > 0 && list:
			return fmt.Errorf("variable %q has a prefix modifier, want a string", v.name)
		case slices.ContainsFunc(p.vars[:i], func(before variable) bool { return before.name == v.name }):
			return fmt.Errorf("variable %q occurs twice in one expression", v.name)
		}
	}
	return nil
}

// pattern returns the regular expression that matches the URIs of the template.
func (m *Matcher) pattern(lenient bool) string {
	pattern := "^"
	for i, p := range m.parts {
		w := patternWriter{part: p, lists: m.lists, lenient: lenient}
		w.lazy = i+1 < len(m.parts) && m.parts[i+1].op != nil && m.parts[i+1].op.first != ""
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

// A patternWriter writes the pattern of an expression.
type patternWriter struct {
	part    part
	lists   map[string]bool
	lenient bool // values may contain unencoded characters
	lazy    bool // values match as little as possible
}

// unnamed returns the pattern of an expression whose variables are known by their position: a
// group for each. The last variables may be absent.
func (w patternWriter) unnamed() string {
	p, pattern := w.part, ""
	for i := len(p.vars) - 1; i >= 0; i-- {
		pattern = "(" + w.value(p.vars[i]) + ")" + pattern
		if i > 0 {
			pattern = "(?:" + regexp.QuoteMeta(p.op.sep) + pattern + ")?"
		}
		w.lazy = true // every variable but the last precedes an optional variable
	}
	if p.op.first != "" {
		pattern = "(?:" + regexp.QuoteMeta(p.op.first) + pattern + ")?"
	}
	return pattern
}

// named returns the pattern of an expression with named variables: a group, which matches the
// variables in any order.
func (w patternWriter) named() string {
	items := make([]string, len(w.part.vars))
	for i, v := range w.part.vars {
		items[i] = regexp.QuoteMeta(v.name) + "(?:=" + w.value(v) + ")?"
	}
	op, item := w.part.op, "(?:"+strings.Join(items, "|")+")"
	return "(?:" + regexp.QuoteMeta(op.first) + "(" + item + "(?:" + op.sep + item + ")*" + w.quantifierSuffix() + "))?"
}

func (w patternWriter) quantifierSuffix() string {
	if w.lazy {
		return "?"
	}
	return ""
}

// value returns the pattern of a variable's value.
func (w patternWriter) value(v variable) string {
	op := w.part.op
	list := w.lists[v.name] && !(op.named && v.explode) // the caller's pattern repeats exploded items
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
	one := "(?:[-A-Za-z0-9._~" + regexp.QuoteMeta(more) + "]|%[0-9A-Fa-f]{2})*" + w.quantifierSuffix()
	if !list {
		return one
	}
	return one + "(?:" + regexp.QuoteMeta(op.listSep(v)) + one + ")*" + w.quantifierSuffix()
}

// listSep returns the separator between two items of a list.
func (op *operator) listSep(v variable) string {
	if v.explode {
		return op.sep
	}
	return ","
}

// Match returns the decoded variables of a URI, as string and []string; undefined variables are
// absent. It reports false if the URI does not match the template.
func (m *Matcher) Match(uri string) (map[string]any, bool) {
	if len(uri) > MaxLength {
		return nil, false
	}
	for _, pattern := range m.patterns {
		if found := pattern.FindStringSubmatchIndex(uri); found != nil {
			if vars, ok := m.bind(uri, found[2:]); ok {
				return vars, true
			}
		}
	}
	return nil, false
}

// bind returns the variables in the groups of a match.
func (m *Matcher) bind(uri string, groups []int) (map[string]any, bool) {
	r := bindings{lists: m.lists, values: map[string]any{}}
	next := func() (text string, ok bool) {
		start, end := groups[0], groups[1]
		groups = groups[2:]
		if start < 0 {
			return "", false
		}
		return uri[start:end], true
	}
	for _, p := range m.parts {
		if p.op != nil && !r.addPart(p, next) {
			return nil, false
		}
	}
	return r.values, r.checkPrefixes()
}

// bindings are the variables found so far.
type bindings struct {
	lists    map[string]bool
	values   map[string]any
	prefixes []*prefixValue
}

// A prefixValue is the value of a variable with a prefix modifier.
type prefixValue struct {
	variable
	text string
}

// addPart adds the variables of an expression. It reports false if a variable contradicts an
// earlier value.
func (r *bindings) addPart(p part, next func() (string, bool)) bool {
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
			items[0] = nil // an empty expansion leaves the variable undefined
		}
	}
	for i, v := range p.vars {
		if items[i] != nil && !r.add(v, items[i]) {
			return false
		}
	}
	return true
}

func (r *bindings) splitNamed(p part, text string, items [][]string) bool {
	for item := range strings.SplitSeq(text, p.op.sep) {
		name, value, _ := strings.Cut(item, "=")
		i := slices.IndexFunc(p.vars, func(v variable) bool { return v.name == name })
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

// split returns the items of a list, or the text itself for a string variable.
func (r *bindings) split(op *operator, v variable, text string) []string {
	if !r.lists[v.name] {
		return []string{text}
	}
	return strings.Split(text, op.listSep(v))
}

// add decodes the value of a variable and adds it. It reports false if the variable has another
// value already.
func (r *bindings) add(v variable, items []string) bool {
	for i, item := range items {
		text, ok := unescape(item)
		if !ok {
			return false
		}
		items[i] = text
	}
	if v.prefix > 0 {
		r.prefixes = append(r.prefixes, &prefixValue{v, items[0]})
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

// checkPrefixes reports whether each prefix is a prefix of its variable's value. If only prefixes
// of a variable are known, the longest is its value.
func (r *bindings) checkPrefixes() bool {
	slices.SortFunc(r.prefixes, func(a, b *prefixValue) int { return cmp.Compare(b.prefix, a.prefix) })
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
