package cli

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

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
	"odd": {"type": "string", "pattern": "\u001b\\[2J \u202e"},
	"self": {"$ref": "#"}}}`

func newDeepServer(t *testing.T) string {
	t.Helper()
	s := mcp.NewServer("deep", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "book", InputSchema: json.RawMessage(deepSchema)},
		func(context.Context, json.RawMessage) (string, error) { return "booked", nil })
	return listen(t, s)
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
		`  odd: a string, matching \x1b\[2J \u{202e}` + "\n",
		"\n  self: a JSON object\n",
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
		if o.status != exitOK || o.stdout != want.stdout || !strings.Contains(list.stdout, "book") {
			t.Errorf("%s: exit code %d, %q, want %q", flag, o.status, o.stdout, want.stdout)
		}
	}
	if o := patchbay(t, "", "call", "--task", url); o.status != exitUsage {
		t.Errorf("--task without a tool: exit code %d, %s", o.status, o.stderr)
	}
}

// A form with a single yes-or-no field is one question, without another whether to send the answer.
func TestSingleYesOrNoIsOneQuestion(t *testing.T) {
	url := listen(t, newServer("demo"))
	for typed, want := range map[string]int{"y\n": exitOK, ":decline\n": exitTool, "what\ny\n": exitOK} {
		o := atTerminal(t, typed, nil, "call", url, "deploy", "environment=staging")
		if o.status != want || strings.Contains(o.stderr, "Send this?") {
			t.Errorf("%q: exit code %d, want %d: %s", typed, o.status, want, o.stderr)
		}
	}
}
