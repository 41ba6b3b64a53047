package mcp

import (
	stdjson "encoding/json"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A ToolUse is a model's wish to call a tool. It stands in what an assistant says.
//
// Spec: client/sampling (2025-11-25, 2026-07-28), Sampling with Tools; schema ToolUseContent.
type ToolUse struct {
	ID    string             `json:"id"`    // names this use; its result repeats it
	Name  string             `json:"name"`  // of the tool
	Input stdjson.RawMessage `json:"input"` // the arguments, a JSON object
	Meta  Meta               `json:"_meta,omitzero"`
}

// A ToolUseResult is what a tool gave for a [ToolUse]. It stands in what a user says.
//
// Spec: client/sampling (2025-11-25, 2026-07-28), Message Content Constraints; schema ToolResultContent.
type ToolUseResult struct {
	ToolUseID         string
	Content           []Content
	StructuredContent any // any value that encodes to JSON; nil is none. Decoded, it is a json.RawMessage.
	IsError           bool
	Meta              Meta
}

func (*ToolUse) contentType() string       { return "tool_use" }
func (*ToolUseResult) contentType() string { return "tool_result" }

// MarshalJSON encodes the result without the member "type".
func (r ToolUseResult) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		ToolUseID         string   `json:"toolUseId"`
		Content           contents `json:"content"`
		StructuredContent any      `json:"structuredContent,omitzero"`
		IsError           bool     `json:"isError,omitzero"`
		Meta              Meta     `json:"_meta,omitzero"`
	}{r.ToolUseID, r.Content, r.StructuredContent, r.IsError, r.Meta}, deterministic)
}

// UnmarshalJSON decodes a result.
func (r *ToolUseResult) UnmarshalJSON(raw []byte) error {
	var f struct {
		ToolUseID         string             `json:"toolUseId"`
		Content           blocks             `json:"content"`
		StructuredContent stdjson.RawMessage `json:"structuredContent"`
		IsError           bool               `json:"isError"`
		Meta              Meta               `json:"_meta"`
	}
	if err := json.Unmarshal(raw, &f); err != nil {
		return err
	}
	*r = ToolUseResult{ToolUseID: f.ToolUseID, Content: f.Content, IsError: f.IsError, Meta: f.Meta}
	if f.StructuredContent != nil {
		r.StructuredContent = f.StructuredContent
	}
	return nil
}

// Values of SampleParams that are checked.
const (
	contextNone       = "none"
	contextThisServer = "thisServer"
	contextAllServers = "allServers"

	toolsAuto     = "auto"
	toolsRequired = "required"
	toolsNone     = "none"
)

// check holds the params to what a client may be asked.
func (p *SampleParams) check() error {
	if p == nil {
		return errors.New("the params are nil")
	}
	switch p.IncludeContext {
	case "", contextNone, contextThisServer, contextAllServers:
	default:
		return fmt.Errorf("IncludeContext is %q, want %q, %q or %q", p.IncludeContext, contextNone, contextThisServer, contextAllServers)
	}
	switch {
	case p.MaxTokens <= 0:
		return fmt.Errorf("MaxTokens is %d, want a positive number", p.MaxTokens)
	case len(p.Messages) == 0:
		return errors.New("there are no messages")
	}
	if err := p.checkTools(); err != nil {
		return err
	}
	if err := p.ModelPreferences.check(); err != nil {
		return err
	}
	return checkConversation(p.Messages)
}

func (p *SampleParams) checkTools() error {
	if p.ToolChoice != nil {
		switch p.ToolChoice.Mode {
		case "", toolsAuto, toolsRequired, toolsNone:
		default:
			return fmt.Errorf("ToolChoice.Mode is %q, want %q, %q or %q", p.ToolChoice.Mode, toolsAuto, toolsRequired, toolsNone)
		}
	}
	for i, t := range p.Tools {
		if t == nil || t.Name == "" {
			return fmt.Errorf("tool %d has no name", i)
		}
	}
	return nil
}

func (m *ModelPreferences) check() error {
	if m == nil {
		return nil
	}
	for _, v := range []float64{m.CostPriority, m.SpeedPriority, m.IntelligencePriority} {
		if !(v >= 0 && v <= 1) { // false for NaN
			return fmt.Errorf("a model preference is %v, want 0 to 1", v)
		}
	}
	return nil
}

// checkConversation holds messages to the rules that models' providers have: tool results stand alone, and answer the
// tool uses of the message before, all of them.
//
// Spec: client/sampling (2025-11-25, 2026-07-28), Message Content Constraints.
func checkConversation(messages []SampleMessage) error {
	var open map[string]bool // the tool uses of the message before
	for i, m := range messages {
		if err := m.check(open); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		open = nil
		for _, c := range m.Content {
			if use, ok := c.(*ToolUse); ok {
				put(&open, use.ID, true)
			}
		}
	}
	if len(open) > 0 {
		return errors.New("the last message uses a tool, and no result follows")
	}
	return nil
}

// check looks at one message; open are the tool uses that it has to answer.
func (m *SampleMessage) check(open map[string]bool) error {
	switch {
	case m.Role != RoleUser && m.Role != RoleAssistant:
		return fmt.Errorf("the role is %q, want %q or %q", m.Role, RoleUser, RoleAssistant)
	case len(m.Content) == 0:
		return errors.New("there is no content")
	}
	for _, c := range m.Content {
		if err := checkSampled(c); err != nil {
			return err
		}
		if m.Role != RoleAssistant && c.contentType() == "tool_use" {
			return errors.New("only an assistant uses tools")
		}
	}
	return m.checkResults(open)
}

// checkResults sees to it that the message answers each open tool use once, and has nothing else to say if it answers
// any.
func (m *SampleMessage) checkResults(open map[string]bool) error {
	results := m.count("tool_result")
	switch {
	case results == 0 && len(open) > 0:
		return errors.New("it does not answer the tool uses before it")
	case results == 0:
		return nil
	case m.Role != RoleUser:
		return errors.New("only a user gives results of tools")
	case results != len(m.Content):
		return errors.New("it mixes results of tools with other content")
	case results != len(open):
		return fmt.Errorf("it has %d results for %d tool uses", results, len(open))
	}
	answered := map[string]bool{}
	for _, c := range m.Content {
		id := c.(*ToolUseResult).ToolUseID
		if !open[id] || answered[id] {
			return fmt.Errorf("the result for tool use %q answers none, or one that is answered already", id)
		}
		answered[id] = true
	}
	return nil
}

// count returns the number of pieces of content of a type.
func (m *SampleMessage) count(contentType string) (n int) {
	for _, c := range m.Content {
		if c != nil && c.contentType() == contentType {
			n++
		}
	}
	return n
}

// checkSampled holds one piece of content to what may stand in a conversation with a model.
//
// Spec: schema SamplingMessageContentBlock.
func checkSampled(c Content) error {
	switch c := c.(type) {
	case *TextContent, *ImageContent, *AudioContent:
		return nil
	case *ToolUse:
		if c.ID == "" || c.Name == "" || jsonscan.Kind(c.Input) != '{' {
			return errors.New("a tool use has an id, a name and an object as input")
		}
		return nil
	case *ToolUseResult:
		if c.ToolUseID == "" {
			return errors.New("a tool result names no tool use")
		}
		return nil
	case nil:
		return errors.New("content is nil")
	}
	return fmt.Errorf("%s content has no place in sampling", c.contentType())
}
