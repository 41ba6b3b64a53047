package mcp

import (
	"fmt"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A Prompt describes a template for messages that a user picks, such as a slash command.
//
// Spec: server/prompts; schema Prompt.
type Prompt struct {
	Name        string `json:"name"`                 // identifies the prompt
	Title       string `json:"title,omitzero"`       // the name for people; default: Name
	Description string `json:"description,omitzero"` // explains the purpose of the prompt
	// Arguments are the arguments of the prompt. Default: derived from the function's input type.
	Arguments []PromptArgument `json:"arguments,omitempty"`
	Icons     []Icon           `json:"icons,omitempty"`
	Meta      Meta             `json:"_meta,omitzero"`

	// Complete contains functions that suggest values for arguments, by the arguments' names. An
	// argument whose type is an enum is completed by default.
	Complete map[string]CompleteFunc `json:"-"`
}

// A PromptArgument describes an argument of a prompt. Its value is text.
type PromptArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitzero"` // the name for people; default: Name
	Description string `json:"description,omitzero"`
	Required    bool   `json:"required,omitzero"`
}

// A PromptMessage is a message of a prompt.
//
// Spec: server/prompts, PromptMessage.
type PromptMessage struct {
	Role    Role         `json:"role"`    // default: RoleUser
	Content ContentBlock `json:"content"` // text, an image, audio, a resource or a link to a resource
}

// MarshalJSON encodes the message.
func (m PromptMessage) MarshalJSON() ([]byte, error) { return m.append(nil) }

func (m PromptMessage) append(dst []byte) ([]byte, error) {
	switch m.Role {
	case "":
		m.Role = RoleUser
	case RoleUser, RoleAssistant:
	default:
		return nil, fmt.Errorf("role %q, want %q or %q", m.Role, RoleUser, RoleAssistant)
	}
	if err := checkPromptContent(m.Content); err != nil {
		return nil, err
	}
	dst = append(dst, `{"role":"`+string(m.Role)+`","content":`...)
	dst, err := appendContent(dst, m.Content)
	if err != nil {
		return nil, err
	}
	return append(dst, '}'), nil
}

// UnmarshalJSON decodes a message of any content type.
func (m *PromptMessage) UnmarshalJSON(data []byte) error {
	content, ok := jsonscan.Get(data, "content")
	if !ok {
		return fmt.Errorf("prompt message has no content")
	}
	c, err := decodeContent(content)
	if err != nil {
		return fmt.Errorf("prompt message: %w", err)
	}
	*m = PromptMessage{Role: Role(member(data, "role")), Content: c}
	return nil
}

// checkPromptContent rejects content that a prompt cannot contain. Spec: server/prompts, Data
// Types.
func checkPromptContent(c ContentBlock) error {
	mimeType := "none needed"
	switch c := c.(type) {
	case *ToolUseContent, *ToolResultContent:
		return fmt.Errorf("a prompt cannot have content of type %q", c.contentType())
	case *ImageContent:
		mimeType = c.MIMEType
	case *AudioContent:
		mimeType = c.MIMEType
	case *EmbeddedResource:
		if c.Resource == nil || c.Resource.URI == "" {
			return fmt.Errorf("an embedded resource has no URI")
		}
		mimeType = c.Resource.MIMEType
	}
	if mimeType == "" {
		return fmt.Errorf("content of type %q has no MIME type", c.contentType())
	}
	return nil
}

// A GetPromptResult contains the messages of a prompt.
//
// Spec: server/prompts, Getting a Prompt; schema GetPromptResult.
type GetPromptResult struct {
	// Description explains the prompt. Default: Prompt.Description.
	Description string          `json:"description,omitzero"`
	Messages    []PromptMessage `json:"messages"`
	Meta        `json:"-"`
	complete
}

func (r *GetPromptResult) appendFields(dst []byte) ([]byte, error) {
	if r.Description != "" {
		dst = append(dst, `"description":`...)
		dst = append(jsonscan.AppendQuote(dst, r.Description), ',')
	}
	dst = append(dst, `"messages":[`...)
	var err error
	for i, m := range r.Messages {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = m.append(dst); err != nil {
			return nil, fmt.Errorf("message %d: %w", i, err)
		}
	}
	return append(dst, ']'), nil
}

// A ListPromptsResult is a page of a server's prompts.
//
// Spec: server/prompts, Listing Prompts.
type ListPromptsResult struct {
	Prompts    []*Prompt `json:"prompts"`
	NextCursor string    `json:"nextCursor,omitzero"`
	Cache
	Meta `json:"-"`
	complete

	page *listPage[*Prompt]
}
