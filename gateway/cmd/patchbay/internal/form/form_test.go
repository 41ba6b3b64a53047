package form_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/form"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
)

// A published contains the input schema of a tool, or the form of an elicitation, in the shape in which
// a public server declares it, and values for it.
type published struct {
	Server, Tool string
	Schema       json.RawMessage
	Values       []string
}

func publishedSchemas(t testing.TB) (all []published) {
	t.Helper()
	file, err := os.Open("testdata/tools.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var p published
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	return all
}

// posted returns the values that a browser posts for a field: it changes line ends.
func posted(f *form.Field) url.Values {
	values := url.Values{}
	add := func(name, value string) {
		value = strings.ReplaceAll(strings.ReplaceAll(value, "\r\n", "\n"), "\r", "\n")
		values.Add(name, strings.ReplaceAll(value, "\n", "\r\n"))
	}
	var walk func(f *form.Field)
	walk = func(f *form.Field) {
		switch {
		case !f.IsContainer():
			add(f.Input(), f.Text)
			if f.Raw != "" {
				add(form.PrefixRaw+f.Pointer, f.Raw)
			}
		case f.Open && f.Kind == form.KindList:
			add(form.PrefixOpen+f.Pointer, fmt.Sprint(len(f.Fields)))
		case f.Open:
			add(form.PrefixOpen+f.Pointer, "")
			for _, name := range f.Extras() {
				add(form.PrefixOpen+f.Pointer, "="+name)
			}
		}
		if f.Blank != "" {
			add(form.PrefixBlank+f.Pointer, f.Blank)
		}
		for _, inner := range f.Fields {
			walk(inner)
		}
	}
	walk(f)
	return values
}

func textOf(t testing.TB, f *form.Form, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	text, err := f.JSON()
	if err != nil {
		t.Fatalf("%v: %+v", err, f.Root)
	}
	return string(text)
}

func TestPublishedSchemasKeepEveryByte(t *testing.T) {
	all := publishedSchemas(t)
	if len(all) < 40 {
		t.Errorf("testdata contains %d schemas, want at least 40", len(all))
	}
	for _, p := range all {
		t.Run(p.Server+"/"+p.Tool, func(t *testing.T) {
			if _, err := jsonschema.Compile(p.Schema); err != nil {
				t.Fatal(err)
			}
			for _, value := range p.Values {
				parsed, err := form.Parse(p.Schema, []byte(value))
				if got := textOf(t, parsed, err); got != value {
					t.Errorf("parsed: got  %s\nwant %s", got, value)
				}
				read, err := form.Read(p.Schema, posted(parsed.Root))
				if got := textOf(t, read, err); got != value {
					t.Errorf("posted: got  %s\nwant %s", got, value)
				}
			}
			first := form.New(p.Schema)
			text, err := first.JSON()
			if err != nil {
				t.Fatalf("the first form: %v", err)
			}
			again, err := form.Read(p.Schema, posted(first.Root))
			if got := textOf(t, again, err); got != string(text) {
				t.Errorf("first form: got %s, want %s", got, text)
			}
		})
	}
}

func TestKindsOfFields(t *testing.T) {
	kinds := func(f *form.Field) string {
		var b strings.Builder
		var walk func(f *form.Field)
		walk = func(f *form.Field) {
			fmt.Fprintf(&b, "%s %s", f.Input(), f.Kind)
			if f.Nullable {
				b.WriteString("?")
			}
			b.WriteString("; ")
			for _, inner := range f.Fields {
				walk(inner)
			}
		}
		walk(f)
		return b.String()
	}
	for _, test := range []struct{ name, schema, want string }{
		{"scalars", `{"type":"object","properties":{"s":{"type":"string"},"n":{"type":"integer"},"b":{"type":"boolean"},
			"e":{"enum":["a"]},"c":{"const":1}}}`,
			"# object; /s text; /n number; /b boolean; /e choice; /c choice; "},
		{"nullable", `{"type":"object","properties":{"s":{"type":["string","null"]},"e":{"anyOf":[{"enum":["a"]},
			{"type":"null"}]},"l":{"oneOf":[{"type":"null"},{"type":"array","items":{"type":"string"}}]}}}`,
			"# object; /s text?; /e choice?; /l list?; "},
		{"required containers are open", `{"type":"object","required":["o"],"properties":{"o":{"type":"object",
			"properties":{"a~/b":{"type":"string"}}},"closed":{"type":"object","properties":{"x":{}}}}}`,
			"# object; /o object; /o/a~0~1b text; /closed object; "},
		{"unsupported parts", `{"type":"object","properties":{"u":{"type":["string","number"]},"any":{},"t":{"type":"array",
			"prefixItems":[{}]},"o":{"type":"object"},"all":{"allOf":[{"type":"string"},{"minLength":1}]},"no":false}}`,
			"# object; /u json; /any json; /t json; /o json; /all json; /no json; "},
		{"map", `{"type":"object","additionalProperties":{"type":"string"}}`, "# map; "},
		{"a schema that requires itself", `{"type":"object","required":["a"],"properties":{"a":{"$ref":"#"}}}`,
			"# object; /a object; /a/a object; /a/a/a object; /a/a/a/a object; /a/a/a/a/a object; /a/a/a/a/a/a object; " +
				"/a/a/a/a/a/a/a object; /a/a/a/a/a/a/a/a json; "},
		{"control characters in a name", `{"type":"object","properties":{"a\nb":{"type":"string"}}}`, "# json; "},
		{"invalid JSON", `{"type":`, "# json; "},
	} {
		if got := kinds(form.New([]byte(test.schema)).Root); got != test.want {
			t.Errorf("%s: got  %s\nwant %s", test.name, got, test.want)
		}
	}
}

func TestManyFieldsBecomeJSON(t *testing.T) {
	const schema = `{"type":"object","properties":{"a":{"type":"string"},"l":{"type":"array","items":{"type":"number"}}}}`
	list := strings.TrimSuffix(strings.Repeat("1.0,", form.MaxFields), ",")
	for n, kind := range map[int]form.Kind{form.MaxFields - 3: form.KindList, form.MaxFields - 2: form.KindJSON} {
		text := `{"l":[` + list[:4*n-1] + `]}`
		f, err := form.Parse([]byte(schema), []byte(text))
		if got := textOf(t, f, err); got != text || f.Root.Fields[1].Kind != kind {
			t.Errorf("%d elements: got kind %s, want %s", n, f.Root.Fields[1].Kind, kind)
		}
	}
	full := url.Values{"open:": {""}, "open:/l": {fmt.Sprint(form.MaxFields - 3)}, "add": {"/l"}}
	if _, err := form.Read([]byte(schema), full); err == nil || !strings.Contains(err.Error(), "at most 500 fields") {
		t.Errorf("got %v, want an error about too many fields", err)
	}
}

func TestTextsThatFieldsCannotContain(t *testing.T) {
	const schema = `{"type":"object","additionalProperties":false,"properties":{"n":{"type":"number"},
		"s":{"type":"string"},"l":{"type":"array","items":{"type":"number"}}}}`
	for text, want := range map[string]string{
		`{"n":"1"}`:        "/n is a string, which its number field cannot contain",
		`{"s":null}`:       "/s is null, which its text field cannot contain",
		`{"l":[1,{}]}`:     "/l/1 is an object, which its number field cannot contain",
		`{"x":1}`:          `the value has the member "x", which the schema does not allow`,
		`[]`:               "the value is an array, which its object field cannot contain",
		`{"s":"a\u0000b"}`: "/s contains the character U+0000, which a form cannot contain",
		`{"n":1,"n":2}`:    "invalid JSON",
		`{`:                "invalid JSON",
	} {
		if _, err := form.Parse([]byte(schema), []byte(text)); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", text, err, want)
		}
	}
}

func TestButtons(t *testing.T) {
	const schema = `{"type":"object","properties":{"l":{"type":"array","items":{"type":"object","required":["n"],
		"properties":{"n":{"type":"number","default":7},"s":{"type":"string"}}}},"m":{"type":["object","null"],
		"additionalProperties":{"type":"string"}},"o":{"type":"object","properties":{"s":{"type":"string","default":"d"}}}}}`
	for _, test := range []struct{ name, text, button, at, key, want string }{
		{"open a list", `{}`, "add", "/l", "", `{"l":[{"n":7}]}`},
		{"add an element", `{"l":[{"n":1}]}`, "add", "/l", "", `{"l":[{"n":1},{"n":7}]}`},
		{"remove an element", `{"l":[{"n":1},{"s":"x"},{"n":3}]}`, "remove", "/l/0", "", `{"l":[{"s":"x"},{"n":3}]}`},
		{"remove the last element", `{"l":[{"n":1}]}`, "remove", "/l/0", "", `{"l":[]}`},
		{"remove a list", `{"l":[{"n":1}]}`, "remove", "/l", "", `{}`},
		{"open an object", `{}`, "add", "/o", "", `{"o":{"s":"d"}}`},
		{"open a map", `{}`, "add", "/m", "", `{"m":{}}`},
		{"add a member", `{"m":{"a":"1"}}`, "add", "/m", "b/c", `{"m":{"a":"1","b/c":""}}`},
		{"remove a member", `{"m":{"a":"1","b/c":"2"}}`, "remove", "/m/b~1c", "", `{"m":{"a":"1"}}`},
		{"null", `{"m":{"a":"1"}}`, "null", "/m", "", `{"m":null}`},
	} {
		parsed, err := form.Parse([]byte(schema), []byte(test.text))
		if err != nil {
			t.Fatal(err)
		}
		values := posted(parsed.Root)
		values.Set(test.button, test.at)
		values.Set(form.PrefixKey+test.at, test.key)
		read, err := form.Read([]byte(schema), values)
		if got := textOf(t, read, err); got != test.want || !form.Pressed(values) {
			t.Errorf("%s: got %s, want %s", test.name, got, test.want)
		}
		again, err := form.Read([]byte(schema), posted(read.Root))
		if got := textOf(t, again, err); got != test.want {
			t.Errorf("%s, posted again: got %s, want %s", test.name, got, test.want)
		}
	}
}

func TestProblemsStandBesideTheirField(t *testing.T) {
	const schema = `{"type":"object","required":["a","é"],"properties":{"a":{"type":"string"},"é":{"type":"number"},
		"l":{"type":"array","items":{"enum":["x","y"]}}}}`
	compiled, err := jsonschema.Compile([]byte(schema))
	if err != nil {
		t.Fatal(err)
	}
	text := []byte(`{"l":["x","z"],"other":1}`)
	f, err := form.Parse([]byte(schema), text)
	if err != nil {
		t.Fatal(err)
	}
	f.Mark(compiled.Validate(text))
	for i, at := range []*form.Field{f.Root.Fields[0], f.Root.Fields[1], f.Root.Fields[2].Fields[1]} {
		if len(at.Problems) != 1 {
			t.Errorf("field %d, %s: got problems %q, want one", i, at.Pointer, at.Problems)
		}
	}
	wrong, err := form.Read([]byte(schema), url.Values{"/é": {"twelve"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = wrong.JSON()
	if number := wrong.Root.Fields[1]; err == nil || len(number.Problems) != 1 || number.Text != "twelve" {
		t.Errorf("got %v and %+v, want a problem beside the text", err, number)
	}
}

func FuzzRead(f *testing.F) {
	all := publishedSchemas(f)
	for i, p := range all {
		for _, value := range p.Values {
			if parsed, err := form.Parse(p.Schema, []byte(value)); err == nil {
				f.Add(i, posted(parsed.Root).Encode())
			}
		}
	}
	f.Add(5, "open%3A=&open%3A%2Fl=99999999999&add=%2Fl&key%3A=x&remove=%2Fl%2F0&null=%2F&raw%3A%2Fa=%22")
	f.Fuzz(func(t *testing.T, index int, query string) {
		values, err := url.ParseQuery(query)
		if err != nil || index < 0 {
			return
		}
		schema := all[index%len(all)].Schema
		read, err := form.Read(schema, values)
		if err != nil {
			return
		}
		text, err := read.JSON()
		if err != nil {
			return
		}
		if err := rawjson.Valid(text); err != nil {
			t.Fatalf("invalid JSON %s: %v", text, err)
		}
		parsed, err := form.Parse(schema, text)
		if err != nil {
			return // for example a choice outside the schema
		}
		if again, err := parsed.JSON(); err != nil || !bytes.Equal(again, text) {
			t.Errorf("got %s, %v, want %s", again, err, text)
		}
	})
}
