package mcp_test

import (
	"context"
	stdjson "encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/jsonrpc"
	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// spread is JSON on several lines, as a caller may pass it.
const spread = "{\r\n\t\"type\": \"object\",\n\"a\":\r[\n1]}"

// Transports write results as they are, and a line break in one would end a line of stdio or of an event.
//
// Requirement: STDIO-02
func TestResultsAreOneLine(t *testing.T) {
	raw := stdjson.RawMessage(spread)
	meta := mcp.Meta{"com.example/a": raw}
	text := &mcp.TextContent{Text: "a\r\nb", Meta: meta}
	for name, result := range map[string]mcp.Result{
		"raw":                    mcp.RawResult(spread),
		"raw with a result type": mcp.RawResult("{\n\"resultType\":\r\"complete\"}"),
		"empty":                  mcp.EmptyResult{Meta: meta},
		"tool":                   &mcp.CallToolResult{Content: []mcp.ContentBlock{text}, StructuredContent: raw, Meta: meta},
		"prompt":                 &mcp.GetPromptResult{Description: "a\nb", Messages: []mcp.PromptMessage{{Content: text}}, Meta: meta},
		"resource":               &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: "a:\n", Text: "\r", Meta: meta}}, Meta: meta},
		"question":               &mcp.InputRequiredResult{InputRequests: map[string]mcp.InputRequest{"\n": {Method: "\n", Params: raw}}, Meta: meta},
		"tools":                  &mcp.ListToolsResult{Tools: []*mcp.Tool{{Name: "a", InputSchema: raw, Meta: meta}}, NextCursor: "\n", Meta: meta},
		"prompts":                &mcp.ListPromptsResult{Prompts: []*mcp.Prompt{{Name: "\n", Meta: meta}}, Meta: meta},
		"resources":              &mcp.ListResourcesResult{Resources: []*mcp.Resource{{URI: "a:", Name: "\n", Meta: meta}}, Meta: meta},
		"another type":           ownResult{Raw: raw, Own: ownForm{}},
	} {
		req := lineRequest(t, "tools/list")
		line, err := mcp.AppendResponse(nil, t.Context(), mcp.HandlerFunc(func(context.Context, *mcp.Request) (mcp.Result, error) { return result, nil }), req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		checkLine(t, name, line)
	}
}

// Lists and structured results of a Server are encoded by separate code.
//
// Requirement: STDIO-02
func TestResultsOfServersAreOneLine(t *testing.T) {
	s := mcp.NewServer("\n", "1", nil)
	mcp.AddTool(s, &mcp.Tool{Name: "a", Description: "\n", InputSchema: stdjson.RawMessage(spread)},
		func(context.Context, stdjson.RawMessage) (map[string]string, error) {
			return map[string]string{"a": "b c"}, nil
		})
	for _, method := range []string{"tools/list", "tools/call", "server/discover"} {
		line, err := mcp.AppendResponse(nil, t.Context(), s, lineRequest(t, method))
		if err != nil {
			t.Errorf("%s: %v", method, err)
		}
		checkLine(t, method, line)
	}
}

func lineRequest(t *testing.T, method string) *mcp.Request {
	t.Helper()
	req, err := mcp.NewRequest(&jsonrpc.Message{ID: jsonrpc.IntID(1), Method: method, Params: []byte(`{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"c","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}},"name":"a"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return req
}

func checkLine(t *testing.T, name string, line []byte) {
	t.Helper()
	if strings.ContainsAny(string(line), "\r\n") {
		t.Errorf("%s: got %q, want no line breaks", name, line)
	}
	if _, err := jsonrpc.Decode(line); err != nil {
		t.Errorf("%s: decode %q: %v", name, line, err)
	}
}

// An ownResult is a Result with its own MarshalJSON.
type ownResult struct {
	Raw stdjson.RawMessage `json:"raw"`
	Own ownForm            `json:"own"`
}

func (ownResult) ResultType() string   { return driver.ResultComplete }
func (ownResult) ResultMeta() mcp.Meta { return nil }

type ownForm struct{}

func (ownForm) MarshalJSON() ([]byte, error) { return []byte(spread), nil }
