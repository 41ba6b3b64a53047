package mcphttp_test

import (
	"context"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// A handler of a known method that returns the code of an unknown one is not answered like an unknown
// method: clients would take the method for missing.
//
// Requirement: MHTTP-13
func TestHandlersThatReturnMethodNotFoundHaveStatus200(t *testing.T) {
	server := mcp.NewServer("s", "1", &mcp.ServerOptions{Logger: discardLogger})
	missing := mcp.Errorf(mcp.CodeMethodNotFound, "no such command")
	mcp.AddTool(server, &mcp.Tool{Name: "run"}, func(context.Context, struct{}) (string, error) { return "", missing })
	mcp.AddPrompt(server, &mcp.Prompt{Name: "run"}, func(context.Context, struct{}) (string, error) { return "", missing })
	mcp.AddResource(server, &mcp.Resource{URI: "x:run", Name: "run"},
		func(context.Context, string) (string, error) { return "", missing })
	f := start(t, server, nil)
	for _, test := range []struct {
		method, params string
		status         int
	}{
		{"tools/call", `"name":"run"`, 200},
		{"prompts/get", `"name":"run"`, 200},
		{"resources/read", `"uri":"x:run"`, 200},
		{"no/such", ``, 404},
		{"completion/complete", `"ref":{"type":"ref/prompt","name":"run"},"argument":{"name":"a","value":""}`, 404},
	} {
		got := f.modern(test.method, test.params)
		if got.status != test.status || got.code() != mcp.CodeMethodNotFound {
			t.Errorf("%s: got %d %s, want %d with code -32601", test.method, got.status, got.body, test.status)
		}
	}
}
