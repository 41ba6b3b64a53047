package rawjson_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

func TestValidText(t *testing.T) {
	for text, want := range map[string]string{
		`{"a": [1, "x", null, {"b": true}]}`: "", " 1 ": "", `"\ud83d\ude00"`: "", strings.Repeat("[", 64) + strings.Repeat("]", 64): "",
		"": "empty text", "{": "at byte 1", `{"a":1}}`: "byte 7", "1 2": "data after the value", `{"a":1,"a":2}`: "duplicate",
		`{"a":1,"\u0061":2}`: "duplicate", `"\ud83d"`: "surrogate", "\"\xff\"": "UTF-8", "01": "after the value", "[1,]": "byte 2",
		strings.Repeat("[", 65) + strings.Repeat("]", 65): "nested too deeply",
	} {
		err := rawjson.Valid([]byte(text))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("Valid(%q) = %v, want %q", text, err, want)
		}
	}
}

func TestKinds(t *testing.T) {
	for text, want := range map[string]byte{"{}": '{', " [": '[', `"`: '"', "-1": '0', "7": '0', "true": 't', "false": 'f',
		"\tnull": 'n', "": 0, " ": 0, "}": 0, "]": 0, "x": 0, ",": 0} {
		if got := rawjson.Kind([]byte(text)); got != want {
			t.Errorf("Kind(%q) = %q, want %q", text, got, want)
		}
	}
}

func TestMembersAndElements(t *testing.T) {
	object := []byte(" { \"a\" :1,\"\\u0062\":[ {\"c\":\"]}\\\"\"} , 2],\"\" : null\n}")
	var got []string
	for name, value := range rawjson.Members(object) {
		got = append(got, string(name)+"="+string(value))
	}
	if diff := cmp.Diff([]string{"a=1", `b=[ {"c":"]}\""} , 2]`, "=null"}, got); diff != "" {
		t.Error(diff)
	}
	list, ok := rawjson.Get(object, "b")
	if _, other := rawjson.Get(object, "c"); !ok || other {
		t.Errorf("Get: found b: %v, found c: %v", ok, other)
	}
	got = nil
	for value := range rawjson.Elements(list) {
		got = append(got, string(value))
	}
	if diff := cmp.Diff([]string{`{"c":"]}\""}`, "2"}, got); diff != "" {
		t.Error(diff)
	}
	if n := len(slices.Collect(rawjson.Elements(object))) + len(maps.Collect(memberNames(list))); n > 0 {
		t.Errorf("found %d members of an array and elements of an object", n)
	}
}

func memberNames(object []byte) func(yield func(string, bool) bool) {
	return func(yield func(string, bool) bool) {
		for name := range rawjson.Members(object) {
			if !yield(string(name), true) {
				return
			}
		}
	}
}

func TestSet(t *testing.T) {
	for object, want := range map[string]string{
		`{}`: `{"k\n":2}`, `{"a":1}`: `{"a":1,"k\n":2}`, `{"k\n":1, "b":{}}`: `{"k\n":2,"b":{}}`,
	} {
		if got := string(rawjson.Set([]byte(object), "k\n", []byte("2"))); got != want {
			t.Errorf("Set(%s) = %s, want %s", object, got, want)
		}
	}
}

func TestEndOfAValue(t *testing.T) {
	for text, want := range map[string]int{`x {"a":[1]}, b`: 11, `x "}" y`: 5, `x 12,`: 4, `x [1,]`: 0, `x `: 0} {
		end, err := rawjson.End([]byte(text), 1)
		if (err == nil) != (want > 0) || err == nil && end != want {
			t.Errorf("End(%q) = %d, %v, want %d", text, end, err, want)
		}
	}
}

func TestQuotes(t *testing.T) {
	for text, want := range map[string]string{
		"": `""`, "a\"\\/": `"a\"\\/"`, "\b\f\n\r\t\x01": `"\b\f\n\r\t\u0001"`, "é\u2028\u2029<>&": `"é\u2028\u2029<>&"`,
		"\xff": `"` + "\uFFFD" + `"`,
	} {
		got := string(rawjson.AppendQuote([]byte("x"), text))
		if got != "x"+want {
			t.Errorf("AppendQuote(%q) = %s, want x%s", text, got, want)
		}
		if back, err := rawjson.Unquote([]byte(want)); err != nil || back != strings.ToValidUTF8(text, "\uFFFD") {
			t.Errorf("Unquote(%s) = %q, %v", want, back, err)
		}
	}
	for _, raw := range []string{"", "1", `"a`, `"a" `, `"a""b"`, `"\x"`, `"\ud800"`, "\"\xff\"", "\"\n\""} {
		if text, err := rawjson.Unquote([]byte(raw)); err == nil || text != "" {
			t.Errorf("Unquote(%q) = %q, %v, want an error", raw, text, err)
		}
	}
}

// Members and elements of valid text agree with package json, and no text makes a reader panic.
func FuzzReaders(f *testing.F) {
	for _, text := range []string{`{"a":1,"b":[true,{"c":"\\\""}]}`, ` [ 1 , "x",[] ] `, `{"a"`, `[1}`, `{"a":}`, `"\`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var members, elements int
		var object map[string]json.RawMessage
		var list []json.RawMessage
		valid := rawjson.Valid(text) == nil
		if valid && rawjson.Kind(text) == '{' && json.Unmarshal(text, &object) != nil ||
			valid && rawjson.Kind(text) == '[' && json.Unmarshal(text, &list) != nil {
			t.Fatalf("%q is valid, and json disagrees", text)
		}
		for name, value := range rawjson.Members(text) {
			if valid && string(object[string(name)]) != string(value) {
				t.Errorf("member %q is %s, want %s", name, value, object[string(name)])
			}
			members++
		}
		for value := range rawjson.Elements(text) {
			if valid && string(list[elements]) != string(value) {
				t.Errorf("element %d is %s, want %s", elements, value, list[elements])
			}
			elements++
		}
		if valid && (members != len(object) || elements != len(list)) {
			t.Errorf("%d members and %d elements, want %d and %d", members, elements, len(object), len(list))
		}
	})
}
