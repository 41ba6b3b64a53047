package root

import (
	stdjson "encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
)

// everyType is the schema of a tool with a parameter of each type.
const everyType = `{"type": "object",
	"$defs": {"colour": {"enum": ["red", 7, null]}, "loop": {"$ref": "#/$defs/loop"}, "a/b~c": {"type": "integer"}},
	"required": ["must"], "properties": {
	"must": {"type": "string"}, "text": {"type": "string"}, "integer": {"type": "integer"},
	"number": {"type": "number"}, "boolean": {"type": "boolean"}, "null": {"type": "null"},
	"object": {"type": "object"}, "any": {}, "yes": true,
	"list": {"type": "array", "items": {"type": "integer"}},
	"texts": {"type": "array", "items": {"type": "string"}}, "bare": {"type": "array"},
	"maybe": {"type": ["integer", "null"]}, "either": {"type": ["string", "integer"]},
	"colour": {"$ref": "#/$defs/colour"}, "loop": {"$ref": "#/$defs/loop"},
	"escaped": {"$ref": "#/$defs/a~1b~0c"}, "remote": {"$ref": "https://example.com/"},
	"union": {"anyOf": [{"type": "integer"}, {"type": "boolean"}]},
	"const": {"oneOf": [{"const": "x"}, {"const": "y", "title": "Why"}]},
	"optional": {"anyOf": [{"enum": ["a", "b"]}, {"type": "null"}]}}}`

func TestArgumentsAreConvertedToTheTypesOfTheSchema(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{"text.txt": "line\n",
		"object.json": ` {"text": "f", "extra": 1} `, "list.json": "[1]", "bytes": "\xff"} {
		writeFile(t, name, text)
	}
	for line, want := range map[string]string{
		"text=5":                       `"text":"5"`,
		"text=":                        `"text":""`,
		"text=a=b:=c":                  `"text":"a=b:=c"`,
		`text=quo"te`:                  `"text":"quo\"te"`,
		"text=@text.txt":               `"text":"line\n"`,
		"text:=@list.json":             `"text":[1]`, // := is always JSON
		"integer=-5":                   `"integer":-5`,
		"integer=2.0":                  `"integer":2.0`,
		"integer=12345678901234567890": `"integer":12345678901234567890`,
		"number=1e3":                   `"number":1e3`,
		"boolean=false":                `"boolean":false`,
		"null=null":                    `"null":null`,
		`object={"a":[1]}`:             `"object":{"a":[1]}`,
		"any=5":                        `"any":"5"`,
		"any:=5":                       `"any":5`,
		"yes=5":                        `"yes":"5"`,
		"unknown=5":                    `"unknown":"5"`,
		"list=[1,2]":                   `"list":[1,2]`,
		"list=1":                       `"list":[1]`,
		"list=1|list=2":                `"list":[1,2]`,
		"list=[9]|list=1|list=2":       `"list":[1,2]`,
		"list=1|list=[9]":              `"list":[9]`,
		"texts=a|texts=[1":             `"texts":["a","[1"]`,
		"bare=[1]":                     `"bare":[1]`,
		"maybe=null":                   `"maybe":null`,
		"maybe=3":                      `"maybe":3`,
		"either=3":                     `"either":"3"`,
		"colour=red":                   `"colour":"red"`,
		"colour=7":                     `"colour":7`,
		"colour=null":                  `"colour":null`,
		"loop=x":                       `"loop":"x"`,
		"escaped=4":                    `"escaped":4`,
		"remote=4":                     `"remote":"4"`,
		"union=true":                   `"union":true`,
		"const=y":                      `"const":"y"`,
		"optional=null":                `"optional":null`,
		"text=a|text=b":                `"text":"b"`,
		"@object.json|text=b":          `"text":"b","extra":1`,
		"text=b|@object.json":          `"text":"f","extra":1`,
		`{"text": 5}`:                  `"text":5`,
		"-":                            `"text":"stdin"`,
		"integer=x":                    `!integer: got "x", want an integer`,
		"integer=1.5":                  `!want an integer`,
		"integer=1e2":                  `!want an integer`,
		"number=NaN":                   `!want a number`,
		"boolean=yes":                  `!want true or false`,
		"object=[]":                    `!want a JSON object`,
		`object={"a":1,"a":2}`:         `!want a JSON object`,
		"bare=x":                       `!want an array`,
		"list=1|list=x":                `!want an integer`,
		"colour=blue":                  `!want one of red, 7, null`,
		"const=z":                      `!want one of x, y`,
		"text:=x":                      `!malformed JSON`,
		"text:={\"a\":1,\"a\":1}":      `!duplicate key`,
		"text=@none.txt":               `!none.txt`,
		"text:=@none.txt":              `!none.txt`,
		"@none.json":                   `!none.json`,
		"@text.txt":                    `!text.txt: malformed JSON`,
		"@list.json":                   `!list.json: want a JSON object`,
		"{":                            `!malformed JSON`,
		"text":                         `!invalid argument "text"`,
		"text=\xff":                    `!must be UTF-8`,
		"text=@bytes":                  `!must be UTF-8`,
		"=x":                           `!invalid argument`,
		":=x":                          `!invalid argument`,
		"mst=x":                        `!did you mean "must"?`,
	} {
		p := newRun(strings.NewReader(`{"text": "stdin"}`), nil, nil)
		words := strings.Split(line, "|")
		if !strings.HasPrefix(line, "mst") {
			words = append([]string{"must=m"}, words...)
		}
		a, err := p.Ask.NewArguments(t.Context(), words, []byte(everyType))
		if problem, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), problem) {
				t.Errorf("%s: error %v, want %q", line, err, problem)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: got %v, want no error", line, err)
			continue
		}
		if got := string(a.Object()); got != `{"must":"m",`+want+"}" {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}

func TestMissingAndUnknownArgumentsAreReported(t *testing.T) {
	const schema = `{"type": "object", "additionalProperties": false, "required": ["city", "unit", "days"],
		"properties": {"city": {"type": "string", "description": "Where\n\u001b[2J"}, "unit": {"enum": ["c", "f"]},
		"days": {"type": "integer"}}}`
	p := newRun(strings.NewReader(""), nil, nil)
	_, err := p.Ask.NewArguments(t.Context(), []string{"ctiy=x", "zzz=1", "days=many"}, []byte(schema))
	for _, word := range []string{"days=@absent", "days:=@absent", "days:={"} {
		if _, err := p.Ask.NewArguments(t.Context(), []string{word, "city=x", "unit=c"},
			[]byte(schema)); err == nil || strings.Contains(err.Error(), "missing") {
			t.Errorf("%s: got %v, want an error about the value", word, err)
		}
	}
	if err == nil {
		t.Fatal("got no error, want one")
	}
	for _, want := range []string{`unknown argument "ctiy": did you mean "city"?`,
		`unknown argument "zzz": want one of city, unit, days`,
		`missing argument city: a string, Where \x1b[2J`, "missing argument unit: one of c, f",
		`days: got "many", want an integer`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "missing argument days") {
		t.Errorf("got %v, want no missing argument days", err)
	}
	for _, schema := range []string{"", "true", "{}", "[", `{"properties": 5}`,
		`{"properties": {"a": 5}, "required": "a"}`, `{"$ref": "#"}`} {
		a, err := p.Ask.NewArguments(t.Context(), []string{"a=1"}, []byte(schema))
		if err != nil || string(a.Object()) != `{"a":"1"}` {
			t.Errorf("schema %q: got %v, want the argument as a string", schema, err)
		}
	}
}

// For every schema and input the arguments are valid JSON with the given names.
func FuzzArguments(f *testing.F) {
	f.Add(everyType, "integer=5", "text:=[1]")
	f.Add(`{"properties":{"a":{"anyOf":[{"$ref":"#"},{"enum":[1]}]}}}`, "a=1", "a=2")
	f.Add(`{"properties":{"a":{"anyOf":[{"$ref":"#/properties/a"},{"$ref":"#/properties/a"},`+
		`{"$ref":"#/properties/a"}]}}}`, "a=1", "a=2")
	f.Add(`{"properties":{"a":{"type":"array","items":{"type":"array","items":{"$ref":"#/properties/a"}}}}}`,
		"a=1", `{"a":2}`)
	f.Fuzz(func(t *testing.T, schema, first, second string) {
		for _, word := range []string{first, second} {
			if strings.HasPrefix(word, "@") || strings.Contains(word, "=@") {
				t.Skip("reads a file")
			}
		}
		p := newRun(strings.NewReader("{}"), nil, nil)
		a, err := p.Ask.NewArguments(t.Context(), []string{first, second}, stdjson.RawMessage(schema))
		if err != nil {
			return
		}
		object := a.Object()
		if err := stdjson.Unmarshal(object, new(any)); err != nil {
			t.Fatalf("%q and %q: got %s, want valid JSON: %v", first, second, object, err)
		}
		for key := range rawjson.Members(object) {
			if !strings.Contains(first+second, string(key)) && !strings.Contains(first+second, `\`) {
				t.Errorf("arguments contain %q, which the input does not", key)
			}
		}
	})
}

// A line break in a value that a server allows does not begin a line of an error.
func TestChoicesInErrorsAreOneLine(t *testing.T) {
	const schema = `{"properties": {"kind": {"type": "string", "enum": ["x\ny\u001b[2J", "z"]}}}`
	for word, want := range map[string]string{
		"kind=a":   `kind: got "a", want one of x y\x1b[2J, z`,
		"kind.b=a": `kind takes no members: want one of x y\x1b[2J, z`,
		"kind[]=a": `kind takes no elements: want one of x y\x1b[2J, z`,
	} {
		p := newRun(strings.NewReader(""), nil, nil)
		if _, err := p.Ask.NewArguments(t.Context(), []string{word}, []byte(schema)); err == nil ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: error %v, want %q on one line", word, err, want)
		}
	}
}
