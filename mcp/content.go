package mcp

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"time"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A ContentBlock is a piece of content of a tool result, a prompt message or a sampling message:
// [*TextContent], [*ImageContent], [*AudioContent], [*ResourceLink], [*EmbeddedResource] or, in
// sampling, [*ToolUseContent] and [*ToolResultContent].
//
// Spec: server/tools, Tool Result; schema ContentBlock.
type ContentBlock interface {
	// contentType returns the value of the member "type".
	contentType() string
}

// Text returns a TextContent.
func Text(text string) *TextContent { return &TextContent{Text: text} }

// TextContent is text.
type TextContent struct {
	Text        string       `json:"text"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// ImageContent is an image.
type ImageContent struct {
	Data        []byte       `json:"data"`     // the file's bytes; base64 on the wire
	MIMEType    string       `json:"mimeType"` // such as "image/png"
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// AudioContent is audio. Clients of revision 2024-11-05 receive a line of text instead.
type AudioContent struct {
	Data        []byte       `json:"data"`     // the file's bytes; base64 on the wire
	MIMEType    string       `json:"mimeType"` // such as "audio/wav"
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// A ResourceLink is a link to a resource that the client can read. The resource need not be listed.
// Clients of revisions before 2025-06-18 receive its URI as text.
type ResourceLink struct {
	URI         string       `json:"uri"`
	Name        string       `json:"name"`
	Title       string       `json:"title,omitzero"`
	Description string       `json:"description,omitzero"`
	MIMEType    string       `json:"mimeType,omitzero"`
	Size        *int64       `json:"size,omitzero"` // in bytes
	Icons       []Icon       `json:"icons,omitempty"`
	Annotations *Annotations `json:"annotations,omitzero"`
	Meta        Meta         `json:"_meta,omitzero"`
}

// An EmbeddedResource is content that contains the contents of a resource.
type EmbeddedResource struct {
	Resource    *ResourceContents `json:"resource"`
	Annotations *Annotations      `json:"annotations,omitzero"`
	Meta        Meta              `json:"_meta,omitzero"`
}

// Annotations are hints about a piece of content or a resource.
//
// Spec: server/resources, Annotations.
type Annotations struct {
	Audience     []Role     `json:"audience,omitempty"`    // the intended recipients
	Priority     *float64   `json:"priority,omitzero"`     // from 0, least important, to 1, required
	LastModified *time.Time `json:"lastModified,omitzero"` // time of the last change
}

// A Role is the sender or recipient of a message.
type Role string

// Roles.
const (
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
)

func (*TextContent) contentType() string      { return "text" }
func (*ImageContent) contentType() string     { return "image" }
func (*AudioContent) contentType() string     { return "audio" }
func (*ResourceLink) contentType() string     { return "resource_link" }
func (*EmbeddedResource) contentType() string { return "resource" }

func appendContent(dst []byte, c ContentBlock) ([]byte, error) {
	switch c := c.(type) {
	case nil:
		return nil, fmt.Errorf("content is nil")
	case *TextContent:
		if c.Annotations == nil && c.Meta == nil {
			dst = append(dst, `{"type":"text","text":`...)
			return append(jsonscan.AppendQuote(dst, c.Text), '}'), nil
		}
	case *ImageContent:
		if c.Annotations == nil && c.Meta == nil {
			return appendBinary(dst, "image", c.MIMEType, c.Data), nil
		}
	case *AudioContent:
		if c.Annotations == nil && c.Meta == nil {
			return appendBinary(dst, "audio", c.MIMEType, c.Data), nil
		}
	case *EmbeddedResource:
		if c.Resource == nil {
			return nil, fmt.Errorf("invalid content: the embedded resource is nil")
		}
	}
	dst = append(dst, `{"type":"`...)
	dst = append(dst, c.contentType()...)
	dst = append(dst, `",`...)
	dst, err := appendMembers(dst, c)
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

func appendBinary(dst []byte, kind, mimeType string, data []byte) []byte {
	dst = append(dst, `{"type":"`...)
	dst = append(dst, kind...)
	dst = append(dst, `","data":"`...)
	dst = base64.StdEncoding.AppendEncode(dst, data)
	dst = append(dst, `","mimeType":`...)
	return append(jsonscan.AppendQuote(dst, mimeType), '}')
}

type contents []ContentBlock

func (c contents) MarshalJSON() ([]byte, error) {
	dst := []byte{'['}
	var err error
	for i, piece := range c {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendContent(dst, piece); err != nil {
			return nil, err
		}
	}
	return append(dst, ']'), nil
}

func decodeContent(raw json.RawMessage) (ContentBlock, error) {
	d := jsonscan.Descend(raw)
	return nextContent(&d)
}

// nextContent decodes the next piece of content, without reflection if it is text.
func nextContent(d *jsonscan.Descent) (ContentBlock, error) {
	var kind, text, annotations, meta []byte
	at := d.At()
	if d.Into('{') {
		for key, ok := d.Key(); ok; key, ok = d.Key() {
			switch value := d.Value(); string(key) {
			case "type":
				kind = value
			case "text":
				text = value
			case "annotations":
				annotations = value
			case "_meta":
				meta = value
			}
		}
	} else {
		d.Value()
	}
	if string(kind) != `"text"` {
		return decodeOther(kind, d.Since(at))
	}
	c := &TextContent{}
	if text != nil {
		var err error
		if c.Text, err = jsonscan.Unquote(text); err != nil {
			return nil, fmt.Errorf("text content: text: %w", err)
		}
	}
	if err := decodeMember(annotations, &c.Annotations); err != nil {
		return nil, fmt.Errorf("text content: annotations: %w", err)
	}
	if err := decodeMember(meta, &c.Meta); err != nil {
		return nil, fmt.Errorf("text content: _meta: %w", err)
	}
	return c, nil
}

func decodeMember(raw []byte, v any) error {
	if raw == nil {
		return nil
	}
	return jsonv2.Unmarshal(raw, v)
}

func decodeOther(kind, raw []byte) (ContentBlock, error) {
	name, err := jsonscan.Unquote(kind)
	if err != nil {
		return nil, fmt.Errorf("invalid content: no type")
	}
	var c ContentBlock
	switch name {
	case "text":
		c = &TextContent{}
	case "image":
		c = &ImageContent{}
	case "audio":
		c = &AudioContent{}
	case "resource_link":
		c = &ResourceLink{}
	case "resource":
		c = &EmbeddedResource{}
	case "tool_use":
		c = &ToolUseContent{}
	case "tool_result":
		c = &ToolResultContent{}
	default:
		return nil, fmt.Errorf("unknown content type %q", name)
	}
	if err := jsonv2.Unmarshal(raw, c); err != nil {
		return nil, fmt.Errorf("%s content: %w", name, err)
	}
	return c, nil
}
