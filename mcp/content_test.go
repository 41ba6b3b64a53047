package mcp_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/patchbay-mcp/patchbay/mcp"
	"github.com/patchbay-mcp/patchbay/mcptest"
)

// pointer returns a pointer to a copy of v.
func pointer[T any](v T) *T { return &v }

// everyContent returns content of each type, with the required fields only and with all fields.
func everyContent() []mcp.ContentBlock {
	annotations := &mcp.Annotations{
		Audience: []mcp.Role{mcp.RoleUser, mcp.RoleAssistant}, Priority: pointer(0.5),
		LastModified: pointer(time.Date(2025, 1, 12, 15, 0, 58, 0, time.UTC)),
	}
	meta := mcp.Meta{"com.example/x": 1.0}
	return []mcp.ContentBlock{
		mcp.Text("plain \u2028 <b> \xff"),
		&mcp.TextContent{Text: "text", Annotations: annotations, Meta: meta},
		&mcp.ImageContent{Data: []byte{1, 2, 3, 4}, MIMEType: "image/png"},
		&mcp.ImageContent{Data: []byte{}, MIMEType: "image/png", Annotations: annotations, Meta: meta},
		&mcp.AudioContent{Data: []byte{255}, MIMEType: "audio/wav"},
		&mcp.AudioContent{Data: []byte{255}, MIMEType: "audio/wav", Annotations: annotations, Meta: meta},
		&mcp.ResourceLink{URI: "x://link", Name: "link"},
		&mcp.ResourceLink{
			URI: "x://link", Name: "link", Title: "A Link", Description: "a link",
			MIMEType: "text/plain", Size: pointer(int64(7)),
			Icons: []mcp.Icon{{Src: "https://example.com/i.png"}}, Annotations: annotations, Meta: meta,
		},
		&mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: "x://text", MIMEType: "text/plain", Text: ""}},
		&mcp.EmbeddedResource{
			Resource:    &mcp.ResourceContents{URI: "x://blob", MIMEType: "a/b", Blob: []byte("blob"), Meta: meta},
			Annotations: annotations, Meta: meta,
		},
	}
}

// The test client validates the content with the schema of its revision.
//
// Requirement: TOOL-18, TOOL-29, RES-19
func TestContentInEveryRevision(t *testing.T) {
	s := newServer(t, nil)
	addValueTool(s, "all", everyContent())
	mcp.AddPrompt(s, &mcp.Prompt{Name: "all"}, func(context.Context, struct{}) ([]mcp.PromptMessage, error) {
		var messages []mcp.PromptMessage
		for _, c := range everyContent() {
			messages = append(messages, mcp.PromptMessage{Role: mcp.RoleAssistant, Content: c})
		}
		return messages, nil
	})
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		tool := decode[struct{ Content []json.RawMessage }](t, c.Call("tools/call", object{"name": "all"})).Content
		prompt := decode[struct {
			Messages []struct{ Content json.RawMessage }
		}](t, c.Call("prompts/get", object{"name": "all"})).Messages
		var types []string
		for i, raw := range tool {
			if i < len(prompt) && string(prompt[i].Content) != string(raw) {
				t.Errorf("got %s of the prompt, %s of the tool, want them equal", prompt[i].Content, raw)
			}
			piece := decode[struct{ Type, Text, URI string }](t, raw)
			types = append(types, piece.Type)
			switch {
			case piece.Type == "text" && piece.Text != "text" &&
				!strings.HasPrefix(piece.Text, "plain \u2028 <b> \ufffd") &&
				!strings.Contains(piece.Text, "audio/wav") && !strings.Contains(piece.Text, "x://link"):
				t.Errorf("text: got %s", raw)
			case strings.Contains(string(raw), "lastModified") && !c.Since("2025-06-18"),
				strings.Contains(string(raw), "com.example/x") && !c.Since("2025-06-18"),
				strings.Contains(string(raw), "icons") && !c.Since("2025-11-25"):
				t.Errorf("got %s, want no fields of newer revisions", raw)
			}
		}
		want := []string{"text", "text", "image", "image", "audio", "audio", "resource_link", "resource_link",
			"resource", "resource"}
		if !c.Since("2025-06-18") {
			want[6], want[7] = "text", "text"
		}
		if !c.Since("2025-03-26") {
			want[4], want[5] = "text", "text"
		}
		if !slices.Equal(types, want) {
			t.Errorf("got types %q, want %q", types, want)
		}
	})
}

// Requirement: TOOL-29, RES-19
func TestEncodedContentDecodesToTheSame(t *testing.T) {
	for _, c := range everyContent()[1:] {
		raw, err := json.Marshal(mcp.PromptMessage{Role: mcp.RoleUser, Content: c})
		if err != nil {
			t.Fatal(err)
		}
		var got mcp.PromptMessage
		if err := json.Unmarshal(raw, &got); err != nil {
			t.Fatalf("%v: %s", err, raw)
		}
		if diff := cmp.Diff(c, got.Content); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", raw, diff)
		}
	}
}

// Requirement: TOOL-29
func TestInvalidContentIsNotDecoded(t *testing.T) {
	for _, raw := range []string{
		`{"role":"user"}`, `{"role":"user","content":{}}`, `{"role":"user","content":{"type":7}}`,
		`{"role":"user","content":{"type":"video"}}`, `{"role":"user","content":{"type":"image","data":"!"}}`,
	} {
		var m mcp.PromptMessage
		if err := json.Unmarshal([]byte(raw), &m); err == nil {
			t.Errorf("%s: got %+v, want an error", raw, m.Content)
		}
	}
}

func TestInvalidContentOfAToolIsAnInternalError(t *testing.T) {
	s := newServer(t, nil)
	addValueTool(s, "nil", []mcp.ContentBlock{nil})
	addValueTool(s, "no_resource", []mcp.ContentBlock{&mcp.EmbeddedResource{}})
	addValueTool(s, "meta", []mcp.ContentBlock{&mcp.TextContent{Meta: mcp.Meta{"f": func() {}}}})
	addValueTool[mcp.ContentBlock](s, "none", nil)
	addValueTool(s, "no_result", (*mcp.CallToolResult)(nil))
	mcptest.Run(t, s, func(t *testing.T, c *mcptest.Client) {
		for _, name := range []string{"nil", "no_resource", "meta", "none", "no_result"} {
			_, err := c.Try("tools/call", object{"name": name})
			wantCode(t, name, err, mcp.CodeInternalError)
		}
	})
}
