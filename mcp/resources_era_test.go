package mcp_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// Requirement: RES-08, RES-09
func TestNotFoundHasTheCodeOfTheRevision(t *testing.T) {
	s := quietServer(mcp.ServerOptions{})
	addText(s, "x://there", "")
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		code := -32002
		if c.Since("2026-07-28") {
			code = mcp.CodeInvalidParams
		}
		_, err := c.Try("resources/read", map[string]any{"uri": "x://gone"})
		if err == nil || err.Code != code || !strings.Contains(string(err.Data), `"x://gone"`) {
			t.Errorf("got %v, want code %d and the URI in the data", err, code)
		}
	})
}

// The test client validates each result against the schema of its revision.
//
// Requirement: RES-03
func TestResourcesAndPromptsFitTheSchemaOfEveryRevision(t *testing.T) {
	s := completionServer()
	mcp.AddFS(s, "docs://guide/", files())
	mcp.AddPrompt(s, &mcp.Prompt{Name: "show", Title: "Show", Icons: []mcp.Icon{{Src: "https://example.com/i.png"}}},
		func(context.Context, struct{}) ([]mcp.PromptMessage, error) {
			return []mcp.PromptMessage{
				{Content: &mcp.AudioContent{Data: []byte{1}, MIMEType: "audio/wav"}},
				{Content: &mcp.ResourceLink{URI: "x://plain", Name: "plain"}},
			}, nil
		})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for _, method := range []string{"resources/list", "resources/templates/list", "prompts/list"} {
			c.Call(method, nil)
		}
		for _, uri := range []string{"docs://guide/readme.md", "docs://guide/logo.png", "city://world/kenya/nairobi"} {
			res := decode[struct{ Contents []mcp.ResourceContents }](t, c.Call("resources/read", map[string]any{"uri": uri}))
			if len(res.Contents) != 1 || res.Contents[0].URI != uri {
				t.Errorf("%s: got %+v", uri, res)
			}
		}
		filled := decode[struct{ Messages []json.RawMessage }](t, c.Call("prompts/get", map[string]any{"name": "show"}))
		if len(filled.Messages) != 2 {
			t.Errorf("got %s", filled.Messages)
		}
		if !c.Since("2025-03-26") {
			return
		}
		got := decode[mcp.CompleteResult](t, c.Call("completion/complete", completeParams("ref/prompt", "review", "language", "r")))
		if len(got.Completion.Values) != 1 || got.Completion.Values[0] != "rust" {
			t.Errorf("got %+v", got)
		}
	})
}
