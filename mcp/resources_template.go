package mcp

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

// A uriTemplate is a URI template by RFC 6570, all four levels: it makes URIs of variables, and finds the variables of
// a URI again.
type uriTemplate struct {
	text  string
	parts []templatePart
}

// A templatePart is either literal text or an expression.
type templatePart struct {
	literal string // as it stands in a URI
	op      *templateOperator
	vars    []templateVar
}

// A templateVar is a variable within an expression, with its modifier.
type templateVar struct {
	name    string
	prefix  int  // at most this many characters of it; 0 is all
	explode bool // each item stands for itself
}

// A templateOperator is what the first character of an expression decides. RFC 6570, appendix A.
type templateOperator struct {
	first    string // before the first variable that is defined
	sep      string // between two variables
	named    bool   // each variable is preceded by its name
	ifEmpty  string // after the name of an empty value
	reserved bool   // reserved characters stay as they are
}

// simpleExpansion is what an expression without an operator does.
var simpleExpansion = &templateOperator{sep: ","}

var templateOperators = map[byte]*templateOperator{
	'+': {sep: ",", reserved: true},
	'#': {first: "#", sep: ",", reserved: true},
	'.': {first: ".", sep: "."},
	'/': {first: "/", sep: "/"},
	';': {first: ";", sep: ";", named: true},
	'?': {first: "?", sep: "&", named: true, ifEmpty: "="},
	'&': {first: "&", sep: "&", named: true, ifEmpty: "="},
}

// parseTemplate reads a URI template. It takes time linear in its length.
func parseTemplate(text string) (*uriTemplate, error) {
	if len(text) > maxURI {
		return nil, fmt.Errorf("it has %d bytes, at most %d are taken", len(text), maxURI)
	}
	if !utf8.ValidString(text) {
		return nil, errors.New("it is not UTF-8")
	}
	t := &uriTemplate{text: text}
	for rest := text; rest != ""; {
		literal, expression, found := strings.Cut(rest, "{")
		if literal != "" {
			if err := checkLiteral(literal); err != nil {
				return nil, err
			}
			t.parts = append(t.parts, templatePart{literal: escapeURI(literal)})
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

// checkLiteral holds the text between expressions to what RFC 6570, section 2.1, allows there. The apostrophe is
// forbidden there and allowed by its own section 1.5 and by RFC 3986; it may stand.
func checkLiteral(literal string) error {
	for i, c := range literal {
		switch {
		case c == '%' && !isTriplet(literal[i:]):
			return fmt.Errorf("%% at %.64q is not followed by two hex digits", literal[i:])
		case c <= ' ' || 0x7f <= c && c < 0xa0 || strings.ContainsRune("\"<>\\^`{|}", c):
			return fmt.Errorf("%q cannot stand in a URI", c)
		}
	}
	return nil
}

func parseExpression(expression string) (p templatePart, err error) {
	if expression == "" {
		return p, errors.New("it is empty")
	}
	if strings.IndexByte("=,!@|", expression[0]) >= 0 {
		return p, fmt.Errorf("operator %q is reserved", expression[0])
	}
	if p.op = templateOperators[expression[0]]; p.op != nil {
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

func parseVariable(spec string) (v templateVar, err error) {
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

// variables returns the template's variables, each once, in order.
func (t *uriTemplate) variables() []string {
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

// literals counts the bytes that are the same in all URIs of the template.
func (t *uriTemplate) literals() (n int) {
	for _, p := range t.parts {
		n += len(p.literal)
	}
	return n
}

// expand returns the URI for the variables: strings, []string, or map[string]string. A variable that is absent, or an
// empty list or map, is undefined, and so left out. RFC 6570, section 3.
func (t *uriTemplate) expand(vars map[string]any) (string, error) {
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
			if b.Len() > maxURI {
				return "", fmt.Errorf("the URI has more than %d bytes", maxURI)
			}
		}
	}
	return b.String(), nil
}

// expandVar returns what stands for one variable.
func (op *templateOperator) expandVar(v templateVar, value any) (text string, defined bool, err error) {
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
		return "", false, fmt.Errorf("its value is of type %T, want string, []string or map[string]string", value)
	}
}

func (op *templateOperator) expandList(v templateVar, list []string) (string, error) {
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

func (op *templateOperator) expandPairs(v templateVar, pairs map[string]string) (string, error) {
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

// join puts the items of a composite value together.
func (op *templateOperator) join(v templateVar, items []string) (string, error) {
	switch {
	case v.prefix > 0:
		return "", errors.New("a prefix can only be taken of a string")
	case v.explode:
		return strings.Join(items, op.sep), nil
	}
	return op.label(v.name, strings.Join(items, ",")), nil
}

// label puts the name before a value, where the operator has names.
func (op *templateOperator) label(name, text string) string {
	switch {
	case !op.named:
		return text
	case text == "":
		return name + op.ifEmpty
	}
	return name + "=" + text
}

func (op *templateOperator) encode(value string) (string, error) {
	if !utf8.ValidString(value) {
		return "", errors.New("its value is not UTF-8")
	}
	if op.reserved {
		return escapeURI(value), nil
	}
	return escape(value), nil
}

// escape percent-encodes all that could mean something in a URI.
func escape(s string) string {
	return escapeUnless(s, func(rest string) bool { return isUnreserved(rest[0]) })
}

// escapeURI percent-encodes what may not stand in a URI.
func escapeURI(s string) string { return escapeUnless(s, standsInURI) }

// escapeUnless percent-encodes the bytes of s, except where the rest of s from there on may stand as it is.
func escapeUnless(s string, stands func(rest string) bool) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; stands(s[i:]) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}

// unescape undoes percent-encoding. What it gives is UTF-8, since nothing else is ever encoded.
func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 {
		return s, true
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '%' {
			if !isTriplet(s[i:]) {
				return "", false
			}
			c = unhex(s[i+1])<<4 | unhex(s[i+2])
			i += 2
		}
		b = append(b, c)
	}
	return string(b), utf8.Valid(b)
}

// firstRunes returns the first n characters of s; n = 0 is all of them.
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

func isUnreserved(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~'
}

func isReserved(c byte) bool { return strings.IndexByte(":/?#[]@!$&'()*+,;=", c) >= 0 }

// standsInURI reports whether the first byte of rest may stand in a URI as it is.
func standsInURI(rest string) bool {
	return isUnreserved(rest[0]) || isReserved(rest[0]) || isTriplet(rest)
}

func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'f' }

// isTriplet reports whether s begins with a percent-encoded byte.
func isTriplet(s string) bool { return len(s) >= 3 && s[0] == '%' && isHex(s[1]) && isHex(s[2]) }

func unhex(c byte) byte {
	if c <= '9' {
		return c - '0'
	}
	return c | 0x20 - 'a' + 10
}

// checkURI holds what is to be a resource's URI to RFC 3986: a scheme, and no character that would have to be encoded.
//
// Spec: server/resources, Security Considerations.
func checkURI(uri string) error {
	if len(uri) > maxURI {
		return fmt.Errorf("the URI has %d bytes, at most %d are taken", len(uri), maxURI)
	}
	scheme, _, found := strings.Cut(uri, ":")
	if !found || !isScheme(scheme) {
		return errors.New(`the URI has no scheme such as "file:"`)
	}
	for i := range len(uri) {
		if !standsInURI(uri[i:]) {
			return fmt.Errorf("the URI holds %q at byte %d, which must be percent-encoded", uri[i], i)
		}
	}
	return nil
}

func isScheme(s string) bool {
	for i, c := range []byte(s) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (i == 0 || ('0' > c || c > '9') && c != '+' && c != '-' && c != '.') {
			return false
		}
	}
	return s != ""
}
