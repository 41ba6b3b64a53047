package schema_test

import "testing"

const defaults = `{"type":"object","required":["r"],"properties":{
	"a":{"type":"integer","default":1},
	"b":{"$ref":"#/$defs/b"},
	"c":{"type":"array","items":{"properties":{"x":{"default":[]}}}},
	"d":{"default":{"deep":true},"properties":{"e":{"default":2}}},
	"r":{"type":"string"}, "n":{"type":["string","null"]}, "s":{"type":"string"}},
	"additionalProperties":{"properties":{"y":{"default":null}}},
	"$defs":{"b":{"properties":{"b":{"$ref":"#/$defs/b"},"z":{"default":"é"}}}}}`

func TestApplyDefaults(t *testing.T) {
	s := compile(t, defaults)
	for in, want := range map[string]string{
		`{}`:                                    `{"a":1,"d":{"deep":true}}`,
		` { } `:                                 ` {"a":1,"d":{"deep":true}} `,
		`{"a":null}`:                            `{"a":null,"d":{"deep":true}}`,
		`{ "\u0061" : 7 , "d":0 }`:              `{ "\u0061" : 7 , "d":0 }`,
		`{"a":1,"d":{"x":1}}`:                   `{"a":1,"d":{"x":1,"e":2}}`,
		`{"a":1,"d":2,"b":{"b":{}}}`:            `{"a":1,"d":2,"b":{"b":{"z":"é"},"z":"é"}}`,
		`{"c":[1, {} ,{"x":3},[]],"a":0}`:       `{"c":[1,{"x":[]},{"x":3},[]],"a":0,"d":{"deep":true}}`,
		`{"other":{},"a":1,"d":1}`:              `{"other":{"y":null},"a":1,"d":1}`,
		`[{}]`:                                  `[{}]`,
		`"{}"`:                                  `"{}"`,
		`{"a":[{"b":{}}],"b":"}","c":{},"d":1}`: `{"a":[{"b":{}}],"b":"}","c":{},"d":1}`,
	} {
		raw := []byte(in)
		got := s.ApplyDefaults(raw)
		if string(got) != want {
			t.Errorf("%s\ngot  %s\nwant %s", in, got, want)
		}
		if string(raw) != in {
			t.Errorf("input %s was changed to %s", in, raw)
		}
		if in == want && &got[0] != &raw[0] {
			t.Errorf("%s was copied", in)
		}
	}
	complete := []byte(`{"a":1,"d":{"e":1},"r":"x"}`)
	if n := testing.AllocsPerRun(100, func() { s.ApplyDefaults(complete) }); n > 0 {
		t.Errorf("got %v allocations for a complete value, want 0", n)
	}
}

func TestDropNulls(t *testing.T) {
	s := compile(t, defaults)
	for in, want := range map[string]string{
		`{"a":null}`:                           `{}`,
		`{ "a" : null , "s" : null }`:          `{}`,
		`{"a":null,"s":"null"}`:                `{"s":"null"}`,
		`{"s":"x", "a":null}`:                  `{"s":"x"}`,
		`{"s":"x","a":null,"n":null,"r":null}`: `{"s":"x","n":null,"r":null}`, // n takes null, r is required
		`{"d":{"e":null},"other":{"y":null}}`:  `{"d":{"e":null},"other":{"y":null}}`,
		`{"c":[null,{"x":null}],"a":null}`:     `{"c":[null,{"x":null}]}`,
		`{"unknown":null}`:                     `{"unknown":null}`,
		`[null]`:                               `[null]`,
		`null`:                                 `null`,
	} {
		raw := []byte(in)
		if got := s.DropNulls(raw); string(got) != want {
			t.Errorf("%s\ngot  %s\nwant %s", in, got, want)
		}
		if string(raw) != in {
			t.Errorf("input %s was changed to %s", in, raw)
		}
	}
}
