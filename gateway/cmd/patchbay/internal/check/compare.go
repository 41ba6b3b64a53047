package check

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/host/config"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// maxShown limits a value, a path or an expression in messages, in characters.
const maxShown = 200

// place returns a JSON pointer for messages.
func place(pointer string) string {
	if pointer == "" {
		return "result"
	}
	return term.Shorten(pointer, maxShown)
}

// shown returns a value for messages. Secrets are masked before the text is cut, which could leave a
// part of a secret.
func (s *subject) shown(value []byte) string {
	if value == nil {
		return "no value"
	}
	return term.Shorten(s.mask(string(value)), maxShown)
}

// difference returns the first difference between two values at a JSON pointer, or "" if they are
// equal. An absent value is nil.
func (s *subject) difference(at string, got, want []byte) string {
	switch kind := rawjson.Kind(got); {
	case got == nil || want == nil || kind != rawjson.Kind(want):
	case kind == '{' || kind == '[':
		return s.innerDifference(at, got, want)
	case kind == '"':
		one, _ := rawjson.Unquote(got) // valid
		other, _ := rawjson.Unquote(want)
		if one == other {
			return ""
		}
		return s.stringDifference(at, one, other)
	case kind != '0' || sameNumber(got, want):
		return ""
	}
	return fmt.Sprintf("%s: got %s, want %s", place(at), s.shown(got), s.shown(want))
}

// innerDifference compares the members or elements of two values.
func (s *subject) innerDifference(at string, got, want []byte) string {
	expected := map[string]bool{}
	actual, names := children(got)
	wanted, wantedNames := children(want)
	for _, name := range wantedNames {
		expected[name] = true
		if d := s.difference(at+config.Pointer(name), actual[name], wanted[name]); d != "" {
			return d
		}
	}
	for _, name := range names {
		if !expected[name] {
			return s.difference(at+config.Pointer(name), actual[name], nil)
		}
	}
	return ""
}

// children returns the members of an object, or the elements of an array by their index.
func children(value []byte) (by map[string][]byte, names []string) {
	by = map[string][]byte{}
	for name, member := range rawjson.Members(value) {
		names, by[string(name)] = append(names, string(name)), member
	}
	for element := range rawjson.Elements(value) {
		name := strconv.Itoa(len(names))
		names, by[name] = append(names, name), element
	}
	return by, names
}

// stringDifference shows long strings from shortly before their first different character, unless a
// secret in them is masked.
func (s *subject) stringDifference(at, got, want string) string {
	const context = 20 // characters before the difference
	a, b, n := []rune(got), []rune(want), 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	from := ""
	if n > maxShown/2 && s.mask(got) == got && s.mask(want) == want {
		from = fmt.Sprintf("from character %d: ", n-context+1)
		got, want = string(a[n-context:]), string(b[n-context:])
	}
	return fmt.Sprintf("%s: %sgot %s, want %s", place(at), from, s.shown(rawjson.AppendQuote(nil, got)),
		s.shown(rawjson.AppendQuote(nil, want)))
}

// hugeExponent matches a number with an exponent that may exceed 64 bits.
var hugeExponent = regexp.MustCompile(`[eE][+-]?0*[1-9][0-9]{17}`)

// sameNumber reports whether two numbers are equal as JSON Schema defines it: by their exact
// mathematical value, however it is written.
func sameNumber(a, b []byte) bool {
	if string(a) == string(b) {
		return true
	}
	if hugeExponent.Match(a) || hugeExponent.Match(b) {
		return false // package jsonschema limits such exponents, which no real number needs
	}
	s, err := jsonschema.Compile([]byte(`{"const":` + string(b) + `}`))
	return err == nil && s.Validate(a) == nil
}

func same(a, b []byte) bool {
	return (&subject{mask: func(text string) string { return text }}).difference("", a, b) == ""
}

// contains reports whether a string contains a text, an array an equal element, or an object equal
// members.
func contains(value, part []byte) bool {
	text, err := rawjson.Unquote(value)
	if want, err2 := rawjson.Unquote(part); err == nil && err2 == nil {
		return strings.Contains(text, want)
	}
	for element := range rawjson.Elements(value) {
		if same(element, part) {
			return true
		}
	}
	all, _ := children(value)
	for name, want := range rawjson.Members(part) {
		if !same(all[string(name)], want) {
			return false
		}
	}
	return rawjson.Kind(part) == '{' && rawjson.Kind(value) == '{'
}
