package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

type searchIn struct {
	Query string   `json:"query" jsonschema:"what to look for,minLength=1"`
	Limit int      `json:"limit,omitempty" jsonschema:"how many to give,minimum=1,maximum=50,default=10"`
	Order string   `json:"order,omitempty" jsonschema:"how to sort,enum=new|old"`
	Tags  []string `json:"tags,omitempty"`
}

type searchOut struct {
	Query string   `json:"query"`
	Limit int      `json:"limit"`
	Hits  []string `json:"hits"`
}

func search(_ context.Context, in searchIn) (searchOut, error) {
	return searchOut{Query: in.Query, Limit: in.Limit}, nil
}

// Requirement: TOOL-13, TOOL-15
func TestTypedToolsReturnStructuredContentAndText(t *testing.T) {
	s := newServer(t, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "search", Description: "Search."}, search)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		res := callTool(t, c, "search", object{"query": "go"})
		const want = `{"query":"go","limit":10,"hits":[]}`
		if res.text() != want {
			t.Errorf("content: got %+v, want %s", res.Content, want)
		}
		structured := ""
		if c.Since("2025-06-18") {
			structured = want
		}
		if string(res.StructuredContent) != structured {
			t.Errorf("structured content: got %s, want %q", res.StructuredContent, structured)
		}
	})
}

// Result types other than structs.
//
// Requirement: TOOL-07, TOOL-16, TOOL-17, SCH-16
func TestResultsOfTools(t *testing.T) {
	s := newServer(t, nil)
	addValueTool(s, "text", "hello")
	addValueTool(s, "piece", mcp.Text("hello"))
	addValueTool[mcp.ContentBlock](s, "any piece", mcp.Text("hello"))
	addValueTool(s, "pieces", []mcp.ContentBlock{mcp.Text("hello"), mcp.Text("you")})
	addValueTool(s, "nothing", []mcp.ContentBlock(nil))
	addValueTool(s, "result", &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.Text("hello")}, IsError: true, Meta: mcp.Meta{"com.example/x": 1}})
	addValueTool(s, "number", 7)
	addValueTool(s, "list", []string(nil))
	addValueTool[any](s, "anything", map[string]int{"n": 1})
	addValueTool(s, "null", json.RawMessage("null"))
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for _, tool := range []struct{ name, text, structured string }{
			{"text", "hello", ""},
			{"piece", "hello", ""},
			{"any_piece", "hello", ""},
			{"pieces", "hello", ""},
			{"nothing", "", ""},
			{"result", "hello", ""},
			{"number", "7", "7"},
			{"list", "[]", "[]"},
			{"anything", `{"n":1}`, `{"n":1}`},
			{"null", "null", "null"},
		} {
			raw := c.Call("tools/call", object{"name": tool.name})
			structured := tool.structured
			if !c.Since("2025-06-18") || !c.Modern() && !strings.HasPrefix(structured, "{") {
				structured = "" // an object or absent before 2026-07-28
			}
			res := decode[toolResult](t, raw)
			if res.text() != tool.text || string(res.StructuredContent) != structured {
				t.Errorf("%s: got %s, want %q and %q", tool.name, raw, tool.text, structured)
			}
			if res.IsError != (tool.name == "result") || strings.Contains(string(raw), "com.example/x") != res.IsError {
				t.Errorf("%s: got %s", tool.name, raw)
			}
		}
	})
}

// addValueTool adds a tool that returns v.
func addValueTool[Out any](s *mcp.Server, name string, v Out) *mcp.Registration[mcp.Tool] {
	tool := &mcp.Tool{Name: strings.ReplaceAll(name, " ", "_")}
	return mcp.AddTool(s, tool, func(context.Context, struct{}) (Out, error) { return v, nil })
}

// Requirement: SCH-08, SCH-09, SCH-10, TOOL-24
func TestSchemasFitTheRevision(t *testing.T) {
	s := newServer(t, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "object"}, search)
	addValueTool(s, "list", []string{"a"})
	addValueTool(s, "text", "a")
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		list := decode[struct {
			Tools []struct {
				Name                      string
				InputSchema, OutputSchema struct {
					Type       string
					Properties map[string]json.RawMessage
				}
			}
		}](t, c.Call("tools/list", nil))
		for _, tool := range list.Tools {
			output := ""
			switch {
			case tool.Name == "object" && c.Since("2025-06-18"):
				output = "object"
			case tool.Name == "list" && c.Modern():
				output = "array"
			}
			if tool.InputSchema.Type != "object" || tool.OutputSchema.Type != output {
				t.Errorf("%s: got %+v, want an output schema of type %q", tool.Name, tool, output)
			}
			if tool.Name == "object" && len(tool.InputSchema.Properties) != 4 {
				t.Errorf("properties: got %v", tool.InputSchema.Properties)
			}
		}
	})
}

// Requirement: TOOL-13
func TestResultsThatViolateTheOutputSchemaAreInternalErrors(t *testing.T) {
	s := newServer(t, nil)
	outputSchema := json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer"}},"required":["n"]}`)
	addResult := func(name string, v any) {
		mcp.AddTool(s, &mcp.Tool{Name: name, OutputSchema: outputSchema}, func(context.Context, struct{}) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.ContentBlock{}, StructuredContent: v}, nil
		})
	}
	addResult("good", object{"n": 1})
	addResult("wrong", object{"n": "secret"})
	addResult("absent", nil)
	addResult("not_json", make(chan int))
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		callTool(t, c, "good", nil)
		for _, name := range []string{"wrong", "absent", "not_json"} {
			_, err := c.Try("tools/call", object{"name": name})
			wantCode(t, name, err, mcp.CodeInternalError)
			if err != nil && err.Message != "internal error" {
				t.Errorf("%s: got %q, want \"internal error\"", name, err.Message)
			}
		}
	})
}

// Requirement: TOOL-06
func TestAbsentArgumentsAreAnEmptyObject(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "none", func(context.Context) (string, error) { return "ran", nil })
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for _, args := range []map[string]any{nil, {}} {
			if res := callTool(t, c, "none", args); res.text() != "ran" {
				t.Errorf("%v: got %+v", args, res)
			}
		}
		if _, err := c.Try("tools/call", object{"name": "none", "arguments": nil}); err != nil {
			t.Errorf("null: got %v, want the call to succeed as without arguments", err)
		}
		for _, wrong := range []any{"x", []any{}} {
			_, err := c.Try("tools/call", object{"name": "none", "arguments": wrong})
			wantCode(t, fmt.Sprint(wrong), err, mcp.CodeInvalidParams)
		}
	})
}

// Arguments that violate the schema are a tool error since 2025-11-25, and a protocol error before.
//
// Requirement: TOOL-10, TOOL-11
func TestInvalidArguments(t *testing.T) {
	s := newServer(t, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "search"}, search)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for _, bad := range []struct {
			args object
			says string
		}{
			{object{}, "query"},
			{object{"query": ""}, "query"},
			{object{"query": "go", "limit": 51}, "50"},
			{object{"query": "go", "limit": "5"}, "integer"},
			{object{"query": "go", "limit": json.RawMessage("1e30")}, "limit"},
			{object{"query": "go", "order": "newest"}, "new"},
			{object{"query": "go", "limt": 3}, "limit"},
			{object{"query": "go", "tags": []any{1}}, "tags"},
		} {
			res, err := c.Try("tools/call", object{"name": "search", "arguments": bad.args})
			text := ""
			if c.Since("2025-11-25") {
				if err != nil {
					t.Fatalf("%v: %v", bad.args, err)
				}
				r := decode[toolResult](t, res)
				if !r.IsError {
					t.Errorf("%v: got %s, want isError", bad.args, res)
				}
				text = r.text()
			} else {
				wantCode(t, fmt.Sprint(bad.args), err, mcp.CodeInvalidParams)
				if err != nil {
					text = err.Message
				}
			}
			if !strings.Contains(text, bad.says) {
				t.Errorf("%v: got %q, want %q in it", bad.args, text, bad.says)
			}
		}
	})
}

// Requirement: TOOL-15
func TestNilPointersAreOmitted(t *testing.T) {
	type part struct {
		Note *string `json:"note,omitempty"`
		Size *int    `json:"size"`
	}
	s := mcp.NewServer("test", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, in part) (part, error) { return in, nil })
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		res := callTool(t, c, "echo", map[string]any{"note": nil, "size": nil})
		if res.IsError || res.Content[0].Text != "{}" {
			t.Errorf("got %+v, want an empty object", res)
		}
	})
}

// Requirement: TOOL-09
func TestUnknownToolIsInvalidParams(t *testing.T) {
	s := newServer(t, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "search"}, search)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for _, name := range []string{"serch", "Search", "", "ſearch", strings.Repeat("x", 8<<10)} {
			_, err := c.Try("tools/call", object{"name": name})
			wantCode(t, fmt.Sprintf("%.10s", name), err, mcp.CodeInvalidParams)
			if err != nil && len(err.Message) > 256 {
				t.Errorf("got an error message of %d bytes, want at most 256", len(err.Message))
			}
		}
		_, err := c.Try("tools/call", object{})
		wantCode(t, "no name", err, mcp.CodeInvalidParams)
	})
}

// Requirement: TOOL-08
func TestErrorsOfATool(t *testing.T) {
	s := newServer(t, nil)
	addTool(s, "plain", func(context.Context) (string, error) { return "", errors.New("the disk is full") })
	addTool(s, "protocol", func(context.Context) (string, error) {
		return "", fmt.Errorf("secret: %w", &mcp.Error{Code: 4711, Message: "not today", Data: json.RawMessage(`[1]`)})
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		if res := callTool(t, c, "plain", nil); !res.IsError || res.text() != "the disk is full" {
			t.Errorf("plain: got %+v", res)
		}
		_, err := c.Try("tools/call", object{"name": "protocol"})
		if err == nil || err.Code != 4711 || err.Message != "not today" || string(err.Data) != "[1]" {
			t.Errorf("protocol: got %+v", err)
		}
	})
}

func toolNames(t *testing.T, c *mcptest.Client) string {
	t.Helper()
	list := decode[struct{ Tools []struct{ Name string } }](t, c.Call("tools/list", nil))
	var names []string
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return strings.Join(names, " ")
}

// Requirement: TOOL-03
func TestToolsAreListedByName(t *testing.T) {
	s := newServer(t, nil)
	for _, name := range []string{"b", "a.b", "C", "a-b", "a"} {
		addValueTool(s, name, "x")
	}
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for range 2 {
			if got := toolNames(t, c); got != "C a a-b a.b b" {
				t.Errorf("got %s", got)
			}
		}
	})
}

// Requirement: TOOL-25, STL-08
func TestHiddenToolsAreNeitherListedNorCalled(t *testing.T) {
	s := newServer(t, &mcp.ServerOptions{
		Cache: mcp.Cache{TTL: 1000 * time.Millisecond, Public: true},
		Visible: func(ctx context.Context, f mcp.Feature) bool {
			p := mcp.RequestFrom(ctx).Principal
			return f.Tool == nil || !strings.HasPrefix(f.Tool.Name, "secret") || p != nil && p.Subject == "admin"
		},
	})
	mcp.AddTool(s, &mcp.Tool{Name: "open"}, search)
	mcp.AddTool(s, &mcp.Tool{Name: "secret"}, search)
	mcp.AddTool(s, &mcp.Tool{Name: "secret_mirror", InputSchema: json.RawMessage(
		`{"type":"object","properties":{"region":{"type":"string","x-mcp-header":"Region"}}}`)},
		func(context.Context, json.RawMessage) (string, error) { return "", nil })
	mcptest.Run(t, s, func(t *testing.T, guest *mcptest.Client) {
		admin := guest.Another(&mcptest.Options{Principal: &mcp.Principal{Subject: "admin"}})
		if got := toolNames(t, guest); got != "open" {
			t.Errorf("guest: got tools %s, want open", got)
		}
		if got := toolNames(t, admin); got != "open secret secret_mirror" {
			t.Errorf("admin: got tools %s, want all", got)
		}
		_, missing := guest.Try("tools/call", object{"name": "Secret"})
		wantCode(t, "missing", missing, mcp.CodeInvalidParams)
		for _, name := range []string{"secret", "secret_mirror"} {
			// Neither the invalid arguments nor the missing header may change the error.
			_, hidden := guest.Try("tools/call", object{"name": name, "arguments": object{"region": "x"}})
			if hidden == nil || strings.ReplaceAll(hidden.Message, name, "Secret") != missing.Message || hidden.Code != missing.Code {
				t.Errorf("hidden tool: got %v, want the error of a missing one: %v", hidden, missing)
			}
		}
		admin.Call("tools/call", object{"name": "secret", "arguments": object{"query": "x"}})
		admin.Call("tools/call", object{"name": "secret_mirror"})
		if guest.Modern() && !strings.Contains(string(guest.Call("tools/list", nil)), `"cacheScope":"private"`) {
			t.Error("got a list without cacheScope private")
		}
	})
}

// Requirement: CAN-04
func TestCancelEndsTheContextWithItsCause(t *testing.T) {
	s := newServer(t, nil)
	var cause error
	addTool(s, "wait", func(ctx context.Context) (string, error) {
		<-ctx.Done()
		cause = context.Cause(ctx)
		mcp.Progress(ctx, 1, 1, "too late")
		mcp.Logger(ctx).Error("too late")
		return "late", nil
	})
	mcptest.RunOn(t, s, mcptest.Combinations(), &mcptest.Options{LogLevel: "debug"}, func(t *testing.T, c *mcptest.Client) {
		cause = nil
		p := c.Send("tools/call", object{"name": "wait", "_meta": object{"progressToken": 1}})
		synctest.Wait()
		p.Cancel("no longer needed")
		synctest.Wait()
		want := mcp.ErrCancelled
		if c.Modern() && c.OverHTTP() {
			want = mcp.ErrDisconnected // CAN-11
		} else if !strings.Contains(fmt.Sprint(cause), "no longer needed") {
			t.Errorf("got cause %q, want the reason in it (CAN-08)", cause)
		}
		if !errors.Is(cause, want) {
			t.Errorf("cause: got %v, want %v", cause, want)
		}
		if p.Answered() || len(c.Notifications()) > 0 {
			t.Errorf("cancelled request: got a response or notifications %v, want nothing", c.Notifications())
		}
		p.Cancel("again") // CAN-05, CAN-07
		c.Call("tools/list", nil)
	})
}

// Requirement: TOOL-02
func TestEmptyListIsReturned(t *testing.T) {
	s := newServer(t, nil)
	addValueTool(s, "x", "x").Remove()
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		if got := string(c.Call("tools/list", nil)); !strings.Contains(got, `"tools":[]`) {
			t.Errorf("got %s, want an empty list", got)
		}
	})
}

// Requirement: TOOL-22
func TestInvalidToolRegistrationsPanic(t *testing.T) {
	s := newServer(t, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "taken"}, search)
	bySchema := func(schema string) func() {
		return func() { mcp.AddTool(s, &mcp.Tool{Name: "x", InputSchema: json.RawMessage(schema)}, search) }
	}
	for what, register := range map[string]func(){
		"no tool":     func() { mcp.AddTool(s, nil, search) },
		"no function": func() { mcp.AddTool[searchIn, string](s, &mcp.Tool{Name: "x"}, nil) },
		"no name":     func() { mcp.AddTool(s, &mcp.Tool{}, search) },
		"bad name":    func() { mcp.AddTool(s, &mcp.Tool{Name: "a b"}, search) },
		"long name":   func() { mcp.AddTool(s, &mcp.Tool{Name: strings.Repeat("x", 129)}, search) },
		"taken":       func() { mcp.AddTool(s, &mcp.Tool{Name: "taken"}, search) },
		"not an object": func() {
			mcp.AddTool(s, &mcp.Tool{Name: "x"}, func(context.Context, int) (string, error) { return "", nil })
		},
		"no JSON in": func() {
			mcp.AddTool(s, &mcp.Tool{Name: "x"}, func(context.Context, struct{ C chan int }) (string, error) { return "", nil })
		},
		"no JSON out":   func() { addValueTool(s, "x", make(chan int)) },
		"list schema":   bySchema(`{"type":"array"}`),
		"no schema":     bySchema(`{"type":`),
		"remote schema": bySchema(`{"type":"object","$ref":"https://example.com/s"}`),
		"header twice": bySchema(`{"type":"object","properties":{
			"a":{"type":"string","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"a"}}}`),
	} {
		mustPanic(t, what, "mcp: ", register)
	}
}

func ExampleAddTool() {
	type sum struct {
		A int `json:"a" jsonschema:"first addend"`
		B int `json:"b" jsonschema:"second addend"`
	}
	s := mcp.NewServer("calc", "1.0.0", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "add", Description: "Add two integers."},
		func(_ context.Context, in sum) (int, error) { return in.A + in.B, nil })
	// Output:
}
