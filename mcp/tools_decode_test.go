package mcp_test

import (
	stdjson "encoding/json"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A stored CallToolResult is decoded like the result of a call.
func TestStoredToolResultsAreDecoded(t *testing.T) {
	const stored = `{"resultType":"complete","content":[{"type":"text","text":"a"},{"type":"resource_link","uri":"x://y","name":"y"},` +
		`{"type":"text","text":"b"}],"structuredContent":{"n":1},"isError":true,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"},"k":"v"}}`
	for name, decode := range map[string]func([]byte, any) error{
		"encoding/json":    stdjson.Unmarshal,
		"the experimental": func(raw []byte, v any) error { return json.Unmarshal(raw, v) },
	} {
		raw, r := []byte(stored), &mcp.CallToolResult{}
		if err := decode(raw, r); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		clear(raw) // the result must not alias it
		text, isText := r.Content[0].(*mcp.TextContent)
		second, _ := r.Content[2].(*mcp.TextContent)
		link, isLink := r.Content[1].(*mcp.ResourceLink)
		structured, _ := r.StructuredContent.(stdjson.RawMessage)
		if !isText || text.Text != "a" || second.Text != "b" || !isLink || link.URI != "x://y" || string(structured) != `{"n":1}` || !r.IsError || r.Meta["k"] != "v" || len(r.Meta) != 1 {
			t.Errorf("%s: got %+v", name, r)
		}
		for _, wrong := range []string{`[]`, `7`, `"x"`, `{"content":{}}`, `{"content":[7]}`, `{"isError":1}`, `{"_meta":[]}`, `{`} {
			if err := decode([]byte(wrong), &mcp.CallToolResult{}); err == nil {
				t.Errorf("%s: decode %s: got no error", name, wrong)
			}
		}
	}
}
