package main

import (
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) {
	log.SetOutput(io.Discard)
	os.Exit(testhome.Main(m, mcptest.Main))
}

// answer fills in the form, visits the page, and answers as the model and the list of roots.
func answer(method string, params json.RawMessage) (any, error) {
	type object = map[string]any
	switch {
	case method == "sampling/createMessage":
		return object{"role": "assistant", "model": "test", "content": object{"type": "text", "text": "sampled"}}, nil
	case method == "roots/list":
		return object{"roots": []any{object{"uri": "file:///work", "name": "work"}}}, nil
	case strings.Contains(string(params), `"mode":"url"`):
		if !strings.Contains(string(params), "http://localhost:6062?id=") {
			return nil, &jsonrpc.Error{Code: mcp.CodeInvalidParams, Message: "wrong URL"}
		}
		return object{"action": "accept"}, nil
	}
	return object{"action": "accept", "content": object{"random": "x7"}}, nil
}

// TestTools calls every tool in every revision that has what the tool uses.
func TestTools(t *testing.T) {
	name, none := map[string]any{"name": "Ann"}, map[string]any{}
	tools := []struct {
		name  string
		args  map[string]any
		since string // the first revision that has the feature
		want  string // part of the result
	}{
		{"greet", name, "2024-11-05", `"text":"Hi Ann"`},
		{"greet_structured", name, "2025-06-18", `"structuredContent":{"message":"Hi Ann"}`},
		{"greet_icons", name, "2025-06-18", `"structuredContent":{"message":"Hi Ann"}`},
		{"greet_link", name, "2025-06-18", `"uri":"data:text/plain,Hi%20Ann"`},
		{"log", none, "2024-11-05", `"text":"A message was logged."`},
		{"sample", none, "2024-11-05", `"text":"sampled"`},
		{"elicit_form", none, "2025-06-18", `"text":"x7"`},
		{"elicit_url", none, "2025-11-25", `"text":"The user has agreed to visit the page."`},
		{"roots", none, "2024-11-05", `"text":"work:file:///work"`},
	}
	opts := &mcptest.Options{Answer: answer, LogLevel: "error"}
	mcptest.RunOn(t, newServer(), mcptest.Combinations(), opts, func(t *testing.T, c *mcptest.Client) {
		listed := names(t, c, "tools")
		for _, tool := range tools {
			if !slices.Contains(listed, tool.name) || len(listed) != len(tools) {
				t.Errorf("%s: listed are %v", tool.name, listed)
			}
			res, err := c.Try("tools/call", map[string]any{"name": tool.name, "arguments": tool.args})
			if elicits := strings.HasPrefix(tool.name, "elicit"); elicits && !c.Since(tool.since) {
				if err == nil && !strings.Contains(string(res), `"isError":true`) {
					t.Errorf("%s without the capability: got %s", tool.name, res)
				}
				continue
			}
			if err != nil || c.Since(tool.since) && !strings.Contains(string(res), tool.want) {
				t.Errorf("%s: got %s, %v", tool.name, res, err)
			}
		}
		for _, m := range c.Await(1, "notifications/message") {
			if !strings.Contains(string(m.Params), "something happened") {
				t.Errorf("got the log message %s", m.Params)
			}
		}
	})
}

func TestPromptsResourcesAndCompletion(t *testing.T) {
	mcptest.Run(t, newServer(), func(t *testing.T, c *mcptest.Client) {
		prompts := names(t, c, "prompts")
		for _, prompt := range prompts {
			got := c.Call("prompts/get", map[string]any{"name": prompt, "arguments": map[string]any{"name": "Ann"}})
			if !strings.Contains(string(got), "Say hi to Ann") {
				t.Errorf("%s: got %s", prompt, got)
			}
		}
		if len(prompts) != 2 || !slices.Equal(names(t, c, "resources"), []string{"info"}) {
			t.Errorf("got the prompts %v and the resources %v", prompts, names(t, c, "resources"))
		}
		for _, uri := range []string{"embedded:info", "http://example.com/~info/"} {
			if got := c.Call("resources/read", map[string]any{"uri": uri}); !strings.Contains(string(got), texts["info"]) {
				t.Errorf("%s: got %s", uri, got)
			}
		}
		if _, err := c.Try("resources/read", map[string]any{"uri": "http://example.com/~other/"}); err == nil {
			t.Error("an unknown resource was read")
		}
		for _, ref := range []map[string]any{
			{"type": "ref/prompt", "name": "greet"},
			{"type": "ref/resource", "uri": "http://example.com/~{resource_name}/"},
		} {
			argument := map[string]any{"name": "name", "value": "An"}
			if ref["uri"] != nil {
				argument["name"] = "resource_name"
			}
			got := c.Call("completion/complete", map[string]any{"ref": ref, "argument": argument})
			if !strings.Contains(string(got), `["Anx"]`) || !strings.Contains(string(got), `"total":1`) {
				t.Errorf("complete %v: got %s", ref, got)
			}
		}
	})
}

// TestDescription tests the instructions and, in the revisions that have them, the icons.
func TestDescription(t *testing.T) {
	mcptest.Run(t, newServer(), func(t *testing.T, c *mcptest.Client) {
		list := string(c.Call("tools/list", nil))
		if strings.Contains(list, "data:image/png;base64,") != c.Since("2025-11-25") {
			t.Errorf("icons: got %.200s", list)
		}
	})
	for _, on := range mcptest.Combinations() {
		t.Run(on.String(), func(t *testing.T) {
			c := mcptest.Dial(t, newServer(), on, nil)
			if c.Instructions() != "Use this server!" {
				t.Errorf("got instructions %q", c.Instructions())
			}
			if icons := c.ServerInfo().Icons; on.Since("2025-11-25") && len(icons) != 1 {
				t.Errorf("got icons %v", icons)
			}
		})
	}
}

// TestTrace tests that messages are logged in both directions.
func TestTrace(t *testing.T) {
	var logged strings.Builder
	log.SetOutput(&logged)
	defer log.SetOutput(io.Discard)
	client, server := mcp.Pipe()
	done := make(chan error)
	go func() { done <- mcp.Serve(context.Background(), newServer(), traceConn{server}, nil) }()
	c, err := mcp.Connect(t.Context(), mcp.NewConnTransport(client), nil)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, want := range []string{`read: {"jsonrpc":"2.0"`, `write: {"jsonrpc":"2.0"`} {
		if !strings.Contains(logged.String(), want) {
			t.Errorf("got %s, want %s", logged.String(), want)
		}
	}
}

// names returns the names of a list.
func names(t *testing.T, c *mcptest.Client, kind string) (all []string) {
	t.Helper()
	var list map[string]json.RawMessage
	var items []struct{ Name string }
	if err := json.Unmarshal(c.Call(kind+"/list", nil), &list); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(list[kind], &items); err != nil {
		t.Fatal(err)
	}
	for _, item := range items {
		all = append(all, item.Name)
	}
	return all
}
