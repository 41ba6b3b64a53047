package mcp

import (
	"cmp"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// A Tool describes a function that a model can call.
//
// Spec: server/tools; schema Tool.
type Tool struct {
	// Name identifies the tool: 1 to 128 characters of A-Z a-z 0-9 _ - and dot.
	Name  string `json:"name"`
	Title string `json:"title,omitzero"` // the name for people; default: Name
	// Description explains to the model the purpose of the tool and when to use it.
	Description string `json:"description,omitzero"`
	// InputSchema is the JSON Schema of the arguments, an object. Default: derived from the
	// function's input type.
	InputSchema json.RawMessage `json:"inputSchema"`
	// OutputSchema is the JSON Schema of the structured result. Default: derived from the
	// function's output type.
	OutputSchema json.RawMessage `json:"outputSchema,omitzero"`
	// Annotations are hints about the tool's behaviour. Clients must not trust them unless they
	// trust the server.
	Annotations *ToolAnnotations `json:"annotations,omitzero"`
	Icons       []Icon           `json:"icons,omitempty"`
	// Execution is the JSON object that only revision 2025-11-25 defines: whether calls of the tool
	// may be tasks; see package ext/tasks. Lists of other revisions leave it out.
	Execution json.RawMessage `json:"execution,omitzero"`
	Meta      Meta            `json:"_meta,omitzero"`
}

// DisplayName returns the name of the tool to show to people: the first that is set of Title, the
// title of the annotations, and Name. It comes from the server and must not be trusted.
//
// Spec: schema BaseMetadata.
func (t *Tool) DisplayName() string {
	if t.Annotations != nil {
		return cmp.Or(t.Title, t.Annotations.Title, t.Name)
	}
	return cmp.Or(t.Title, t.Name)
}

// ToolAnnotations are hints about a tool. A nil pointer means the default of the protocol.
//
// Spec: schema ToolAnnotations.
type ToolAnnotations struct {
	Title string `json:"title,omitzero"`
	// ReadOnly: the tool does not modify its environment. Default false.
	ReadOnly *bool `json:"readOnlyHint,omitzero"`
	// Destructive: the tool may destroy data. Only meaningful if not ReadOnly. Default true.
	Destructive *bool `json:"destructiveHint,omitzero"`
	// Idempotent: calling the tool again with the same arguments has no further effect. Only
	// meaningful if not ReadOnly. Default false.
	Idempotent *bool `json:"idempotentHint,omitzero"`
	// OpenWorld: the tool interacts with external systems. Default true.
	OpenWorld *bool `json:"openWorldHint,omitzero"`
}

// Hints returns the hints; a hint that is not set has the default of the protocol. a may be nil.
// The hints come from the server: a client must not rely on them unless it trusts the server.
//
// Spec: schema ToolAnnotations.
func (a *ToolAnnotations) Hints() (readOnly, destructive, idempotent, openWorld bool) {
	if a == nil {
		a = &ToolAnnotations{}
	}
	value := func(hint *bool, byDefault bool) bool {
		if hint == nil {
			return byDefault
		}
		return *hint
	}
	return value(a.ReadOnly, false), value(a.Destructive, true), value(a.Idempotent, false), value(a.OpenWorld, true)
}

// A CallToolResult is the result of a tool call.
//
// Spec: server/tools, Tool Result; schema CallToolResult.
type CallToolResult struct {
	// Content is the result for the model.
	Content []ContentBlock `json:"content"`
	// StructuredContent is the result for programs: any value that encodes to JSON by the output
	// schema. Nil means absent; json.RawMessage("null") is the value null.
	StructuredContent any `json:"structuredContent,omitzero"`
	// IsError marks a tool error; Content describes it for the model.
	IsError bool `json:"isError,omitzero"`
	Meta    `json:"-"`
	complete
}

// Structured is a result of a tool that contains a value for programs and separate content for the
// model, as the Out of [AddTool] and [CallTool]. It is an ordinary value: a [*CallToolResult] can
// contain the same, but without the output schema of T.
type Structured[T any] struct {
	// Value becomes the structured content. Clients of revisions before 2025-06-18 do not receive
	// it, unless it is their only text.
	Value T
	// Content is the result for the model. Default: the JSON of Value as text.
	Content []ContentBlock
	Meta    Meta
}

// A structuredOutput is a pointer to a Structured.
type structuredOutput interface {
	parts() (value any, content *[]ContentBlock, meta *Meta)
}

func (s *Structured[T]) parts() (any, *[]ContentBlock, *Meta) { return &s.Value, &s.Content, &s.Meta }

func textResult(text string) *CallToolResult {
	r := &struct {
		result  CallToolResult
		content [1]ContentBlock
		text    TextContent
	}{text: TextContent{Text: text}}
	r.content[0], r.result.Content = &r.text, r.content[:]
	return &r.result
}

// appendFields encodes the most frequent result by hand, for speed.
func (r *CallToolResult) appendFields(dst []byte) ([]byte, error) {
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
		if dst, err = appendValue(dst, r.StructuredContent); err != nil {
			return nil, err
		}
	}
	if r.IsError {
		dst = append(dst, `,"isError":true`...)
	}
	return dst, nil
}

// A ListToolsResult is a page of a server's tools.
//
// Spec: server/tools, Listing Tools.
type ListToolsResult struct {
	Tools      []*Tool `json:"tools"`
	NextCursor string  `json:"nextCursor,omitzero"`
	Cache
	Meta `json:"-"`
	complete

	page *listPage[*Tool]
}

// appendValue appends the JSON of v on a single line.
func appendValue(dst []byte, v any) ([]byte, error) {
	b, err := schema.Encode(v)
	if err != nil {
		return nil, err
	}
	return append(dst, b...), nil
}
