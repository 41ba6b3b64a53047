package mcp_test

import (
	"context"
	stdjson "encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A null that the schema refuses counts as absent, unless the property is required.
func TestNullArgumentsCountAsAbsent(t *testing.T) {
	schema := `{"type":"object","properties":{
		"need":{"type":"integer"},"maybe":{"type":"integer"},"usual":{"type":"integer","default":7},
		"any":{"type":["integer","null"]},"free":{},"text":{"type":"string"},
		"in":{"type":"object","properties":{"maybe":{"type":"integer"},"usual":{"type":"integer","default":8}}},
		"list":{"type":"array","items":{"type":"object","properties":{"maybe":{"type":"integer"}}}}},
		"required":["need"]}`
	s := mcp.NewServer("s", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "tool", InputSchema: stdjson.RawMessage(schema)},
		func(_ context.Context, in stdjson.RawMessage) (string, error) { return string(in), nil })
	c, err := mcp.Connect(t.Context(), mcp.InMemory(s), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for args, want := range map[string]string{
		`{"need":1}`:                                        `{"need":1,"usual":7}`,
		`{"need":1,"text":"null"}`:                          `{"need":1,"text":"null","usual":7}`,
		`{"need":1,"maybe":null}`:                           `{"need":1,"usual":7}`,
		`{"need":1,"usual":null}`:                           `{"need":1,"usual":7}`,
		`{"need":1,"any":null,"free":null}`:                 `{"need":1,"any":null,"free":null,"usual":7}`,
		`{"need":1,"any":null,"maybe":null}`:                `{"need":1,"any":null,"usual":7}`,
		`{"need":1,"in":{"maybe":null,"usual":null}}`:       `{"need":1,"in":{"usual":8},"usual":7}`,
		`{"need":1,"list":[{"maybe":null},{"maybe":1}]}`:    `{"need":1,"list":[{},{"maybe":1}],"usual":7}`,
		`{"need":null}`:                                     "need",
		`{"need":1,"list":[null]}`:                          "list",
		`{"need":1,"maybe":null,"text":null,"in":{"a":[]}}`: `{"need":1,"in":{"a":[],"usual":8},"usual":7}`,
		`{"need":null,"maybe":null}`:                        "need",
	} {
		res, err := c.CallTool(t.Context(), "tool", stdjson.RawMessage(args))
		if err != nil {
			t.Errorf("%s: %v", args, err)
			continue
		}
		got := res.Content[0].(*mcp.TextContent).Text
		if refused := want[0] != '{'; res.IsError != refused || !refused && got != want || !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", args, got, want)
		}
	}
}
