package jsonscan_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// outline writes what a Descent returns, recursively.
func outline(d *jsonscan.Descent, b *strings.Builder) {
	switch {
	case d.Into('{'):
		b.WriteByte('{')
		for key, ok := d.Key(); ok; key, ok = d.Key() {
			b.WriteString(string(jsonscan.AppendQuote(nil, string(key))) + ":")
			outline(d, b)
		}
		b.WriteByte('}')
	case d.Into('['):
		b.WriteByte('[')
		for d.More() {
			outline(d, b)
		}
		b.WriteByte(']')
	default:
		b.Write(d.Value())
		b.WriteByte(' ')
	}
}

// simpleOutline writes the same with Members and Elements.
func simpleOutline(text []byte, b *strings.Builder) {
	switch jsonscan.Kind(text) {
	case '{':
		b.WriteByte('{')
		for key, value := range jsonscan.Members(text) {
			b.WriteString(string(jsonscan.AppendQuote(nil, string(key))) + ":")
			simpleOutline(value, b)
		}
		b.WriteByte('}')
	case '[':
		b.WriteByte('[')
		for value := range jsonscan.Elements(text) {
			simpleOutline(value, b)
		}
		b.WriteByte(']')
	default:
		b.Write(bytes.Trim(text, " \n\t\r"))
		b.WriteByte(' ')
	}
}

func FuzzDescent(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > 4<<10 {
			return
		}
		var got, want strings.Builder
		d := jsonscan.Descend(text)
		outline(&d, &got) // must end for any text
		if jsonscan.Valid(text, jsonscan.Limits{}) != nil {
			return
		}
		if simpleOutline(text, &want); got.String() != want.String() {
			t.Errorf("%q:\n%s, want\n%s", text, got.String(), want.String())
		}
		if at := d.At(); at != len(text) {
			t.Errorf("%q: At() = %d at the end, want %d", text, at, len(text))
		}
	})
}

func TestDescentSkipsValues(t *testing.T) {
	text := ` { "a" : {"b":[1]} , "l" : [ [2] , "x]" ] } `
	d := jsonscan.Descend([]byte(text))
	if d.Into('[') || !d.Into('{') {
		t.Fatal("Into('[') = true or Into('{') = false for an object")
	}
	key, ok := d.Key()
	at := d.At()
	if value := d.Value(); !ok || string(key) != "a" || string(value) != `{"b":[1]}` ||
		string(d.Since(at)) != string(value) {
		t.Errorf("first member: %s: %s, %t, want a", key, value, ok)
	}
	if key, ok = d.Key(); !ok || string(key) != "l" || d.Into('{') || !d.Into('[') {
		t.Errorf("second member: %s, %t, want l with an array", key, ok)
	}
	var elements []string
	for d.More() {
		elements = append(elements, string(d.Value()))
	}
	if len(elements) != 2 || elements[0] != "[2]" || elements[1] != `"x]"` {
		t.Errorf("elements %q, want [2] and \"x]\"", elements)
	}
	if key, ok = d.Key(); ok || d.Value() != nil {
		t.Errorf("after the last member: %s, %t, want nothing", key, ok)
	}
}

func TestDescentOfInvalidText(t *testing.T) {
	for _, text := range []string{
		`{`, `{"`, `{"a`, `{"a\`, `{"a\"`, "{\"a\n\":1}", `{"a"`, `{"a":`, `{"a":}`, `{"a":"`, `{"a":[`, `{a:1}`, `{,}`,
		`[`, `[,`, `["`, `["\`, `[[`, `[}`, `[:`, `{"a":1]`,
	} {
		d := jsonscan.Descend([]byte(text))
		var b strings.Builder
		outline(&d, &b)
		if d.Value() != nil || d.More() {
			t.Errorf("%s: a value or element after %s, want nothing", text, b.String())
		}
	}
}
