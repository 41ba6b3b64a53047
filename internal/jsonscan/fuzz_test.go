package jsonscan_test

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

func addSeeds(f *testing.F) {
	for _, text := range accepted {
		f.Add([]byte(text))
	}
	for _, tt := range refused {
		if len(tt.text) < 1000 {
			f.Add([]byte(tt.text))
		}
	}
	f.Add([]byte(message))
}

// A summary is the result of a simple reader.
type summary struct {
	grammar   bool // valid JSON and Unicode
	duplicate bool
	depth     int // of containers, up to a syntax error
	keys      int // most in one object
}

// read reads the tokens of text with a set of keys for each object.
func read(text []byte) (v summary) {
	type object struct{ keys map[string]bool }
	var open []*object // nil for an array
	dec := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true))
	for values := 0; ; {
		inObject := len(open) > 0 && open[len(open)-1] != nil
		_, length := dec.StackIndex(dec.StackDepth())
		tok, err := dec.ReadToken()
		if err == io.EOF {
			v.grammar = values == 1
			return v
		}
		if err != nil {
			return v
		}
		if inObject && length%2 == 0 && tok.Kind() == '"' {
			o := open[len(open)-1]
			v.duplicate = v.duplicate || o.keys[tok.String()]
			o.keys[tok.String()] = true
			v.keys = max(v.keys, int(length/2)+1)
		}
		switch tok.Kind() {
		case '{':
			open = append(open, &object{keys: map[string]bool{}})
		case '[':
			open = append(open, nil)
		case '}', ']':
			open = open[:len(open)-1]
		}
		v.depth = max(v.depth, len(open))
		if len(open) == 0 {
			values++
		}
	}
}

// FuzzValid compares Valid with the simple reader.
func FuzzValid(f *testing.F) {
	addSeeds(f)
	lim := jsonscan.Limits{Depth: 8, Keys: 20}
	f.Fuzz(func(t *testing.T, text []byte) {
		want := read(text)
		fault, _ := errors.AsType[*jsonscan.SyntaxError](jsonscan.Valid(text, lim))
		tooDeep, tooMany := want.depth > lim.Depth, want.keys > lim.Keys
		switch {
		case want.grammar && !want.duplicate && !tooDeep && !tooMany:
			if fault != nil {
				t.Fatalf("Valid(%q) = %v, want nil", text, fault)
			}
			return
		case fault == nil:
			t.Fatalf("Valid(%q) = nil, want an error: %+v", text, want)
		case tooDeep:
			// Below the depth limit, neither grammar nor duplicates are checked.
		case fault.WellFormed() != want.grammar:
			t.Fatalf("Valid(%q) = %v, want %+v", text, fault, want)
		}
		if fault.Offset < 0 || fault.Offset > len(text) {
			t.Fatalf("Valid(%q): offset %d, want 0 to %d", text, fault.Offset, len(text))
		}
		ok := true
		switch fault.Reason {
		case jsonscan.DuplicateKey:
			ok = want.duplicate || tooDeep
		case jsonscan.TooDeep:
			ok = tooDeep
		case jsonscan.TooManyKeys:
			ok = tooMany
		}
		if !ok {
			t.Fatalf("Valid(%q) = %v, want %+v", text, fault, want)
		}
	})
}

// FuzzWalk reassembles a container from Members and Elements, which must be equivalent. It also
// passes them unchecked text.
func FuzzWalk(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, text []byte) {
		rebuilt := []byte{'{'}
		for key, value := range jsonscan.Members(text) {
			if len(rebuilt) > 1 {
				rebuilt = append(rebuilt, ',')
			}
			rebuilt = append(jsonscan.AppendQuote(rebuilt, string(key)), ':')
			rebuilt = append(rebuilt, value...)
		}
		rebuilt = append(rebuilt, '}')
		if jsonscan.Kind(text) != '{' {
			rebuilt = []byte{'['}
			for value := range jsonscan.Elements(text) {
				if len(rebuilt) > 1 {
					rebuilt = append(rebuilt, ',')
				}
				rebuilt = append(rebuilt, value...)
			}
			rebuilt = append(rebuilt, ']')
		}
		jsonscan.Get(text, "a")
		if k := jsonscan.Kind(text); k != '{' && k != '[' || jsonscan.Valid(text, jsonscan.Limits{}) != nil {
			return
		}
		want, got := jsontext.Value(bytes.Clone(text)), jsontext.Value(rebuilt)
		if err := errors.Join(want.Canonicalize(), got.Canonicalize()); err != nil {
			t.Fatalf("%q, rebuilt %q: %v", text, rebuilt, err)
		}
		if !bytes.Equal(want, got) {
			t.Fatalf("%q was rebuilt as %q", want, got)
		}
		for key, value := range jsonscan.Members(text) {
			if found, ok := jsonscan.Get(text, string(key)); !ok || !bytes.Equal(found, value) {
				t.Fatalf("Get(%q) = %q, %t; want %q", key, found, ok, value)
			}
		}
	})
}

// FuzzQuote decodes with Unquote what AppendQuote has encoded.
func FuzzQuote(f *testing.F) {
	for _, s := range []string{"", "a", "\x00\x1f\"\\/", "\xff\xc0\xed\xa0\x80", "\u2028\u2029\uFFFD\uFEFF", "😀東é",
		`\ud800`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		raw := jsonscan.AppendQuote(nil, s)
		if !jsontext.Value(raw).IsValid() || bytes.ContainsAny(raw, "\r\n\u2028\u2029") {
			t.Fatalf("AppendQuote(%q) = %q, want valid JSON without line breaks", s, raw)
		}
		got, err := jsonscan.Unquote(raw)
		if want := string([]rune(s)); err != nil || got != want {
			t.Fatalf("Unquote(%q) = %q, %v; want %q", raw, got, err, want)
		}
	})
}

// FuzzUnquote compares Unquote with the simple reader.
func FuzzUnquote(f *testing.F) {
	addSeeds(f)
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := jsonscan.Unquote(raw)
		want, bad := jsontext.AppendUnquote(nil, raw)
		if (err != nil) != (bad != nil) || err == nil && got != string(want) {
			t.Fatalf("Unquote(%q) = %q, %v; want %q, %v", raw, got, err, want, bad)
		}
	})
}
