package root

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/connect"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const bookSchema = `{"type": "object", "required": ["days", "address", "pay", "tags"],
	"$defs": {"card": {"type": "string", "pattern": "^[0-9]+$"}}, "properties": {
	"days": {"type": "integer", "minimum": 1, "default": 7, "title": "How long\u001b[2J"},
	"address": {"type": "object", "required": ["street", "geo"], "properties": {"street": {"type": "string"},
		"flat": {"type": "integer"}, "geo": {"type": "object", "required": ["lat"], "properties": {"lat": {"type": "number"}}}}},
	"pay": {"type": "object", "additionalProperties": {"$ref": "#/$defs/card"}},
	"tags": {"type": "array", "items": {"type": "string"}}, "note": {"type": "string"}}}`

func newBookServer(t *testing.T) string {
	t.Helper()
	s := mcp.NewServer("book", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "book", InputSchema: json.RawMessage(bookSchema)},
		func(_ context.Context, in json.RawMessage) (string, error) { return string(in), nil })
	mcp.AddTool(s, &mcp.Tool{Name: "drop"}, func(_ context.Context, in struct {
		Sure bool `json:"sure"`
	}) (bool, error) {
		return in.Sure, nil
	})
	mcp.AddPrompt(s, &mcp.Prompt{Name: "review"}, func(_ context.Context, in struct {
		Language string `json:"language"`
		Code     string `json:"code"`
	}) (string, error) {
		return in.Language + ": " + in.Code, nil
	})
	return listenHTTP(t, s)
}

func TestMissingArgumentsAreAskedForOnTheTerminal(t *testing.T) {
	url := newBookServer(t)
	all := lines("x", "0", "", "Main", "1.5", `{"card": "x"}`, `{"card":"12"}`, "a, b", "y")
	for _, revision := range connect.Revisions() {
		o := atTerminal(t, all, nil, "call", "--revision", revision, url, "book")
		const want = `{"days":7,"address":{"street":"Main","geo":{"lat":1.5}},"pay":{"card":"12"},"tags":["a","b"]}`
		if o.status != exit.OK || !strings.Contains(o.stdout, want) {
			t.Errorf("%s: exit code %d, %s, want %s; %s", revision, o.status, o.stdout, want, o.stderr)
		}
		for _, text := range []string{"The tool requires 5 more arguments",
			`days: How long\x1b[2J (at least 1, required)`,
			"an integer [7]: ", "address.street (required)", "address.geo.lat (required)", "a JSON object: ",
			`got "x", want an integer`, "Send this?"} {
			if !strings.Contains(o.stderr, text) {
				t.Errorf("%s: the form does not contain %q: %s", revision, text, o.stderr)
			}
		}
	}
	given := []string{"call", url, "book", "address.street=x", "days=3", "pay={}", "tags[]=a", "note=n"}
	o := atTerminal(t, lines("2", ""), nil, given...)
	const want = `{"address":{"street":"x","geo":{"lat":2}},"days":3,"pay":{},"tags":["a"],"note":"n"}`
	if o.status != exit.OK || !strings.Contains(o.stdout, want) || strings.Contains(o.stderr, "street") {
		t.Errorf("exit code %d, %s, want %s; %s", o.status, o.stdout, want, o.stderr)
	}
	if o := atTerminal(t, lines("n"), nil, "call", url, "drop"); o.status != exit.OK || o.stdout != "false\n" {
		t.Errorf("a single yes or no: exit code %d, %s%s", o.status, o.stdout, o.stderr)
	}
	if o := atTerminal(t, lines("go", "x = 1", "y"), nil, "get", url, "review"); !strings.Contains(o.stdout, "go: x = 1") {
		t.Errorf("get: exit code %d, %s%s", o.status, o.stdout, o.stderr)
	}
}

// Arguments are not asked for in a pipe, and not if there are other errors. A user who leaves the
// form sees what is missing.
func TestMissingArgumentsAreListed(t *testing.T) {
	url := newBookServer(t)
	list := []string{"missing argument days: an integer", "missing argument address: a JSON object",
		"missing argument pay: a JSON object", "missing argument tags: an array", "usage: patchbay call TARGET book"}
	for name, o := range map[string]outcome{
		"pipe":       patchbay(t, "1\n", "call", url, "book"),
		"--no-input": atTerminal(t, "1\n", nil, "call", "--no-input", url, "book"),
		"--json":     patchbay(t, "1\n", "call", "--json", url, "book"),
		":cancel":    atTerminal(t, lines("3", ":cancel"), nil, "call", url, "book"),
		":decline":   atTerminal(t, lines(":decline"), nil, "call", url, "book"),
		"EOF":        atTerminal(t, "", nil, "call", url, "book"),
		"get":        patchbay(t, "", "get", url, "review", "code=x"),
		"typo":       atTerminal(t, "", nil, "call", url, "book", "dayz=3"),
	} {
		want := list
		switch name {
		case "get":
			want = []string{"missing argument language: a string", "usage: patchbay get TARGET review"}
		case "typo":
			want = []string{`unknown argument "dayz": did you mean "days"?`}
		}
		for _, text := range want {
			if o.status != exit.Usage || !strings.Contains(o.stderr, text) {
				t.Errorf("%s: exit code %d, %s, want %d, %q", name, o.status, o.stderr, exit.Usage, text)
			}
		}
		if name == "typo" && strings.Contains(o.stderr, "requires") {
			t.Errorf("the form is shown although there is a misspelling: %s", o.stderr)
		}
	}
}

// JSON objects and arrays have commas of their own: an array of them is not split.
func TestMissingArrayOfObjectsIsAJSONArray(t *testing.T) {
	s := mcp.NewServer("arrays", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "plot", InputSchema: json.RawMessage(`{"type": "object",
		"required": ["points", "rows", "more"],
		"$defs": {"point": {"type": "object", "required": ["x", "y"]}}, "properties": {
		"points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
		"rows": {"type": "array", "items": {"type": "array"}},
		"more": {"type": "array", "items": {"type": "object"}, "default": [{"x": 1, "y": 2}]}}}`)},
		func(_ context.Context, in json.RawMessage) (string, error) { return string(in), nil })
	typed := lines("", `{"x":1,"y":2}`, `[{"x":1,"y":2},{"x":3,"y":4}]`, "[[1,2],[3]]", "", "y")
	o := atTerminal(t, typed, nil, "call", listenHTTP(t, s), "plot")
	const want = `{"points":[{"x":1,"y":2},{"x":3,"y":4}],"rows":[[1,2],[3]],"more":[{"x":1,"y":2}]}`
	if o.status != exit.OK || !strings.Contains(o.stdout, want) {
		t.Errorf("exit code %d, %s, want %s; %s", o.status, o.stdout, want, o.stderr)
	}
	for _, text := range []string{"  a JSON array: ", `a JSON array [[{"x":1,"y":2}]]: `, "a value is required",
		`got "{\"x\":1,\"y\":2}", want an array`} {
		if !strings.Contains(o.stderr, text) {
			t.Errorf("the form does not contain %q: %s", text, o.stderr)
		}
	}
	if strings.Contains(o.stderr, "commas") {
		t.Errorf("the form asks for values separated by commas: %s", o.stderr)
	}
}

// The form asks for the required members of each object in an array. The array is validated like an array that the
// user types.
func TestMissingArrayOfObjectsIsFilledIn(t *testing.T) {
	const point = `"properties": {"x": {"type": "integer"}, "y": {"type": "integer"}, "note": {"type": "string"}}`
	for schema, test := range map[string]struct{ typed, want, shown string }{
		`{"type": "array", "items": {"type": "object", "required": ["x", "y"], ` + point + `}}`: {
			lines("", "1", "2", "y", "3", "four", "4", "", "y"), `[{"x":1,"y":2},{"x":3,"y":4}]`, "it, object 2:"},
		`{"type": "array", "items": {"type": "object", ` + point + `}}`: {
			lines("", "1", "", "hi", "n", "y"), `[{"x":1,"note":"hi"}]`, "Another object? [n]"},
		`{"type": "array", "minItems": 2, "items": {"type": "object", "required": ["x"], ` + point + `}}`: {
			lines("", "1", "n", `[{"x":1},{"x":2}]`, "y"), `[{"x":1},{"x":2}]`, "or a JSON array: "},
	} {
		o := atTerminal(t, test.typed, nil, "call", newSchemaServer(t, schema), "go")
		if o.status != exit.OK || !strings.Contains(o.stdout, `{"it":`+test.want+`}`) || !strings.Contains(o.stderr, test.shown) {
			t.Errorf("%s: exit code %d, %s, %s, want %s, %q", schema, o.status, o.stdout, o.stderr, test.want, test.shown)
		}
	}
	o := atTerminal(t, lines("", "1", ":cancel"), nil, "call", newSchemaServer(t, `{"type": "array", "items": {"type": "object", `+point+`}}`), "go")
	if o.status != exit.Usage || !strings.Contains(o.stderr, "missing argument it") {
		t.Errorf("cancelled: %+v", o)
	}
}

// newSchemaServer returns the URL of a server whose tool go requires an argument it of a schema, and
// returns its arguments.
func newSchemaServer(t *testing.T, schema string) string {
	t.Helper()
	s := mcp.NewServer("schema", "1", nil)
	input := `{"type": "object", "required": ["it"], "properties": {"it": ` + schema + `}}`
	mcp.AddTool(s, &mcp.Tool{Name: "go", InputSchema: json.RawMessage(input)},
		func(_ context.Context, in json.RawMessage) (string, error) { return string(in), nil })
	return listenHTTP(t, s)
}

// A boolean whose values are listed is a choice, and one that may be text is text.
func TestOnlyAPlainBooleanIsYesOrNo(t *testing.T) {
	for schema, test := range map[string]struct{ typed, want, shown string }{
		`{"type": "boolean"}`:                                           {lines("y"), "true", "y or n: "},
		`{"type": ["boolean", "null"]}`:                                 {lines("n"), "false", "y or n: "},
		`{"type": "boolean", "default": true}`:                          {lines(""), "true", "y or n [y]: "},
		`{"type": "boolean", "const": true}`:                            {lines("true", "y"), "true", "Send this?"},
		`{"type": "boolean", "enum": [true, false], "default": false}`:  {lines("", "y"), "false", "number [false]: "},
		`{"type": ["boolean", "string"]}`:                               {lines("some", "y"), `"some"`, "text: "},
		`{"type": ["boolean", "string"], "default": true, "title": ""}`: {lines("", "y"), "true", "text [true]: "},
	} {
		o := atTerminal(t, test.typed, nil, "call", newSchemaServer(t, schema), "go")
		if o.status != exit.OK || !strings.Contains(o.stdout, `{"it":`+test.want+`}`) ||
			!strings.Contains(o.stderr, test.shown) {
			t.Errorf("%s: exit code %d, %s, %s, want %s, %q", schema, o.status, o.stdout, o.stderr, test.want,
				test.shown)
		}
	}
}

func TestListsKeepEqualValues(t *testing.T) {
	url := newSchemaServer(t, `{"type": "array", "items": {"type": "integer"}}`)
	o := atTerminal(t, lines("1, 2, 1", "y"), nil, "call", url, "go")
	if o.status != exit.OK || !strings.Contains(o.stdout, `{"it":[1,2,1]}`) {
		t.Errorf("exit code %d, %s, %s, want [1,2,1]", o.status, o.stdout, o.stderr)
	}
}
