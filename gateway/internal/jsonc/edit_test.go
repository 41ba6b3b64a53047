package jsonc_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/internal/jsonc"
	"github.com/patchbay-mcp/patchbay/host/config"
)

const entry = `{"command":"/bin/p","args":["gateway","--stdio"]}`

func TestSet(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"after the last member": {"{\n  \"servers\": {\n    \"a\": {} // first\n  },\n}\n",
			"{\n  \"servers\": {\n    \"a\": {}, // first\n    \"p\": {\n      \"command\": \"/bin/p\",\n" +
				"      \"args\": [\"gateway\", \"--stdio\"]\n    }\n  },\n}\n"},
		"after a trailing comma": {"{\n\t\"servers\": {\n\t\t\"a\": 1, /* x\n y */ // z\n\t}\n}",
			"{\n\t\"servers\": {\n\t\t\"a\": 1, /* x\n y */ // z\n\t\t\"p\": {\n\t\t\t\"command\": \"/bin/p\",\n" +
				"\t\t\t\"args\": [\"gateway\", \"--stdio\"]\n\t\t},\n\t}\n}"},
		"into an empty object": {"{\r\n  // note\r\n  \"servers\": {}\r\n}",
			"{\r\n  // note\r\n  \"servers\": {\r\n    \"p\": {\r\n      \"command\": \"/bin/p\",\r\n" +
				"      \"args\": [\"gateway\", \"--stdio\"]\r\n    }\r\n  }\r\n}"},
		"without the object": {"{ // note\n}",
			"{ // note\n  \"servers\": {\n    \"p\": {\n      \"command\": \"/bin/p\",\n" +
				"      \"args\": [\"gateway\", \"--stdio\"]\n    }\n  }\n}"},
		"one line":  {`{"x":1,"servers":{"a":1}}`, `{"x":1,"servers":{"a":1, "p": {"command": "/bin/p", "args": ["gateway", "--stdio"]}}}`},
		"new value": {`{"servers": {"p": [1], "a": 2}} // end`, `{"servers": {"p": {"command": "/bin/p", "args": ["gateway", "--stdio"]}, "a": 2}} // end`},
		"empty file": {"// only a comment", "// only a comment\n{\n  \"servers\": {\n    \"p\": {\n      \"command\": \"/bin/p\",\n" +
			"      \"args\": [\"gateway\", \"--stdio\"]\n    }\n  }\n}\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := jsonc.Set([]byte(c.text), []string{"servers", "p"}, []byte(entry))
			if err != nil || string(got) != c.want {
				t.Errorf("got %s, %v\nwant %s", got, err, c.want)
			}
		})
	}
}

func TestSetOfAnElement(t *testing.T) {
	const text = "{\"a\": [\n  {\"b\": 1, \"c\": 2}, // first\n  {\"b\": 3},\n]}"
	for path, want := range map[string]string{
		"a.1.b": strings.Replace(text, "3", "9.0", 1), "a.0": strings.Replace(text, `{"b": 1, "c": 2}`, "9.0", 1),
		"a.1.d": strings.Replace(text, `{"b": 3}`, `{"b": 3, "d": 9.0}`, 1), "a.2.b": "", "a.x": "", "a.0.b.0": "",
	} {
		got, err := jsonc.Set([]byte(text), strings.Split(path, "."), []byte("9.0"))
		if string(got) != want || (err == nil) != (want != "") {
			t.Errorf("%s: got %s, %v, want %s", path, got, err, want)
		}
	}
}

func TestRemove(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"last":                   {"{\n  \"a\": 1, // one\n  \"p\": {\n  }\n}", "{\n  \"a\": 1 // one\n}"},
		"first":                  {"{\n  \"p\": 1,\n  // of a\n  \"a\": 1\n}", "{\n  // of a\n  \"a\": 1\n}"},
		"with a trailing comma":  {"{\n  \"a\": 1,\n  \"p\": 1,\n}", "{\n  \"a\": 1,\n}"},
		"with a comment":         {"{\r\n  \"a\": 1,\r\n  \"p\": 1 // of p\r\n}", "{\r\n  \"a\": 1\r\n  // of p\r\n}"},
		"only":                   {"{\n  \"p\": 1,\n}", "{}"},
		"only, with a comment":   {"{\n  // note\n  \"p\": 1\n}", "{\n  // note\n}"},
		"one line, last":         {`{"a": 1, "p": 2}`, `{"a": 1}`},
		"one line, first":        {`{"p": 1, "a": 2}`, `{"a": 2}`},
		"comma after a comment":  {"{\"p\": 1 /* x */, \"a\": 2}", "{/* x */ \"a\": 2}"},
		"comma on the next line": {"{\n  \"a\": 1\n  , \"p\": 2\n}", "{\n  \"a\": 1\n  \n}"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := jsonc.Remove([]byte(c.text), []string{"p"})
			if err != nil || string(got) != c.want {
				t.Errorf("got %q, %v\nwant %q", got, err, c.want)
			}
		})
	}
	if _, err := jsonc.Remove([]byte(`{"a": {}}`), []string{"a", "p"}); !errors.Is(err, jsonc.ErrAbsent) {
		t.Errorf("absent member: %v", err)
	}
	got, err := jsonc.Remove([]byte(`{"a": ["x", /* y */ "y", "z"]}`), []string{"a", "1"})
	if err != nil || string(got) != `{"a": ["x", /* y */ "z"]}` {
		t.Errorf("element: %s, %v", got, err)
	}
}

func TestSetRefusesWhatItCannotEdit(t *testing.T) {
	for _, text := range []string{`[]`, `{"servers": []}`, `{"servers": {}`, `{"a": 1, "a": 2}`, `{} x`, "{ /* }", `"x"`} {
		if got, err := jsonc.Set([]byte(text), []string{"servers", "p"}, []byte(entry)); err == nil {
			t.Errorf("%s: got %s, want an error", text, got)
		}
	}
}

// decoded returns a plain value without the member servers.name.
func decoded(t *testing.T, text []byte, name string) any {
	t.Helper()
	plain, err := config.Plain(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.UseNumber()
	var v map[string]any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	if servers, ok := v["servers"].(map[string]any); ok {
		delete(servers, name)
		if len(servers) == 0 {
			delete(v, "servers") // the edit may have added it
		}
	}
	return v
}

// comments returns the comments of a text outside the value of servers.name.
func comments(text []byte) (all []string) {
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		switch {
		case text[i] == '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case bytes.HasPrefix(rest, []byte("//")):
			end := bytes.IndexAny(rest, "\r\n")
			if end < 0 {
				end = len(rest)
			}
			all = append(all, string(rest[:end]))
			i += end
		case bytes.HasPrefix(rest, []byte("/*")):
			end := bytes.Index(rest, []byte("*/"))
			all = append(all, string(rest[:end+2]))
			i += end + 1
		}
	}
	return all
}

// An edit never changes another value, never loses a comment, and can be undone.
func FuzzEdit(f *testing.F) {
	for _, text := range []string{`{}`, `{"servers":{}}`, "{\n\t\"servers\": {\n\t\t\"a\": 1, // x\n\t},\n}", "// c\n{ /* d */ }",
		`{"servers":{"p":{"a":[1,{}]}},"b":"//"}`, "{\r\n\"servers\":{\"b\":1\r\n,\"p\":2 // x\r\n}}", "\uFEFF{\"servers\" : { } }",
		"{\"servers\":{\"a\":1 /* x */ , /* y */ \"b\":[] /* z\n */ }\r}", ""} {
		f.Add(text, "p")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		before := []byte(text)
		path := []string{"servers", strings.ToValidUTF8(name, "?")}
		added, err := jsonc.Set(before, path, []byte(entry))
		if err != nil {
			return
		}
		if jsonc.IsBlank(before) {
			before = []byte("{}")
		}
		removed, err := jsonc.Remove(added, path)
		if err != nil {
			t.Fatalf("%q: remove from %q: %v", text, added, err)
		}
		want := decoded(t, before, path[1])
		for _, got := range [][]byte{added, removed} {
			if !reflect.DeepEqual(decoded(t, got, path[1]), want) {
				t.Fatalf("%q became %q", text, got)
			}
		}
		original := []byte(text)
		hadEntry, err := jsonc.Remove(before, path)
		if err == nil { // comments within the old value go with it
			original = hadEntry
		}
		if a, b := comments(original), comments(removed); fmt.Sprint(a) != fmt.Sprint(b) {
			t.Fatalf("%q became %q: comments %q, want %q", text, removed, b, a)
		}
		again, err := jsonc.Set(removed, path, []byte(entry))
		if err != nil || !reflect.DeepEqual(decoded(t, again, path[1]), want) {
			t.Fatalf("%q: set again: %q, %v", text, again, err)
		}
	})
}
