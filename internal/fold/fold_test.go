package fold_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/patchbay-mcp/patchbay/internal/fold"
)

func TestKeyIsEqualForNamesThatFold(t *testing.T) {
	for _, same := range [][]string{
		{"name", "Name", "NAME", " name", "name\t", "\x00name", "name\x00x", "\ufeffname", "na\u006de"},
		{"tasks", "ta\u017fk\u017f", "TASKS", "tas\u212as"}, {"uri", "URI", "ur\u0131", "ur\u0130"},
		{"größe", "GRÖẞE", "GRÖßE", "GRÖSSE"}, {"σ", "ς", "Σ"}, {"k", "\u212a"}, {"i", "i\u0307", "\u0130"},
		{"file", "\ufb01le", "FI\u200bLE", "f\u00adile", "fi\ufe0fle", "fi\U000e0100le", "f\u034file", "fil\ufeffe\u200d\x00x"},
		{"password", "pa\u00dfword", "PA\u1e9eWORD"}, {"stop", "\ufb05op", "\ufb06op"}, {"\u1f00\u03b9", "\u1f80", "\u1f88"},
	} {
		for _, name := range same {
			if fold.Key(name) != fold.Key(same[0]) || fold.Key([]byte(name)) != fold.Key(name) {
				t.Errorf("%q: got %q, want the key of %q: %q", name, fold.Key(name), same[0], fold.Key(same[0]))
			}
		}
	}
	for _, other := range []string{"nam", "name_", "na me", "names", "nàme"} {
		if fold.Key(other) == fold.Key("name") {
			t.Errorf("%q has the key of name", other)
		}
	}
}

// Key is equal for each pair of texts that strings.EqualFold reports as equal.
func TestKeyIsAsCarefulAsEqualFold(t *testing.T) {
	for r := rune(1); r < 0x20000; r++ {
		for next := unicode.SimpleFold(r); next != r; next = unicode.SimpleFold(next) {
			if a, b := "x"+string(r)+"x", "x"+string(next)+"x"; fold.Key(a) != fold.Key(b) {
				t.Errorf("%q and %q have the keys %q and %q", a, b, fold.Key(a), fold.Key(b))
			}
		}
	}
}

func TestCheckFindsAmbiguousNames(t *testing.T) {
	const nested = `{"type":"object","properties":{"path":{"type":"string"},"opts":{"properties":{"mode":{}}},
		"list":{"items":{"properties":{"id":{}}}},"free":{"additionalProperties":{"type":"string"}},
		"env":{"type":"object"},"tuple":{"prefixItems":[{"properties":{"a":{}}},{}],"items":{"$ref":"#/$defs/node"}},
		"both":{"allOf":[{"$ref":"#/$defs/node"},{"if":{},"then":{"properties":{"then":{}}}}]}},
		"additionalProperties":{"oneOf":[{"properties":{"more":{}}}]},
		"$defs":{"node":{"properties":{"value":{},"next":{"$ref":"#/$defs/node"}}}}}`
	for _, test := range []struct{ schema, arguments, ambiguous string }{
		{nested, `{"path":1,"other":2,"opts":{"mode":1,"x":1},"list":[{"id":1}]}`, ""},
		{nested, `{"Path":1}`, "Path"},
		{nested, `{"path":1,"path ":1}`, "path "},
		{nested, `{"other":1,"OTHER":1}`, "OTHER"},
		{nested, `{"opts":{"MODE":1}}`, "MODE"},
		{nested, `{"opts":{"Path":1}}`, ""},
		{nested, `{"list":[{"id":1},{"iD":1}]}`, "iD"},
		{nested, `{"free":{"a":"1","A":"2","path":"3","PATH":"4"}}`, ""},
		{nested, `{"env":{"PATH":"/bin","path":"x"}}`, ""},
		{nested, `{"tuple":[{"A":1}]}`, "A"},
		{nested, `{"tuple":[{"Value":1},{"A":1},{"next":{"next":{"Value":1}}}]}`, "Value"},
		{nested, `{"tuple":[{"Value":1},{"A":1},{"next":{"A":1}}]}`, ""},
		{nested, `{"both":{"Then":1}}`, "Then"},
		{nested, `{"both":{"next":{"NEXT":1}}}`, "NEXT"},
		{nested, `{"zz":{"More":1}}`, "More"},
		{``, `{"a":1,"A":1}`, "A"},
		{`true`, `{"a":{"b":1,"B":1}}`, ""},
		{`{"properties":{"a":{},"A":{}}}`, `{"a":1,"A":2}`, "A"},
		{`{"properties":{"a":{},"A":{}}}`, `{"A":2}`, ""},
		{`{"anyOf":[{"properties":{"path":{}}},{"properties":{"Path":{}}}]}`, `{"path":1,"Path":2}`, "Path"},
		{`{"anyOf":[{"properties":{"path":{}}},{"properties":{"Path":{}}}]}`, `{"Path":2,"x":1}`, ""},
		{`{"properties":{"l":{"prefixItems":[{}]}},"allOf":[{"properties":{"l":{"items":{"properties":{"path":{}}}}}}]}`,
			`{"l":[{"PATH":1}]}`, "PATH"},
		{`{"properties":{"l":{"items":[{},{}],"additionalItems":{"properties":{"path":{}}},"contains":{"properties":{"c":{}}}}}}`,
			`{"l":[{"PATH":1},{"PATH":1},{"PATH":1,"C":1}]}`, "PATH"},
		{`{"properties":{"l":{"items":[{},{}],"additionalItems":{"properties":{"path":{}}},"contains":{"properties":{"c":{}}}}}}`,
			`{"l":[{"PATH":1},{"PATH":1,"C":1}]}`, "C"},
		{`{"allOf":[{"properties":{"l":{}}},{"additionalProperties":{"properties":{"path":{}}}}]}`, `{"l":{"PATH":1}}`, "PATH"},
		{`{"properties":{"l":{}},"additionalProperties":{"properties":{"path":{}}}}`, `{"l":{"PATH":1}}`, ""},
		{`{"$ref":"https://example.com/x","definitions":{"a":{"properties":{"b":{}}}}}`, `{"x":{"y":[{"B":1}]}}`, "B"},
		{`{"properties":{"self":{"$ref":"#"},"n":{}}}`, `{"self":{"self":{"self":{"N":1}}}}`, "N"},
		{`{"allOf":[{"$ref":"#/allOf/0"}],"properties":{"n":{"$ref":"#/properties/n"}}}`, `{"N":1}`, "N"},
		{`{"definitions":{"a/b":{"properties":{"c":{}}}},"items":[{"$ref":"#/definitions/a~1b"}],"properties":{"p":{"$ref":"#/items/0"}}}`,
			`{"p":{"C":1}}`, "C"},
		{`{"properties":{"p":{"not":{"dependentSchemas":{"x":{"properties":{"y":{}}}}}}}}`, `{"p":{"Y":1}}`, "Y"},
	} {
		names := fold.Of([]byte(test.schema))
		if names == nil {
			names = &fold.Names{}
		}
		err := names.Check([]byte(test.arguments))
		var found *fold.AmbiguousError
		if errors.As(err, &found) != (test.ambiguous != "") || found != nil && found.Name != test.ambiguous {
			t.Errorf("%s: got %v, want %q", test.arguments, err, test.ambiguous)
		}
	}
}

// A server cannot make the check slow with patterns: patterns are not matched, and the subschema of a pattern,
// valid or not, counts for all members.
func TestSubschemaOfPatternCountsForAllMembers(t *testing.T) {
	for _, pattern := range []string{"^x", strings.Repeat("(a?b?c?d?){50}", 8), "("} {
		names := fold.Of(fmt.Appendf(nil, `{"properties":{"opts":{}},"patternProperties":{%q:{"properties":{"p":{}}}}}`, pattern))
		for _, arguments := range []string{`{"opts":{"P":1}}`, `{"other":{"P":1}}`} {
			if names.Check([]byte(arguments)) == nil {
				t.Errorf("%s: %s: no error", pattern, arguments)
			}
		}
	}
}

// The work for a small schema with many subschemas at many places is limited: then all names count everywhere.
func TestManySubschemasAtManyPlaces(t *testing.T) {
	var properties, patterns, rest strings.Builder
	for i := range 900 {
		fmt.Fprintf(&properties, `,"p%d":{}`, i)
		fmt.Fprintf(&patterns, `,"q%d":{}`, i)
		rest.WriteString(`,{"additionalProperties":{}}`)
	}
	schema := `{"properties":{"a":{"properties":{"deep":{}}}` + properties.String() + `},"patternProperties":{"b":{}` +
		patterns.String() + `},"allOf":[{}` + rest.String() + `]}`
	if fold.Of([]byte(schema)).Check([]byte(`{"a":{"DEEP":1}}`)) == nil {
		t.Error("no error")
	}
}

// If a schema has more places than the check distinguishes, all names count at each place.
func TestLargeSchemaHasItsNamesEverywhere(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"properties":{`)
	for i := range 20_000 {
		fmt.Fprintf(&b, `"p%d":{"properties":{"q%d":{"properties":{"deep":{}}}}},`, i, i)
	}
	b.WriteString(`"last":{}}}`)
	names := fold.Of([]byte(b.String()))
	for _, arguments := range []string{`{"Last":1}`, `{"p19999":{"q19999":{"Deep":1}}}`, `{"p1":{"q1":{"DEEP":1}}}`} {
		if names.Check([]byte(arguments)) == nil {
			t.Errorf("%s: no error", arguments)
		}
	}
}

func BenchmarkCheck(b *testing.B) {
	names := fold.Of([]byte(`{"properties":{"message":{"type":"string"},"options":{"properties":{"a":{}}}}}`))
	arguments := []byte(`{"message":"` + strings.Repeat("x", 100) + `","options":{"a":1}}`)
	b.ReportAllocs()
	for b.Loop() {
		if err := names.Check(arguments); err != nil {
			b.Fatal(err)
		}
	}
}
