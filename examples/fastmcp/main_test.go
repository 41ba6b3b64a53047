package main

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcptest"
	"github.com/patchbay-mcp/patchbay/mcptest/testhome"
)

func TestMain(m *testing.M) { os.Exit(testhome.Main(m, mcptest.Main)) }

// TestFeatures uses the tool, the resource and the prompt in every revision.
func TestFeatures(t *testing.T) {
	type object = map[string]any
	mcptest.Run(t, newServer(), func(t *testing.T, c *mcptest.Client) {
		for _, test := range []struct {
			method string
			params object
			want   string
		}{
			{"tools/list", nil, `"name":"add"`},
			{"tools/call", object{"name": "add", "arguments": object{"a": 1, "b": 2}}, `"text":"3"`},
			{"resources/templates/list", nil, `"uriTemplate":"greeting://{name}"`},
			{"resources/read", object{"uri": "greeting://Ann"}, `Hello, Ann!`},
			{"prompts/list", nil, `"name":"greet_user"`},
			{"prompts/get", prompt("formal"), "Write a formal greeting for Ann."},
			{"prompts/get", prompt("unknown"), "Write a friendly greeting for Ann."},
			{"prompts/get", prompt(""), "Write a friendly greeting for Ann."},
		} {
			if got := string(c.Call(test.method, test.params)); !strings.Contains(got, test.want) {
				t.Errorf("%s %v: got %s, want %s", test.method, test.params, got, test.want)
			}
		}
		var sum struct{ StructuredContent json.RawMessage }
		err := json.Unmarshal(c.Call("tools/call", object{"name": "add", "arguments": object{"a": 1, "b": 2}}), &sum)
		// Before 2026-07-28, structured content is an object: clients receive the number as text.
		if structured := string(sum.StructuredContent); err != nil || (structured == "3") != c.Modern() {
			t.Errorf("got structured content %q, %v", structured, err)
		}
	})
}

// prompt returns the params of the prompt, without a style if that is empty.
func prompt(style string) map[string]any {
	args := map[string]any{"name": "Ann"}
	if style != "" {
		args["style"] = style
	}
	return map[string]any{"name": "greet_user", "arguments": args}
}
