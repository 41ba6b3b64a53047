package mcp

import (
	"encoding/json"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A Tool describes a function that a model can call.
//
// Spec: server/tools; schema Tool.
type Tool struct {
	// Name identifies the tool: 1 to 128 of A-Z a-z 0-9 _ - and dot.
	Name string `json:"name"`
	// Title is what people see; Name when empty.
	Title string `json:"title,omitzero"`
	// Description tells the model what the tool does and when to use it.
	Description string `json:"description,omitzero"`
	// InputSchema is the JSON Schema of the arguments, an object. Default: derived from the function's input type.
	InputSchema json.RawMessage `json:"inputSchema"`
	// OutputSchema is the JSON Schema of the structured result. Default: derived from the function's output type.
	OutputSchema json.RawMessage `json:"outputSchema,omitzero"`
	// Annotations are hints about what the tool does. They are claims that a client may choose to believe.
	Annotations *ToolAnnotations `json:"annotations,omitzero"`
	Icons       []Icon           `json:"icons,omitempty"`
	// Execution is the JSON object that revision 2025-11-25 alone defines: whether calls of the tool may be tasks; see
	// package ext/tasks. Lists of other revisions leave it out.
	Execution json.RawMessage `json:"execution,omitzero"`
	Meta      Meta            `json:"_meta,omitzero"`
}

// ToolAnnotations are hints about a tool. A nil pointer leaves the protocol's default.
//
// Spec: schema ToolAnnotations.
type ToolAnnotations struct {
	Title string `json:"title,omitzero"`
	// ReadOnly: it changes nothing. Default false.
	ReadOnly *bool `json:"readOnlyHint,omitzero"`
	// Destructive: its changes may destroy. Means something only if not ReadOnly. Default true.
	Destructive *bool `json:"destructiveHint,omitzero"`
	// Idempotent: calling it again with the same arguments changes nothing more. Means something only if not ReadOnly.
	// Default false.
	Idempotent *bool `json:"idempotentHint,omitzero"`
	// OpenWorld: it reaches out to things beyond the server. Default true.
	OpenWorld *bool `json:"openWorldHint,omitzero"`
}

// A ToolResult is the outcome of a tool call.
//
// Spec: server/tools, Tool Result; schema CallToolResult.
type ToolResult struct {
	// Content is what the model reads.
	Content []Content `json:"content"`
	// StructuredContent is the result for programs: any value that encodes to JSON, by the tool's output schema. Nil
	// is none; json.RawMessage("null") is the value null.
	StructuredContent any `json:"structuredContent,omitzero"`
	// IsError says that the tool failed; Content tells the model how.
	IsError bool `json:"isError,omitzero"`
	Meta    `json:"-"`
	complete

	// checked is the structured content that the server has encoded itself, and so need not be checked again.
	checked json.RawMessage
}

// textResult returns a result of one text, in one piece of memory: most tools give that.
func textResult(text string) *ToolResult {
	r := &struct {
		ToolResult
		content [1]Content
		text    TextContent
	}{text: TextContent{Text: text}}
	r.content[0] = &r.text
	r.Content = r.content[:]
	return &r.ToolResult
}

// appendFields writes the result by hand: it is what a server does most.
func (r *ToolResult) appendFields(dst []byte) ([]byte, error) {
	dst = append(dst, `"content":[`...)
	var err error
	for i, c := range r.Content {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendContent(dst, c); err != nil {
			return nil, err
		}
	}
	dst = append(dst, ']')
	if r.StructuredContent != nil {
		dst = append(dst, `,"structuredContent":`...)
		if dst, err = r.appendStructured(dst); err != nil {
			return nil, err
		}
	}
	if r.IsError {
		dst = append(dst, `,"isError":true`...)
	}
	return dst, nil
}

func (r *ToolResult) appendStructured(dst []byte) ([]byte, error) {
	raw, ok := r.StructuredContent.(json.RawMessage)
	if ok && len(raw) > 0 && len(raw) == len(r.checked) && &raw[0] == &r.checked[0] {
		from := len(dst)
		dst = append(dst, raw...)
		jsonscan.OneLine(dst[from:]) // middleware may have written into it
		return dst, nil
	}
	return appendValue(dst, r.StructuredContent)
}

// A ListToolsResult is one page of a server's tools.
//
// Spec: server/tools, Listing Tools.
type ListToolsResult struct {
	Tools      []*Tool `json:"tools"`
	NextCursor string  `json:"nextCursor,omitzero"`
	Cache
	Meta `json:"-"`
	complete

	page *listPage[Tool]
}

func (r *ListToolsResult) appendFields(dst []byte) ([]byte, error) {
	return r.page.appendList(dst, "tools", r.Tools, r.NextCursor)
}

// appendValue appends the JSON of v on one line.
func appendValue(dst []byte, v any) ([]byte, error) {
	b, err := jsonv2.Marshal(v, deterministic)
	if err != nil {
		return nil, err
	}
	return append(dst, b...), nil
}
