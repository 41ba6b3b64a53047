package root

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// deepSchema is the schema of a tool with constraints and nested parameters.
const deepSchema = `{"type": "object", "required": ["address"], "properties": {
	"address": {"type": "object", "description": "where", "required": ["street"], "properties": {
		"street": {"type": "string", "minLength": 1, "maxLength": 80, "pattern": "^[A-Z].*$"},
		"geo": {"type": "object", "properties": {"lat": {"type": "number", "minimum": -90, "maximum": 90}}}}},
	"days": {"type": "integer", "exclusiveMinimum": 0, "multipleOf": 7, "default": 7},
	"when": {"type": "string", "format": "date"},
	"tags": {"type": "array", "items": {"type": "string", "maxLength": 9}, "minItems": 1, "uniqueItems": true},
	"stops": {"type": "array", "items": {"type": "object", "required": ["at"], "properties": {"at": {"type": "string"}}}},
	"labels": {"type": "object", "additionalProperties": {"type": "integer"}},
	"grid": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
	"kind": {"enum": ["a", "b", 3]}, "links": {"type": "array", "items": {"type": "string", "format": "uri"}},
	"shape": {"oneOf": [
		{"type": "object", "title": "Circle\u001b", "required": ["r"], "properties": {"r": {"type": "number"}}},
		{"type": "object", "properties": {"side": {"type": "number"}}}]},
	"maybe": {"anyOf": [{"type": "object", "properties": {"x": {"type": "integer"}}}, {"type": "null"}]},
	"both": {"type": "object", "allOf": [{"properties": {"p": {"type": "string"}}}]},
	"people": {"type": "object", "additionalProperties": {"type": "array", "items":
		{"type": "object", "properties": {"year": {"type": "integer"}}}}},
	"odd": {"type": "string", "pattern": "\u001b\\[2J \u202e"},
	"self": {"$ref": "#"}}}`

const outputSchema = `{"type": "object", "description": "what was booked", "required": ["stops"], "properties": {
	"stops": {"type": "array", "items": {"type": "object", "properties": {"at": {"type": "string", "format": "time"}}}},
	"price": {"type": "number", "minimum": 0}}}`

func newDeepServer(t *testing.T) string {
	t.Helper()
	s := mcp.NewServer("deep", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "book", InputSchema: json.RawMessage(deepSchema),
		OutputSchema: json.RawMessage(outputSchema)},
		func(context.Context, json.RawMessage) (json.RawMessage, error) {
			return json.RawMessage(`{"stops": []}`), nil
		})
	return listenHTTP(t, s)
}

func TestToolIsShownWithItsInputTree(t *testing.T) {
	o := patchbay(t, "", "tools", newDeepServer(t), "book")
	rest := o.stdout
	for _, want := range []string{
		"\n  address: a JSON object, required; where\n",
		"\n    street: a string, at least 1 character, at most 80 characters, matching ^[A-Z].*$, required\n",
		"\n    geo: a JSON object\n",
		"\n      lat: a number, at least -90, at most 90\n",
		"\n  days: an integer, more than 0, a multiple of 7, default 7\n",
		"\n  when: a string, format date\n",
		"\n  tags: an array of strings, at least 1 value, all different, each at most 9 characters\n",
		"\n  stops: an array of JSON objects\n",
		"\n    at: a string, required\n",
		"\n  labels: a JSON object of integers\n",
		"\n  grid: an array of arrays of numbers\n",
		"\n  kind: one of a, b, 3\n",
		"\n  links: an array of strings, each format uri\n",
		"\n  shape: a JSON object\n", "\n    form 1 of 2, Circle\\x1b:\n", "\n      r: a number, required\n",
		"\n    form 2 of 2:\n", "\n      side: a number\n",
		"\n  maybe: null or a JSON object\n", "\n    x: an integer\n",
		"\n  both: a JSON object\n", "\n    p: a string\n",
		"\n  people: a JSON object of arrays of JSON objects\n", "\n    year: an integer\n",
		`  odd: a string, matching \x1b\[2J \u{202e}` + "\n",
		"\n  self: a JSON object\n",
		"\n  output: a JSON object; what was booked\n",
		"\n    stops: an array of JSON objects, required\n", "\n      at: a string, format time\n",
		"\n    price: a number, at least 0\n",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("%s\ndoes not contain %q in this order", o.stdout, want)
		}
		rest = "\n" + after
	}
	if len(o.stdout) > 20_000 {
		t.Errorf("a schema that refers to itself is shown in %d bytes", len(o.stdout))
	}
}

func TestCallWithoutToolListsTools(t *testing.T) {
	url := newDeepServer(t)
	list := patchbay(t, "", "tools", url)
	for _, flag := range []string{"--json=false", "--json"} {
		want := patchbay(t, "", "tools", url, flag)
		o := patchbay(t, "", "call", url, flag)
		if o.status != exit.OK || o.stdout != want.stdout || !strings.Contains(list.stdout, "book") {
			t.Errorf("%s: exit code %d, %q, want %q", flag, o.status, o.stdout, want.stdout)
		}
	}
	if o := patchbay(t, "", "call", "--task", url); o.status != exit.Usage {
		t.Errorf("--task without a tool: exit code %d, %s", o.status, o.stderr)
	}
}

// A form with a single yes-or-no field is one question, without another whether to send the answer.
func TestSingleYesOrNoIsOneQuestion(t *testing.T) {
	url := listenHTTP(t, newServer("demo"))
	for typed, want := range map[string]int{"y\n": exit.OK, ":decline\n": exit.Tool, "what\ny\n": exit.OK} {
		o := atTerminal(t, typed, nil, "call", url, "deploy", "environment=staging")
		if o.status != want || strings.Contains(o.stderr, "Send this?") {
			t.Errorf("%q: exit code %d, want %d: %s", typed, o.status, want, o.stderr)
		}
	}
}
