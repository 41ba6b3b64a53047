package root

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

func TestStructuredResultsAreLaidOutOnATerminal(t *testing.T) {
	const rows = `{"people":[{"name":"Ann","age":42},{"name":"Bob","age":7}]}`
	s := mcp.NewServer("table", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "people", OutputSchema: json.RawMessage(`{"type": "object"}`)},
		func(context.Context, struct{}) (json.RawMessage, error) { return json.RawMessage(rows), nil })
	mcp.AddTool(s, &mcp.Tool{Name: "other"}, func(context.Context, struct{}) (*mcp.CallToolResult, error) {
		return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.Text("two people")},
			StructuredContent: json.RawMessage(rows)}, nil
	})
	url := listenHTTP(t, s)
	for _, revision := range []string{"2026-07-28", "2025-11-25", "2025-06-18"} {
		o := atTerminal(t, "", nil, "call", "--revision", revision, url, "people")
		if want := "people:\n  name  age\n  Ann    42\n  Bob     7\n"; o.stdout != want {
			t.Errorf("%s: got %s, want %s", revision, o.stdout, want)
		}
		if o := patchbay(t, "", "call", "--revision", revision, url, "people"); o.stdout != rows+"\n" {
			t.Errorf("%s: in a pipe: got %s, want %s", revision, o.stdout, rows)
		}
		if o := atTerminal(t, "", nil, "call", "--revision", revision, url, "other"); o.stdout != "two people\n" {
			t.Errorf("%s: got %s, want the text, which says something else", revision, o.stdout)
		}
		if o := atTerminal(t, "", nil, "call", "--json", "--revision", revision, url, "people"); !strings.HasPrefix(
			o.stdout, "{\n  \"") {
			t.Errorf("%s: --json: got %s, want indented JSON", revision, o.stdout)
		}
	}
	o := atTerminal(t, "", nil, "call", "--revision", "2024-11-05", url, "people")
	if o.stdout != rows+"\n" {
		t.Errorf("2024-11-05: got %s, want the text", o.stdout)
	}
}
