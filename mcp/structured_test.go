package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

type weather struct {
	City    string `json:"city"`
	Degrees int    `json:"degrees"`
	Note    *string
}

func structuredServer(t *testing.T) *mcp.Server {
	s := newServer(t, nil)
	value := weather{City: "Oslo", Degrees: 7}
	addValueTool(s, "own", mcp.Structured[weather]{
		Value: value, Content: []mcp.ContentBlock{mcp.Text("Cold in Oslo.")}, Meta: mcp.Meta{"com.example/x": "y"},
	})
	addValueTool(s, "default", mcp.Structured[weather]{Value: value})
	addValueTool(s, "image", mcp.Structured[weather]{
		Value: value, Content: []mcp.ContentBlock{&mcp.ImageContent{Data: []byte("x"), MIMEType: "image/png"}},
	})
	addValueTool(s, "number", mcp.Structured[int]{Value: 7, Content: []mcp.ContentBlock{mcp.Text("seven")}})
	addValueTool(s, "anything", mcp.Structured[any]{Value: object{"n": 1}})
	return s
}

// Requirement: TOOL-13, TOOL-15
func TestStructuredHasAValueAndContent(t *testing.T) {
	const value = `{"city":"Oslo","degrees":7}`
	mcptest.Run(t, structuredServer(t), func(t *testing.T, c *mcptest.Client) {
		for _, tool := range []struct{ name, text, structured, schema string }{
			{"own", "Cold in Oslo.", value, `"degrees"`},
			{"default", value, value, `"degrees"`},
			{"image", "", value, `"degrees"`},
			{"number", "seven", "7", `"integer"`},
			{"anything", `{"n":1}`, `{"n":1}`, ""},
		} {
			raw := c.Call("tools/call", object{"name": tool.name})
			if !c.Since("2025-06-18") || !c.Modern() && tool.name == "number" {
				if tool.name == "image" && !strings.Contains(string(raw), `"text":"{\"city`) {
					t.Errorf("got %s, want the value as text, because there is no text", raw)
				}
				tool.structured, tool.schema = "", "" // an object or absent before 2026-07-28
			}
			res := decode[toolResult](t, raw)
			if res.text() != tool.text || string(res.StructuredContent) != tool.structured {
				t.Errorf("%s: got %s, want %q and %q", tool.name, raw, tool.text, tool.structured)
			}
			if strings.Contains(string(raw), `"com.example/x":"y"`) != (tool.name == "own") {
				t.Errorf("%s: got _meta in %s", tool.name, raw)
			}
			for _, listed := range decode[mcp.ListToolsResult](t, c.Call("tools/list", nil)).Tools {
				schema := string(listed.OutputSchema)
				if listed.Name == tool.name && ((schema == "") != (tool.schema == "") || !strings.Contains(schema, tool.schema)) {
					t.Errorf("%s: got output schema %s, want %s in it", tool.name, schema, tool.schema)
				}
			}
		}
	})
}

// Requirement: TOOL-13
func TestCallToolReturnsStructured(t *testing.T) {
	s := structuredServer(t)
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			c := mcptest.Dial(t, s, on, nil)
			got, err := mcp.CallTool[mcp.Structured[weather]](t.Context(), c, "own", nil)
			if len(got.Content) != 1 || got.Content[0].(*mcp.TextContent).Text != "Cold in Oslo." || got.Meta["com.example/x"] != "y" {
				t.Errorf("content: got %+v, %v", got, err)
			}
			if c.Revision() < "2025-06-18" {
				if err == nil || !strings.Contains(err.Error(), `tool "own" into mcp_test.weather`) {
					t.Errorf("without structured content: got error %v", err)
				}
				return
			}
			if err != nil || got.Value.Degrees != 7 {
				t.Errorf("value: got %+v, %v", got, err)
			}
		})
	}
}

// A derived schema may be changed and set. Null members that it does not allow are dropped, as with
// a schema that was not set.
//
// Requirement: TOOL-13
func TestInferredSchemasEqualTheDerivedSchemas(t *testing.T) {
	s := newServer(t, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "derived"}, func(context.Context, searchIn) (weather, error) { return weather{}, nil })
	tool := &mcp.Tool{Name: "set", InputSchema: jsonschema.For[searchIn]().JSON(), OutputSchema: jsonschema.For[*weather]().JSON()}
	mcp.AddTool(s, tool, func(context.Context, *searchIn) (weather, error) { return weather{City: "Oslo"}, nil })
	jsonschema.For[searchIn]().JSON()[0] = '?' // a copy
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		tools := decode[mcp.ListToolsResult](t, c.Call("tools/list", nil)).Tools
		if string(tools[0].InputSchema) != string(tools[1].InputSchema) || string(tools[0].OutputSchema) != string(tools[1].OutputSchema) {
			t.Errorf("got %s %s, want %s %s", tools[1].InputSchema, tools[1].OutputSchema, tools[0].InputSchema, tools[0].OutputSchema)
		}
		if res := callTool(t, c, "set", object{"query": "x"}); res.IsError || res.text() != `{"city":"Oslo","degrees":0}` {
			t.Errorf("got %+v", res)
		}
	})
	mustPanic(t, "channel", "jsonschema: For: type chan int", func() { jsonschema.For[chan int]() })
}

func TestInputsThatAreAnyOrPointers(t *testing.T) {
	s := newServer(t, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "any"}, func(_ context.Context, in any) (any, error) { return in, nil })
	mcp.AddTool(s, &mcp.Tool{Name: "pointer"}, func(_ context.Context, in *searchIn) (int, error) { return in.Limit, nil })
	mcp.AddPrompt(s, &mcp.Prompt{Name: "p"}, func(_ context.Context, in *searchIn2) (string, error) { return in.Query, nil })
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{query}", Name: "t"},
		func(_ context.Context, in *searchIn2) (string, error) { return in.Query, nil })
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		if got := callTool(t, c, "any", object{"a": []int{1}}).text(); got != `{"a":[1]}` {
			t.Errorf("any: got %s", got)
		}
		if got := callTool(t, c, "any", nil).text(); got != "{}" {
			t.Errorf("any, without arguments: got %s", got)
		}
		if got := callTool(t, c, "pointer", object{"query": "x"}).text(); got != "10" {
			t.Errorf("pointer: got %s", got)
		}
		for method, params := range map[string]object{
			"prompts/get":    {"name": "p", "arguments": object{"query": "found"}},
			"resources/read": {"uri": "x://found"},
		} {
			if got := string(c.Call(method, params)); !strings.Contains(got, `"found"`) {
				t.Errorf("%s: got %s", method, got)
			}
		}
	})
}

type searchIn2 struct {
	Query string `json:"query"`
}

// Requirement: RES-07
func TestOtherOutputsOfResourcesAreJSON(t *testing.T) {
	s := newServer(t, nil)
	add := func(uri string, mimeType string, v *weather) {
		mcp.AddResource(s, &mcp.Resource{URI: uri, Name: "n", MIMEType: mimeType},
			func(context.Context, string) (*weather, error) { return v, nil })
	}
	add("x://pointer", "", &weather{City: "Oslo"})
	add("x://typed", "application/ld+json", &weather{City: "Oslo"})
	add("x://nothing", "", nil)
	mcp.AddResource(s, &mcp.Resource{URI: "x://list", Name: "n"}, func(context.Context, string) ([]weather, error) { return nil, nil })
	mcp.AddResource(s, &mcp.Resource{URI: "x://map", Name: "n"},
		func(context.Context, string) (map[string]int, error) { return map[string]int{"a": 1}, nil })
	mcp.AddResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "y://{city}", Name: "n"},
		func(_ context.Context, vars map[string]string) (weather, error) {
			return weather{City: vars["city"]}, nil
		})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for _, r := range []struct{ uri, mimeType, text string }{
			{"x://pointer", "application/json", `{"city":"Oslo","degrees":0,"Note":null}`},
			{"x://typed", "application/ld+json", `{"city":"Oslo","degrees":0,"Note":null}`},
			{"x://list", "application/json", `[]`},
			{"x://map", "application/json", `{"a":1}`},
			{"y://Rome", "application/json", `{"city":"Rome","degrees":0,"Note":null}`},
		} {
			got := decode[mcp.ReadResourceResult](t, c.Call("resources/read", object{"uri": r.uri})).Contents[0]
			if got.URI != r.uri || got.MIMEType != r.mimeType || got.Text != r.text {
				t.Errorf("got %+v, want %+v", got, r)
			}
		}
		if _, err := c.Try("resources/read", object{"uri": "x://nothing"}); err == nil {
			t.Error("nil pointer: got no error")
		}
	})
	for what, register := range map[string]func(mcp.Resource){
		"pointer forgotten": func(r mcp.Resource) {
			mcp.AddResource(s, &r, func(context.Context, string) (r mcp.ResourceContents, err error) { return })
		},
		"list of values": func(r mcp.Resource) {
			mcp.AddResource(s, &r, func(context.Context, string) (r []mcp.ResourceContents, err error) { return })
		},
		"content": func(r mcp.Resource) {
			mcp.AddResource(s, &r, func(context.Context, string) (r *mcp.TextContent, err error) { return })
		},
		"bytes with a name": func(r mcp.Resource) {
			mcp.AddResource(s, &r, func(context.Context, string) (r json.RawMessage, err error) { return })
		},
		"number": func(r mcp.Resource) {
			mcp.AddResource(s, &r, func(context.Context, string) (r int, err error) { return })
		},
	} {
		mustPanic(t, what, "want string, []byte", func() { register(mcp.Resource{URI: "z://a", Name: "n"}) })
	}
}

func TestCallToolFailsIfNoMemberIsAField(t *testing.T) {
	s := newServer(t, nil)
	addValueTool(s, "wrapped", object{"result": object{"city": "Oslo"}, "ok": true})
	addValueTool(s, "zero", object{"city": "", "more": nil})
	addValueTool(s, "empty", object{})
	c, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const says = `decode the result of tool "wrapped" into mcp_test.weather: no member of the object ["ok" "result"] is a field`
	if _, err := mcp.CallTool[weather](t.Context(), c, "wrapped", nil); err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("got %v, want %s", err, says)
	}
	if _, err := mcp.CallTool[*weather](t.Context(), c, "wrapped", nil); err == nil {
		t.Error("pointer: got no error")
	}
	for _, name := range []string{"zero", "empty"} {
		if _, err := mcp.CallTool[weather](t.Context(), c, name, nil); err != nil {
			t.Errorf("%s: got %v", name, err)
		}
	}
	_, err = mcp.CallTool[struct{}](t.Context(), c, "wrapped", nil)
	_, err2 := mcp.CallTool[map[string]any](t.Context(), c, "wrapped", nil)
	if err != nil || err2 != nil {
		t.Errorf("types without fields: got %v, %v", err, err2)
	}
}

func TestCollect(t *testing.T) {
	c, err := mcp.Connect(t.Context(), mcp.InMemory(structuredServer(t)), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if tools, err := mcp.Collect(c.Tools(t.Context())); err != nil || len(tools) != 5 {
		t.Errorf("got %d tools, %v", len(tools), err)
	}
	failure := errors.New("failure")
	got, err := mcp.Collect(func(yield func(int, error) bool) {
		_ = yield(1, nil) && yield(0, failure) && yield(2, nil)
	})
	if err != failure || len(got) != 1 {
		t.Errorf("got %v, %v", got, err)
	}
}
