package jsonscan_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

func TestKindReturnsTheTypeOfAValue(t *testing.T) {
	for text, want := range map[string]byte{
		`{}`: '{', `[]`: '[', `"a"`: '"', `0`: '0', `-1`: '0', `9.5`: '0', `true`: 't', `false`: 'f', `null`: 'n',
		"\t\r\n {}": '{', "": 0, "  ": 0, "x": 0, "}": 0, "\uFEFF{}": 0,
	} {
		if got := jsonscan.Kind([]byte(text)); got != want {
			t.Errorf("Kind(%q) = %q, want %q", text, got, want)
		}
	}
}

func members(obj string) (all []string) {
	for key, value := range jsonscan.Members([]byte(obj)) {
		all = append(all, string(key)+"="+string(value))
	}
	return all
}

func elements(arr string) (all []string) {
	for value := range jsonscan.Elements([]byte(arr)) {
		all = append(all, string(value))
	}
	return all
}

func TestMembersIteratesOverAnObject(t *testing.T) {
	for text, want := range map[string][]string{
		`{}`:  nil,
		`{ }`: nil,
		` { "a" : 1 , "b":"x,}\"" , "c" : [ {} , "]" ] ,"d":null } `: {`a=1`, `b="x,}\""`, `c=[ {} , "]" ]`, `d=null`},
		`{"\u0061\/\n":true}`: {"a/\n=true"},
		`{"":""}`:             {`=""`},
		`[1]`:                 nil,
		`"a"`:                 nil,
		``:                    nil,
	} {
		if diff := cmp.Diff(want, members(text)); diff != "" {
			t.Errorf("Members(%s): -want +got\n%s", text, diff)
		}
	}
}

func TestElementsIteratesOverAnArray(t *testing.T) {
	for text, want := range map[string][]string{
		`[]`:  nil,
		`[ ]`: nil,
		` [ 1 ,"a,]", {"b":[2]} ,[ 3 ], true,null ] `: {`1`, `"a,]"`, `{"b":[2]}`, `[ 3 ]`, `true`, `null`},
		`{"a":1}`: nil,
		``:        nil,
	} {
		if diff := cmp.Diff(want, elements(text)); diff != "" {
			t.Errorf("Elements(%s): -want +got\n%s", text, diff)
		}
	}
}

func TestIterationCanStopEarly(t *testing.T) {
	for range jsonscan.Members([]byte(`{"a":1,"b":2}`)) {
		break
	}
	for range jsonscan.Elements([]byte(`[1,2]`)) {
		break
	}
}

func TestIterationOfInvalidTextEnds(t *testing.T) {
	for _, text := range []string{
		`{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":}`, `{"a":"`, `{"a":[`, `{a:1}`, `{,}`, `[`, `[,`, `["`, `["\`, `[[`,
		`[}`,
	} {
		if got := slices.Concat(members(text), elements(text)); len(got) > 1 {
			t.Errorf("%s: got %q, want at most one item", text, got)
		}
		jsonscan.Get([]byte(text), "a")
	}
}

func TestGetReturnsAMember(t *testing.T) {
	obj := `{"a":1,"\u0062\/":[2],"A":3,"long":{"a":4},"a\u0000":5}`
	for key, want := range map[string]string{"a": "1", "b/": "[2]", "A": "3", "long": `{"a":4}`, "a\x00": "5"} {
		got, ok := jsonscan.Get([]byte(obj), key)
		if !ok || string(got) != want {
			t.Errorf("Get(%q) = %s, %t; want %s", key, got, ok, want)
		}
	}
	for _, key := range []string{"", "b", "LONG", `\u0062\/`, "a\x00\x00"} {
		if got, ok := jsonscan.Get([]byte(obj), key); ok {
			t.Errorf("Get(%q) = %s, want nothing", key, got)
		}
	}
}

func TestWithMemberSetsAMember(t *testing.T) {
	for _, test := range []struct{ obj, want string }{
		{`{}`, `{"a":1}`},
		{`{ "b" : [2] }`, `{"b":[2],"a":1}`},
		{`{"a":{},"b":2}`, `{"a":1,"b":2}`},
		{`{"\u0061":"x"}`, `{"a":1}`},
	} {
		if got := jsonscan.WithMember([]byte(test.obj), "a", []byte("1")); string(got) != test.want {
			t.Errorf("WithMember(%s) = %s, want %s", test.obj, got, test.want)
		}
	}
}

func TestUnquoteDecodesStrings(t *testing.T) {
	for raw, want := range map[string]string{
		`""`: "", `"a"`: "a", `"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"\u0041\u00e9\u6771"`: "Aé東",
		`"x\uD83D\uDE00y"`: "x😀y", `"\u0000"`: "\x00", `"tools\/call"`: "tools/call",
	} {
		got, err := jsonscan.Unquote([]byte(raw))
		if err != nil || got != want {
			t.Errorf("Unquote(%s) = %q, %v; want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{``, `a`, `"`, `"a`, `"a"b`, `"a" `, ` "a"`, `1`, `null`, `"\uD800"`, "\"\xff\"",
		"\"\n\""} {
		if got, err := jsonscan.Unquote([]byte(raw)); err == nil {
			t.Errorf("Unquote(%s) = %q, want an error", raw, got)
		}
	}
}

func TestAppendQuoteEncodesStrings(t *testing.T) {
	for s, want := range map[string]string{
		"": `""`, "a": `"a"`, "\"\\/\b\f\n\r\t": `"\"\\/\b\f\n\r\t"`, "\x00\x1f\x7f": "\"\\u0000\\u001f\x7f\"",
		"<a>&": `"<a>&"`, "é東😀": `"é東😀"`, "a\xffb\xc3": "\"a\uFFFDb\uFFFD\"", "\u2028\u2029": `"\u2028\u2029"`,
		"\uFFFD": "\"\uFFFD\"",
	} {
		if got := string(jsonscan.AppendQuote([]byte("x"), s)); got != "x"+want {
			t.Errorf("AppendQuote(%q) = %s, want %s", s, got, want)
		}
	}
	long := strings.Repeat("x", 1000)
	if got := string(jsonscan.AppendQuote(nil, long)); got != `"`+long+`"` {
		t.Errorf("AppendQuote of 1000 letters = %s, want them in quotes", got)
	}
}

func TestWithout(t *testing.T) {
	for _, test := range []struct{ obj, want string }{
		{`{"a":1,"b":{"a":2},"c":[3]}`, `{"b":{"a":2},"c":[3]}`},
		{`{"\u0061":1}`, `{}`},
		{`{"b":1}`, `{"b":1}`},
		{`[1]`, `{}`},
	} {
		if got := jsonscan.Without([]byte(test.obj), "a"); string(got) != test.want {
			t.Errorf("Without(%s, a) = %s, want %s", test.obj, got, test.want)
		}
	}
}

func TestGetStringReturnsOnlyStrings(t *testing.T) {
	for obj, want := range map[string]string{`{"a":"x"}`: "x", `{"a":1}`: "", `{"b":"x"}`: "", `["a","x"]`: "", ``: ""} {
		if got := jsonscan.GetString([]byte(obj), "a"); got != want {
			t.Errorf("GetString(%s, a) = %q, want %q", obj, got, want)
		}
	}
}
