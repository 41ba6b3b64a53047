package mcp_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

func raw(text string) func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
	return func(context.Context, json.RawMessage) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.Text(text)}}, nil
	}
}

var anyObject = json.RawMessage(`{"type":"object"}`)

// What AddTool and the others panic for is an error of SetTool and the others, and changes nothing.
func TestSetFunctionsReturnErrors(t *testing.T) {
	s := newServer(t, nil)
	if _, err := mcp.SetTool(s, &mcp.Tool{Name: "kept", InputSchema: anyObject}, raw("kept")); err != nil {
		t.Fatal(err)
	}
	text := func(context.Context, string) (string, error) { return "", nil }
	free := func(context.Context, map[string]string) (string, error) { return "", nil }
	tool := func(t mcp.Tool) error { _, err := mcp.SetTool(s, &t, raw("")); return err }
	for what, c := range map[string]struct {
		err  error
		says string
	}{
		"name":          {tool(mcp.Tool{Name: "a b", InputSchema: anyObject}), `mcp: tool "a b": the name holds ' '`},
		"no schema":     {tool(mcp.Tool{Name: "kept"}), `mcp: tool "kept": input: json.RawMessage: want a struct, a map or any, or a Tool.InputSchema`},
		"schema":        {tool(mcp.Tool{Name: "kept", InputSchema: json.RawMessage(`{"type":7}`)}), "input schema"},
		"not an object": {tool(mcp.Tool{Name: "kept", InputSchema: json.RawMessage(`{"type":"array"}`)}), `want "object"`},
		"output schema": {tool(mcp.Tool{Name: "kept", InputSchema: anyObject, OutputSchema: json.RawMessage(`7`)}), "output schema"},
		"long name":     {tool(mcp.Tool{Name: strings.Repeat("x", 1e6)}), "mcp: tool"},
		"nil tool":      {setError(mcp.SetTool(s, nil, raw(""))), "mcp: the tool or its function is nil"},
		"nil function":  {setError(mcp.SetTool[any, any](s, &mcp.Tool{Name: "kept"}, nil)), "is nil"},
		"prompt":        {setError(mcp.SetPrompt(s, &mcp.Prompt{}, free)), `mcp: prompt "": the name is empty`},
		"prompt type":   {setError(mcp.SetPrompt(s, &mcp.Prompt{Name: "p"}, text)), `mcp: prompt "p": input: string`},
		"nil prompt":    {setError(mcp.SetPrompt(s, nil, free)), "is nil"},
		"resource":      {setError(mcp.SetResource(s, &mcp.Resource{URI: "a", Name: "n"}, text)), `mcp: resource "a": `},
		"nil resource":  {setError(mcp.SetResource[string](s, &mcp.Resource{URI: "x://a"}, nil)), "is nil"},
		"template": {setError(mcp.SetResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{", Name: "n"}, free)),
			`mcp: resource template "x://{": `},
		"variables":    {setError(mcp.SetResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "x://{a}", Name: "n"}, text)), "variables: string"},
		"nil template": {setError(mcp.SetResourceTemplate(s, nil, free)), "is nil"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.says) || len(c.err.Error()) > 1000 {
			t.Errorf("%s: got %v, want %q", what, c.err, c.says)
		}
	}
	got, err := serveModern(t, s, "tools/call", object{"name": "kept"})
	want(t, got, err, "kept")
}

func setError[V any](_ *mcp.Registration[V], err error) error { return err }

func TestSetFunctionsReplaceWhileClientsAreConnected(t *testing.T) {
	s := changingServer(t, nil)
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		c.Listen(mcp.SubscriptionFilter{ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true})
		time.Sleep(time.Second)
		synctest.Wait()
		first := features(s)
		defer removeX(t, s)
		set := map[string]func(text string) error{
			"tool": func(text string) error {
				return setError(mcp.SetTool(s, &mcp.Tool{Name: "x", Description: text, InputSchema: anyObject}, raw(text)))
			},
			"prompt": func(text string) error {
				return setError(mcp.SetPrompt(s, &mcp.Prompt{Name: "x", Description: text},
					func(context.Context, map[string]string) (string, error) { return text, nil }))
			},
			"resource": func(text string) error {
				return setError(mcp.SetResource(s, &mcp.Resource{URI: "x://x", Name: "x", Description: text},
					func(context.Context, string) (string, error) { return text, nil }))
			},
			"template": func(text string) error {
				return setError(mcp.SetResourceTemplate(s, &mcp.ResourceTemplate{URITemplate: "y://{a}", Name: "x", Description: text},
					func(context.Context, map[string]string) (string, error) { return text, nil }))
			},
		}
		for kind, f := range first {
			before := len(c.Notifications(f.changed))
			if err := set[kind]("second"); err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			c.Await(before+1, f.changed)
			f.describe("of the first")
			f.remove() // has no effect
			for _, method := range []string{f.list, f.use} {
				params := f.params
				if method == f.list {
					params = nil
				}
				if got := string(c.Call(method, params)); !strings.Contains(got, "second") || strings.Contains(got, "of the first") {
					t.Errorf("%s, %s: got %s", kind, method, got)
				}
			}
		}
	})
}

// removeX removes the features that [features] has added, by name.
func removeX(t *testing.T, s *mcp.Server) {
	remove(mcp.Registered[mcp.Tool](s, "x"))
	remove(mcp.Registered[mcp.Prompt](s, "x"))
	remove(mcp.Registered[mcp.Resource](s, "x://x"))
	remove(mcp.Registered[mcp.ResourceTemplate](s, "y://{a}"))
	if r, ok := mcp.Registered[mcp.Tool](s, "x"); ok || r != nil {
		t.Error("a removed tool is registered")
	}
}

func remove[V any](r *mcp.Registration[V], ok bool) {
	if ok {
		r.Remove()
	}
}

func TestRegisteredFindsFeaturesByName(t *testing.T) {
	s := newServer(t, nil)
	first := addValueTool(s, "x", "first")
	first.Disable()
	if r, ok := mcp.Registered[mcp.Tool](s, "x"); !ok || r != first {
		t.Errorf("got %p, %v, want the disabled registration", r, ok)
	}
	if _, ok := mcp.Registered[mcp.Prompt](s, "x"); ok {
		t.Error("a tool was found as a prompt")
	}
	second, err := mcp.SetTool(s, &mcp.Tool{Name: "x", InputSchema: anyObject}, raw("second"))
	if r, ok := mcp.Registered[mcp.Tool](s, "x"); err != nil || !ok || r != second || !first.Removed() || second.Removed() {
		t.Errorf("after a replacement: got %p, %v, %v", r, ok, err)
	}
	got, e := serveModern(t, s, "tools/call", object{"name": "x"})
	want(t, got, e, "second")
}
