package explore_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// A prompt or template with very many names has a form for the first names, and the list says so.
func TestNamesOfAFormAreLimited(t *testing.T) {
	mcptest.NoLeaks(t)
	server := mcp.NewServer("fs", "1", nil)
	prompt, uri := &mcp.Prompt{Name: "wide"}, "x://"
	for i := range 600 {
		prompt.Arguments = append(prompt.Arguments, mcp.PromptArgument{Name: fmt.Sprintf("name%03d", i)})
		uri += fmt.Sprintf("{name%03d}", i)
	}
	mcp.AddPrompt(server, prompt, func(context.Context, map[string]string) (string, error) { return "", nil })
	mcp.AddResourceTemplate(server, &mcp.ResourceTemplate{URITemplate: uri, Name: "wide"},
		func(context.Context, map[string]string) (string, error) { return "", nil })
	v := newVisitor(t, func() mcp.Transport { return mcp.InMemory(server) })
	for _, kind := range []string{"prompts", "templates"} {
		page := v.Await("/explore?server=fs&kind="+kind, "cannot be read completely")
		if !strings.Contains(page, "has more than 500 names") {
			t.Errorf("%s: the page does not tell of the limit", kind)
		}
	}
}
