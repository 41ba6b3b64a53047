package root

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/exit"
	"github.com/patchbay-mcp/patchbay/mcp"
)

// newLenientServer returns a server that returns all arguments of its tools and prompts.
func newLenientServer(t *testing.T) string {
	t.Helper()
	tool := func(name, schema string) *mcp.Tool {
		return &mcp.Tool{Name: name, InputSchema: json.RawMessage(schema)}
	}
	const properties = `"properties": {"city": {"type": "string"}, "unit": {"type": "string"}}, "required": ["city"]`
	handler := mcp.HandlerFunc(func(_ context.Context, req *mcp.Request) (mcp.Result, error) {
		switch req.Method {
		case "server/discover":
			return mcp.RawResult(`{"resultType":"complete","supportedVersions":["2026-07-28"],
				"capabilities":{"tools":{},"prompts":{}},"serverInfo":{"name":"lenient","version":"1"},
				"ttlMs":0,"cacheScope":"private"}`), nil
		case "tools/list":
			return &mcp.ListToolsResult{Tools: []*mcp.Tool{
				tool("closed", `{"type": "object", "additionalProperties": false, `+properties+`}`),
				tool("open", `{"type": "object", `+properties+`}`)}}, nil
		case "prompts/list":
			return &mcp.ListPromptsResult{Prompts: []*mcp.Prompt{{Name: "declared",
				Arguments: []mcp.PromptArgument{{Name: "city", Required: true}, {Name: "unit"}}}, {Name: "silent"}}}, nil
		case "tools/call":
			return &mcp.CallToolResult{Content: []mcp.ContentBlock{mcp.Text(string(req.Params))}}, nil
		case "prompts/get":
			return &mcp.GetPromptResult{Messages: []mcp.PromptMessage{
				{Role: mcp.RoleUser, Content: mcp.Text(string(req.Params))}}}, nil
		}
		return nil, &mcp.Error{Code: mcp.CodeMethodNotFound, Message: req.Method}
	})
	return listenHTTP(t, handler)
}

// A server may take arguments that it does not declare.
func TestUndeclaredArgumentsAreSentWithAWarning(t *testing.T) {
	url := newLenientServer(t)
	for _, test := range []struct {
		args          []string
		sent, message string // the arguments that the server gets, "" for none; and what is on stderr
	}{
		{[]string{"call", url, "closed", "city=a", "zzz=1"}, `"zzz":"1"`, `the tool does not declare the argument "zzz"`},
		{[]string{"call", url, "closed", "city=a", `{"zzz": [1]}`}, `"zzz":[1]`, `the tool does not declare the argument "zzz"`},
		{[]string{"call", url, "closed", "city=a", "unti=c"}, "", `did you mean "unit"?`},
		{[]string{"call", url, "closed", "zzz=1"}, "", `unknown argument "zzz"`},
		{[]string{"call", url, "open", "city=a", "zzz=1"}, `"zzz":"1"`, ""},
		{[]string{"call", url, "open", "city=a", "unti=c"}, `"unti":"c"`, `does not declare the argument "unti": did you mean "unit"?`},
		{[]string{"call", url, "open", "ctiy=a"}, "", `did you mean "city"?`},
		{[]string{"get", url, "silent", "zzz=1"}, `"zzz":"1"`, `the prompt does not declare the argument "zzz"`},
		{[]string{"get", url, "declared", "city=a", "unti=c"}, `"unti":"c"`, `the argument "unti": did you mean "unit"?`},
		{[]string{"get", url, "declared", "ctiy=a"}, "", `did you mean "city"?`},
	} {
		o := patchbay(t, "", test.args...)
		if wantOK := test.sent != ""; wantOK != (o.status == exit.OK) || !strings.Contains(o.stdout, test.sent) ||
			!strings.Contains(o.stderr, test.message) || test.message == "" && o.stderr != "" {
			t.Errorf("%q: exit code %d, %s, stderr %s, want %s and %q", test.args[1:], o.status, o.stdout, o.stderr, test.sent,
				test.message)
		}
	}
}
