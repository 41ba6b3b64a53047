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

// nestedTypes is the schema of a tool with nested parameters and with names that have dots.
const nestedTypes = `{"type": "object", "required": ["addr"],
	"$defs": {"node": {"type": "object", "properties": {"size": {"type": "integer"}, "next": {"$ref": "#/$defs/node"}}}},
	"properties": {
	"addr": {"type": "object", "required": ["street"], "additionalProperties": false, "properties": {
		"street": {"type": "string"}, "number": {"type": "integer"}, "lines": {"type": "array", "items": {"type": "string"}},
		"geo.lat": {"type": "number"}, "geo": {"type": "object"}}},
	"tags": {"type": "array", "items": {"type": "string"}}, "numbers": {"type": "array", "items": {"type": "integer"}},
	"items": {"type": "array", "items": {"type": "object", "required": ["name"],
		"properties": {"name": {"type": "string"}, "count": {"type": "integer"}}}},
	"matrix": {"type": "array", "items": {"type": "array", "items": {"type": "number"}}},
	"pair": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "boolean"}]},
	"map": {"type": "object", "additionalProperties": {"type": "integer"}},
	"a.b": {"type": "integer"}, "a": {"type": "object", "properties": {"b": {"type": "string"}}}, "c[0]": {"type": "integer"},
	"text": {"type": "string"}, "any": {}, "node": {"$ref": "#/$defs/node"},
	"maybe": {"anyOf": [{"type": "object", "properties": {"on": {"type": "boolean"}}}, {"type": "null"}]},
	"list?": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]}}}`

func TestNestedArgumentsAreTypedByTheSchema(t *testing.T) {
	for line, want := range map[string]string{
		"text=x":                                   `"text":"x"`,
		"addr.number=5":                            `!"street"`,
		"addr.geo=5":                               `!want a JSON object`,
		"tags[]=a|tags[]=5":                        `"tags":["a","5"]`,
		"tags=a|tags[]=b|tags=c":                   `"tags":["a","b","c"]`,
		"tags[]=a|tags=b":                          `"tags":["b"]`,
		`tags:=["x"]|tags[]=y`:                     `"tags":["x","y"]`,
		"tags[0]=a|tags[0]=b":                      `"tags":["b"]`,
		"numbers[]=1|numbers[]=2":                  `"numbers":[1,2]`,
		"numbers[]:=null":                          `"numbers":[null]`,
		"items[0].name=a|items[0].count=2":         `"items":[{"name":"a","count":2}]`,
		"items[].name=a|items[].name=b":            `"items":[{"name":"a"},{"name":"b"}]`,
		`items[]={"name":"x"}|items[0].count=3`:    `"items":[{"name":"x","count":3}]`,
		"matrix[0][]=1|matrix[0][]=2|matrix[][]=3": `"matrix":[[1,2],[3]]`,
		"matrix[]=[1]":                             `"matrix":[[1]]`,
		"pair[0]=true|pair[1]=true":                `"pair":["true",true]`,
		"map.x=1|map.y=2":                          `"map":{"x":1,"y":2}`,
		`map.x\.y=1|map.\[=2|map.\\.z=3`:           `!want an integer`,
		`map.x\.y=1|map.\[=2|map.\\=3`:             `"map":{"x.y":1,"[":2,"\\":3}`,
		"a.b=1":                                    `"a.b":1`,
		`a\.b=1`:                                   `"a.b":1`,
		"a.b.c=1":                                  `!a\.b takes no members`,
		"a={}|a.c=1":                               `"a":{"c":"1"}`,
		"c[0]=4":                                   `"c[0]":4`,
		"any.x=5|any.y[]=6":                        `"any":{"x":"5","y":["6"]}`,
		"any.x:=5":                                 `"any":{"x":5}`,
		"node.next.next.size=1":                    `"node":{"next":{"next":{"size":1}}}`,
		"node.next.next.size=x":                    `!node.next.next.size: got "x", want an integer`,
		"maybe.on=true":                            `"maybe":{"on":true}`,
		"list?=1|list?=2":                          `"list?":[1,2]`,
		"list?[]=x":                                `!want an integer`,
		"new.x=5":                                  `"new":{"x":"5"}`,
		"new={}|new.x=5":                           `!given before, has no members`,
		"text.x=5":                                 `!text.x: text takes no members: want a string`,
		"text[]=5":                                 `!text takes no elements: want a string`,
		"addr[0]=5":                                `!addr takes no elements`,
		"addr.stret=x":                             `!addr: unknown member "stret": did you mean "street"?`,
		"tags[1]=x":                                `!invalid index 1: want at most 0`,
		"any[99999999999]=x":                       `!invalid index 99999999999: want at most 9999`,
		"tags[-1]=x":                               `!invalid index "[-1]"`,
		"tags[x]=x":                                `!invalid index "[x]"`,
		"tags[=x":                                  `!invalid index "["`,
		"tags[]x=x":                                `!invalid index "[]x"`,
		"any.=x":                                   `!empty name before ""`,
		".x=x":                                     `!empty name before ".x"`,
		"[]=x":                                     `!empty name before "[]"`,
		"any" + strings.Repeat(".x", 32) + "=1":    `!more than 32 levels`,
		"items[0].count=1":                         `!missing argument items[0].name: a string`,
		`items:=[{"name":"a"},{}]`:                 `!missing argument items[1].name: a string`,
		"any:=[1]|any.x=1":                         `!given before, has no members`,
		"any:=1|any[]=1":                           `!given before, has no elements`,
	} {
		p := newRun(strings.NewReader(""), nil, nil)
		words := append([]string{"addr.street=s"}, strings.Split(line, "|")...)
		if strings.HasSuffix(want, `"street"`) {
			words, want = words[1:], "!missing argument addr.street: a string"
		}
		a, err := p.Ask.NewArguments(t.Context(), words, []byte(nestedTypes))
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
		if got := string(a.Object()); got != `{"addr":{"street":"s"},`+want+"}" {
			t.Errorf("%s: got %s, want %s", line, got, want)
		}
	}
}

// A member that the schema does not declare, and that is similar to one, is sent with a warning.
func TestUndeclaredMembersAreWarnedAbout(t *testing.T) {
	const schema = `{"properties": {"a": {"type": "object", "properties": {"size": {}}}}}`
	p := newRun(strings.NewReader(""), nil, nil)
	a, err := p.Ask.NewArguments(t.Context(), []string{"a.sise=1"}, []byte(schema))
	if err != nil || string(a.Object()) != `{"a":{"sise":"1"}}` || len(a.Warnings) != 1 ||
		!strings.Contains(a.Warnings[0], `did you mean "size"?`) {
		t.Errorf("got %v, %+v, want the argument and a warning", err, a)
	}
}

// The arguments of prompts are strings, so that their names are not paths.
func TestNestedArgumentsArriveAtTheServer(t *testing.T) {
	s := mcp.NewServer("nested", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo", InputSchema: json.RawMessage(nestedTypes)},
		func(_ context.Context, in json.RawMessage) (json.RawMessage, error) { return in, nil })
	mcp.AddPrompt(s, &mcp.Prompt{Name: "say"}, func(_ context.Context, in struct {
		Text string `json:"a.b"`
	}) (string, error) {
		return in.Text, nil
	})
	url := listenHTTP(t, s)
	const want = `{"addr":{"street":"Main","lines":["x","y"]},"items":[{"name":"n","count":1}]}`
	for _, revision := range connect.Revisions() {
		o := patchbay(t, "", "call", "--revision", revision, url, "echo", "addr.street=Main", "addr.lines=x",
			"addr.lines=y", "items[].name=n", "items[0].count=1")
		if o.status != exit.OK || strings.TrimSpace(o.stdout) != want {
			t.Errorf("%s: exit code %d, %s%s, want %s", revision, o.status, o.stdout, o.stderr, want)
		}
	}
	if o := patchbay(t, "", "get", url, "say", "a.b=hello"); !strings.Contains(o.stdout, "hello") {
		t.Errorf("get: exit code %d, %s%s, want hello", o.status, o.stdout, o.stderr)
	}
}

func FuzzNestedArguments(f *testing.F) {
	f.Add(nestedTypes, "addr.street=5", "items[].name=x", "tags=a")
	f.Add(`{"properties":{"a":{"anyOf":[{"$ref":"#/properties/a"},{"allOf":[{"$ref":"#/properties/a"}]}]}}}`,
		"a.b=1", "a.b.c=2", "a=")
	f.Add(`{}`, `\..\[[0]=1`, `\..\[[]=1`, `a[0][0].x:={}`)
	f.Fuzz(func(t *testing.T, schema, first, second, third string) {
		for _, word := range []string{first, second, third} {
			if strings.HasPrefix(word, "@") || strings.Contains(word, "=@") {
				t.Skip("reads a file")
			}
		}
		p := newRun(strings.NewReader("{}"), nil, nil)
		a, err := p.Ask.NewArguments(t.Context(), []string{first, second, third}, json.RawMessage(schema))
		if err != nil {
			return
		}
		if err := json.Unmarshal(a.Object(), new(any)); err != nil {
			t.Errorf("%q, %q and %q: got %s, want valid JSON: %v", first, second, third, a.Object(), err)
		}
	})
}
