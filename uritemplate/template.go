// Package uritemplate implements URI templates as RFC 6570 defines them, at all four levels. A
// [Template] expands to URIs, and a [Matcher] finds the variables of a URI that a template made.
//
// Spec: server/resources, Resource Templates.
package uritemplate

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"
)

// MaxLength is the maximum length of a URI and of a template in bytes. Web servers apply limits of
// this size.
const MaxLength = 8 << 10

// A Template is a parsed URI template.
type Template struct {
	text  string
	parts []part
}

// A part is literal text or an expression.
type part struct {
	literal string // percent-encoded
	op      *operator
	vars    []variable
}

// A variable is a variable of an expression, with its modifier.
type variable struct {
	name    string
	prefix  int  // maximum number of characters; 0 means all
	explode bool // expand each item separately
}

// An operator is the expansion type that the first character of an expression selects. RFC 6570,
// appendix A.
type operator struct {
	first    string // written before the first defined variable
	sep      string // written between two variables
	named    bool   // each value follows its variable's name
	ifEmpty  string // written after the name of an empty value
	reserved bool   // reserved characters are not encoded
}

// simpleExpansion is the operator of an expression that names no operator.
var simpleExpansion = &operator{sep: ","}

var operators = map[byte]*operator{
	'+': {sep: ",", reserved: true},
	'#': {first: "#", sep: ",", reserved: true},
	'.': {first: ".", sep: "."},
	'/': {first: "/", sep: "/"},
	';': {first: ";", sep: ";", named: true},
	'?': {first: "?", sep: "&", named: true, ifEmpty: "="},
	'&': {first: "&", sep: "&", named: true, ifEmpty: "="},
}

// Parse parses a URI template, in time linear in its length.
func Parse(text string) (*Template, error) {
	if len(text) > MaxLength {
		return nil, fmt.Errorf("length is %d bytes, want at most %d", len(text), MaxLength)
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("not valid UTF-8")
	}
	t := &Template{text: text}
	for rest := text; rest != ""; {
		literal, expression, found := strings.Cut(rest, "{")
		if literal != "" {
			if err := checkLiteral(literal); err != nil {
				return nil, err
			}
			t.parts = append(t.parts, part{literal: escapeReserved(literal)})
		}
		if !found {
			break
		}
		if expression, rest, found = strings.Cut(expression, "}"); !found {
			return nil, fmt.Errorf("expression %.64q is not closed", "{"+expression)
		}
		part, err := parseExpression(expression)
		if err != nil {
			return nil, fmt.Errorf("expression %.64q: %w", "{"+expression+"}", err)
		}
		t.parts = append(t.parts, part)
	}
	return t, nil
}

// checkLiteral checks the text between expressions by RFC 6570, section 2.1. An apostrophe is
// allowed: section 2.1 forbids it, but section 1.5 and RFC 3986 allow it.
func checkLiteral(literal string) error {
	for i, c := range literal {
		switch {
		case c == '%' && !isTriplet(literal[i:]):
			return fmt.Errorf("%% at %.64q is not followed by two hex digits", literal[i:])
		case c <= ' ' || 0x7f <= c && c < 0xa0 || strings.ContainsRune("\"<>\\^`{|}", c):
			return fmt.Errorf("%q is not allowed in a URI", c)
		}
	}
	return nil
}

func parseExpression(expression string) (p part, err error) {
	if expression == "" {
		return p, errors.New("empty expression")
	}
	if strings.IndexByte("=,!@|", expression[0]) >= 0 {
		return p, fmt.Errorf("operator %q is reserved", expression[0])
	}
	if p.op = operators[expression[0]]; p.op != nil {
		expression = expression[1:]
	} else {
		p.op = simpleExpansion
	}
	for spec := range strings.SplitSeq(expression, ",") {
		v, err := parseVariable(spec)
		if err != nil {
			return p, err
		}
		p.vars = append(p.vars, v)
	}
	return p, nil
}

var variablePattern = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^((?:\w|%[0-9A-Fa-f]{2})(?:\.?(?:\w|%[0-9A-Fa-f]{2}))*)(?:(\*)|:([1-9][0-9]{0,3}))?$`)
})

func parseVariable(spec string) (v variable, err error) {
	m := variablePattern().FindStringSubmatch(spec)
	if m == nil {
		return v, fmt.Errorf("%.64q is not a variable", spec)
	}
	v.name, v.explode = m[1], m[2] != ""
	for _, digit := range []byte(m[3]) {
		v.prefix = v.prefix*10 + int(digit-'0')
	}
	return v, nil
}

// String returns the text of the template.
func (t *Template) String() string { return t.text }

// Variables returns the names of the template's variables, each once, in order.
func (t *Template) Variables() []string {
	var names []string
	for _, p := range t.parts {
		for _, v := range p.vars {
			if !slices.Contains(names, v.name) {
				names = append(names, v.name)
			}
		}
	}
	return names
}

// LiteralLen returns the number of bytes of the template outside its expressions.
func (t *Template) LiteralLen() (n int) {
	for _, p := range t.parts {
		n += len(p.literal)
	}
	return n
}

// LiteralPrefix returns the text with which every URI of the template begins.
func (t *Template) LiteralPrefix() string {
	if len(t.parts) == 0 {
		return ""
	}
	return t.parts[0].literal
}

// Expand returns the URI for the given variables, whose values are string, []string or
// map[string]string. An absent variable, an empty list and an empty map are undefined and expand to
// nothing. RFC 6570, section 3.
func (t *Template) Expand(vars map[string]any) (string, error) {
	var b strings.Builder
	for _, p := range t.parts {
		b.WriteString(p.literal)
		before := ""
		if p.op != nil {
			before = p.op.first
		}
		for _, v := range p.vars {
			text, defined, err := p.op.expandVar(v, vars[v.name])
			if err != nil {
				return "", fmt.Errorf("variable %q: %w", v.name, err)
			}
			if !defined {
				continue
			}
			b.WriteString(before)
			b.WriteString(text)
			before = p.op.sep
			if b.Len() > MaxLength {
				return "", fmt.Errorf("the URI is longer than %d bytes", MaxLength)
			}
		}
	}
	return b.String(), nil
}

// expandVar returns the expansion of a variable.
func (op *operator) expandVar(v variable, value any) (text string, defined bool, err error) {
	switch value := value.(type) {
	case nil:
		return "", false, nil
	case string:
		text, err = op.encode(firstRunes(value, v.prefix))
		return op.label(v.name, text), true, err
	case []string:
		text, err = op.expandList(v, value)
		return text, len(value) > 0, err
	case map[string]string:
		text, err = op.expandPairs(v, value)
		return text, len(value) > 0, err
	default:
		return "", false, fmt.Errorf("value has type %T, want string, []string or map[string]string", value)
	}
}

func (op *operator) expandList(v variable, list []string) (string, error) {
	items := make([]string, len(list))
	for i, item := range list {
		text, err := op.encode(item)
		if err != nil {
			return "", err
		}
		items[i] = text
		if v.explode {
			items[i] = op.label(v.name, text)
		}
	}
	return op.join(v, items)
}

func (op *operator) expandPairs(v variable, pairs map[string]string) (string, error) {
	var items []string
	for _, key := range slices.Sorted(maps.Keys(pairs)) {
		name, err := op.encode(key)
		if err != nil {
			return "", err
		}
		text, err := op.encode(pairs[key])
		switch {
		case err != nil:
			return "", err
		case !v.explode:
			items = append(items, name, text)
		case op.named:
			items = append(items, op.label(name, text))
		default:
			items = append(items, name+"="+text)
		}
	}
	return op.join(v, items)
}

// join joins the items of a list or map.
func (op *operator) join(v variable, items []string) (string, error) {
	switch {
	case v.prefix > 0:
		return "", errors.New("a prefix modifier needs a string value")
	case v.explode:
		return strings.Join(items, op.sep), nil
	}
	return op.label(v.name, strings.Join(items, ",")), nil
}

// label returns the value with the variable's name in front if the operator is named.
func (op *operator) label(name, text string) string {
	switch {
	case !op.named:
		return text
	case text == "":
		return name + op.ifEmpty
	}
	return name + "=" + text
}

func (op *operator) encode(value string) (string, error) {
	if !utf8.ValidString(value) {
		return "", errors.New("value is not valid UTF-8")
	}
	if op.reserved {
		return escapeReserved(value), nil
	}
	return Escape(value), nil
}

// firstRunes returns the first n characters of s, or all of s if n is 0.
func firstRunes(s string, n int) string {
	if n == 0 {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
