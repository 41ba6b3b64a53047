package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// CreateMessageParams are the parameters of sampling/createMessage: a conversation that the
// client's model is asked to continue.
//
// Spec: client/sampling; schema CreateMessageRequestParams.
type CreateMessageParams struct {
	// Messages is the conversation so far. A message with tool results must not contain other
	// content; it must follow the message with the tool uses, and answer all of them.
	Messages []SamplingMessage `json:"messages"`
	// MaxTokens is the maximum length of the answer in tokens.
	MaxTokens int `json:"maxTokens"`
	// The client may change or ignore the following fields.
	SystemPrompt     string            `json:"systemPrompt,omitzero"`
	ModelPreferences *ModelPreferences `json:"modelPreferences,omitzero"`
	Temperature      *float64          `json:"temperature,omitzero"`
	StopSequences    []string          `json:"stopSequences,omitempty"`
	Metadata         map[string]any    `json:"metadata,omitzero"` // for the model's provider
	// IncludeContext is "none", "thisServer" or "allServers". The last two are deprecated.
	IncludeContext string `json:"includeContext,omitzero"`
	// Tools are the tools that the model may use in its answer. The caller executes them; they may
	// differ from the tools of the server. Tools and ToolChoice require that the client declares
	// sampling.tools.
	Tools      []*Tool     `json:"tools,omitempty"`
	ToolChoice *ToolChoice `json:"toolChoice,omitzero"`
	Meta       Meta        `json:"_meta,omitzero"`
}

// A ToolChoice controls the model's use of tools.
//
// Spec: schema ToolChoice.
type ToolChoice struct {
	Mode string `json:"mode,omitzero"` // "auto", the default, "required" or "none"
}

// ModelPreferences are the server's priorities for the client's choice of a model.
//
// Spec: client/sampling, Model Preferences.
type ModelPreferences struct {
	// Hints are names of models or model families, in order of preference.
	Hints []ModelHint `json:"hints,omitempty"`
	// Priorities range from 0, unimportant, to 1.
	CostPriority         float64 `json:"costPriority,omitzero"`
	SpeedPriority        float64 `json:"speedPriority,omitzero"`
	IntelligencePriority float64 `json:"intelligencePriority,omitzero"`
}

// A ModelHint is part of the name of a model, such as "sonnet".
type ModelHint struct {
	Name string `json:"name,omitzero"`
}

// A SamplingMessage is a message of a conversation with a model.
//
// Spec: schema SamplingMessage.
type SamplingMessage struct {
	Role    Role
	Content []ContentBlock // of type text, image, audio, [*ToolUseContent] or [*ToolResultContent]
	Meta    Meta
}

// A CreateMessageResult is the answer of the client's model.
//
// Spec: schema CreateMessageResult.
type CreateMessageResult struct {
	Role       Role
	Content    []ContentBlock
	Model      string // the model's name
	StopReason string // "endTurn", "stopSequence", "maxTokens", "toolUse", or a reason of the model's provider
	Meta       Meta
}

// Text returns the concatenated text of the answer, without other content.
func (r *CreateMessageResult) Text() string {
	var b strings.Builder
	for _, c := range r.Content {
		if text, ok := c.(*TextContent); ok {
			b.WriteString(text.Text)
		}
	}
	return b.String()
}

// Sample asks the client's model to continue a conversation. It behaves as [Ask] does. If the user
// refuses, the call ends: the client does not send its request again. The protocol deprecates
// sampling since 2026-07-28, in favour of calling a model directly.
//
// Spec: client/sampling.
func Sample(ctx context.Context, key string, p *CreateMessageParams) (*CreateMessageResult, error) {
	var res *CreateMessageResult
	err := AskAll(ctx, SampleQuestion(key, p, &res))
	return res, err
}

// SampleQuestion returns the question of [Sample], for [AskAll]. The answer is stored in *res.
func SampleQuestion(key string, p *CreateMessageParams, res **CreateMessageResult) Question {
	if err := p.check(); err != nil {
		return Question{key: key, err: err}
	}
	params, err := schema.Encode(p.complete())
	return Question{
		key:     key,
		request: InputRequest{Method: wire.MethodSamplingCreateMessage, Params: params},
		err:     err,
		lacks:   p.lacks,
		accept: func(raw json.RawMessage) error {
			decoded, err := decodeSampleResult(raw)
			if err == nil {
				*res = decoded
			}
			return err
		},
	}
}

// complete returns the params with an input schema for each tool, which the protocol requires.
func (p *CreateMessageParams) complete() *CreateMessageParams {
	completed := *p
	completed.Tools = make([]*Tool, len(p.Tools))
	for i, t := range p.Tools {
		tool := *t
		if tool.InputSchema == nil {
			tool.InputSchema = json.RawMessage(`{"type":"object"}`)
		}
		completed.Tools[i] = &tool
	}
	return &completed
}

func (p *CreateMessageParams) lacks(r *Request) error {
	caps := r.Capabilities()
	if caps.Sampling == nil || !r.has(wire.Sampling) {
		return lacking("sampling", `{"sampling":{}}`)
	}
	if p.usesTools() && (caps.Sampling.Tools == nil || !r.has(wire.SamplingTools)) {
		return lacking("sampling with tools", `{"sampling":{"tools":{}}}`)
	}
	context := p.IncludeContext != "" && p.IncludeContext != contextNone
	if context && caps.Sampling.Context == nil && r.has(wire.SamplingContextCapability) {
		return lacking("sampling with context", `{"sampling":{"context":{}}}`)
	}
	if p.has("audio") && !r.has(wire.AudioContent) {
		return inexpressible(r, "audio content")
	}
	return nil
}

func (p *CreateMessageParams) usesTools() bool {
	return len(p.Tools) > 0 || p.ToolChoice != nil || p.has("tool_use") || p.has("tool_result")
}

func (p *CreateMessageParams) has(contentType string) bool {
	return slices.ContainsFunc(p.Messages, func(m SamplingMessage) bool { return m.count(contentType) > 0 })
}

func decodeSampleResult(raw json.RawMessage) (*CreateMessageResult, error) {
	var r CreateMessageResult
	if err := jsonv2.Unmarshal(raw, &r); err != nil {
		return nil, malformed("a sampling result has a role, content and model")
	}
	for _, c := range r.Content {
		if err := checkSampled(c); err != nil {
			return nil, malformed("a sampling result: %v", err)
		}
	}
	switch {
	case r.Role != RoleUser && r.Role != RoleAssistant:
		return nil, malformed("the role of a sampling result is user or assistant")
	case r.Content == nil:
		return nil, malformed("a sampling result has no content")
	case r.Model == "":
		return nil, malformed("a sampling result names no model")
	}
	return &r, nil
}

// messageFields and resultFields are the JSON of a message and of an answer.
type (
	messageFields struct {
		Role    Role   `json:"role"`
		Content blocks `json:"content"`
		Meta    Meta   `json:"_meta,omitzero"`
	}
	resultFields struct {
		Role       Role   `json:"role"`
		Content    blocks `json:"content"`
		Model      string `json:"model"`
		StopReason string `json:"stopReason,omitzero"`
		Meta       Meta   `json:"_meta,omitzero"`
	}
)

// MarshalJSON encodes the message. A single piece of content is not wrapped in an array, for older
// revisions.
func (m SamplingMessage) MarshalJSON() ([]byte, error) {
	return schema.Encode(messageFields{m.Role, m.Content, m.Meta})
}

// UnmarshalJSON decodes a message.
func (m *SamplingMessage) UnmarshalJSON(raw []byte) error {
	var f messageFields
	err := jsonv2.Unmarshal(raw, &f)
	*m = SamplingMessage{f.Role, f.Content, f.Meta}
	return err
}

// MarshalJSON encodes the answer. A single piece of content is not wrapped in an array, for older
// revisions.
func (r CreateMessageResult) MarshalJSON() ([]byte, error) {
	return schema.Encode(resultFields{r.Role, r.Content, r.Model, r.StopReason, r.Meta})
}

// UnmarshalJSON decodes an answer.
func (r *CreateMessageResult) UnmarshalJSON(raw []byte) error {
	var f resultFields
	err := jsonv2.Unmarshal(raw, &f)
	*r = CreateMessageResult{f.Role, f.Content, f.Model, f.StopReason, f.Meta}
	return err
}

// blocks is content that is encoded as an array unless it is a single piece.
type blocks []ContentBlock

// MarshalJSON encodes the content.
func (b blocks) MarshalJSON() ([]byte, error) {
	if len(b) == 1 {
		return appendContent(nil, b[0])
	}
	return contents(b).MarshalJSON()
}

// UnmarshalJSON decodes a piece of content or an array.
func (b *blocks) UnmarshalJSON(raw []byte) error {
	*b = blocks{}
	switch jsonscan.Kind(raw) {
	case '{':
		c, err := decodeContent(raw)
		*b = blocks{c}
		return err
	case '[':
		for piece := range jsonscan.Elements(raw) {
			c, err := decodeContent(piece)
			if err != nil {
				return fmt.Errorf("content %d: %w", len(*b), err)
			}
			*b = append(*b, c)
		}
		return nil
	}
	return errors.New("content is neither an object nor a list")
}

// A ToolUseContent is a request of the model to call a tool. It is content of an assistant's
// message.
//
// Spec: client/sampling (2025-11-25, 2026-07-28), Sampling with Tools; schema ToolUseContent.
type ToolUseContent struct {
	ID    string          `json:"id"`    // of this use; ToolResultContent.ToolUseID repeats it
	Name  string          `json:"name"`  // of the tool
	Input json.RawMessage `json:"input"` // the arguments, a JSON object
	Meta  Meta            `json:"_meta,omitzero"`
}

// A ToolResultContent is the result of a [ToolUseContent]. It is content of a user's message.
//
// Spec: client/sampling (2025-11-25, 2026-07-28), Message Content Constraints; schema
// ToolResultContent.
type ToolResultContent struct {
	ToolUseID         string
	Content           []ContentBlock
	StructuredContent any // any value that encodes to JSON; nil means absent. Decoded, it is a json.RawMessage.
	IsError           bool
	Meta              Meta
}

func (*ToolUseContent) contentType() string    { return "tool_use" }
func (*ToolResultContent) contentType() string { return "tool_result" }

// MarshalJSON encodes the result without the member "type".
func (r ToolResultContent) MarshalJSON() ([]byte, error) {
	return schema.Encode(struct {
		ToolUseID         string   `json:"toolUseId"`
		Content           contents `json:"content"`
		StructuredContent any      `json:"structuredContent,omitzero"`
		IsError           bool     `json:"isError,omitzero"`
		Meta              Meta     `json:"_meta,omitzero"`
	}{r.ToolUseID, r.Content, r.StructuredContent, r.IsError, r.Meta})
}

// UnmarshalJSON decodes a result.
func (r *ToolResultContent) UnmarshalJSON(raw []byte) error {
	var f struct {
		ToolUseID         string          `json:"toolUseId"`
		Content           blocks          `json:"content"`
		StructuredContent json.RawMessage `json:"structuredContent"`
		IsError           bool            `json:"isError"`
		Meta              Meta            `json:"_meta"`
	}
	if err := jsonv2.Unmarshal(raw, &f); err != nil {
		return err
	}
	*r = ToolResultContent{ToolUseID: f.ToolUseID, Content: f.Content, IsError: f.IsError, Meta: f.Meta}
	if f.StructuredContent != nil {
		r.StructuredContent = f.StructuredContent
	}
	return nil
}

// Values of CreateMessageParams that are checked.
const (
	contextNone       = "none"
	contextThisServer = "thisServer"
	contextAllServers = "allServers"

	toolsAuto     = "auto"
	toolsRequired = "required"
	toolsNone     = "none"
)

func (p *CreateMessageParams) check() error {
	if p == nil {
		return errors.New("the params are nil")
	}
	switch p.IncludeContext {
	case "", contextNone, contextThisServer, contextAllServers:
	default:
		return fmt.Errorf("IncludeContext is %q, want %q, %q or %q",
			p.IncludeContext, contextNone, contextThisServer, contextAllServers)
	}
	switch {
	case p.MaxTokens <= 0:
		return fmt.Errorf("MaxTokens is %d, want a positive number", p.MaxTokens)
	case len(p.Messages) == 0:
		return errors.New("the conversation has no messages")
	}
	if err := p.checkTools(); err != nil {
		return err
	}
	if err := p.ModelPreferences.check(); err != nil {
		return err
	}
	return checkConversation(p.Messages)
}

func (p *CreateMessageParams) checkTools() error {
	if p.ToolChoice != nil {
		switch p.ToolChoice.Mode {
		case "", toolsAuto, toolsRequired, toolsNone:
		default:
			return fmt.Errorf("ToolChoice.Mode is %q, want %q, %q or %q",
				p.ToolChoice.Mode, toolsAuto, toolsRequired, toolsNone)
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

// checkConversation checks rules of model providers: tool results are in a message of their own,
// which answers all tool uses of the message before. Spec: client/sampling (2025-11-25,
// 2026-07-28), Message Content Constraints.
func checkConversation(messages []SamplingMessage) error {
	var open map[string]bool // the tool uses of the message before
	for i, m := range messages {
		if err := m.check(open); err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		open = nil
		for _, c := range m.Content {
			if use, ok := c.(*ToolUseContent); ok {
				put(&open, use.ID, true)
			}
		}
	}
	if len(open) > 0 {
		return errors.New("the last message has a tool use without a result")
	}
	return nil
}

// check validates a message; open contains the tool uses that it must answer.
func (m *SamplingMessage) check(open map[string]bool) error {
	switch {
	case m.Role != RoleUser && m.Role != RoleAssistant:
		return fmt.Errorf("the role is %q, want %q or %q", m.Role, RoleUser, RoleAssistant)
	case len(m.Content) == 0:
		return errors.New("the message has no content")
	}
	for _, c := range m.Content {
		if err := checkSampled(c); err != nil {
			return err
		}
		if m.Role != RoleAssistant && c.contentType() == "tool_use" {
			return errors.New("tool use in a message of the user")
		}
	}
	return m.checkResults(open)
}

// checkResults returns an error unless the message contains one result for each open tool use, or
// other content.
func (m *SamplingMessage) checkResults(open map[string]bool) error {
	results := m.count("tool_result")
	switch {
	case results == 0 && len(open) > 0:
		return errors.New("the message has no results for the tool uses before it")
	case results == 0:
		return nil
	case m.Role != RoleUser:
		return errors.New("tool results in a message of the assistant")
	case results != len(m.Content):
		return errors.New("the message mixes tool results with other content")
	case results != len(open):
		return fmt.Errorf("the message has %d results for %d tool uses", results, len(open))
	}
	answered := map[string]bool{}
	for _, c := range m.Content {
		id := c.(*ToolResultContent).ToolUseID
		if !open[id] || answered[id] {
			return fmt.Errorf("invalid tool result: tool use %q does not exist or has a result already", id)
		}
		answered[id] = true
	}
	return nil
}

func (m *SamplingMessage) count(contentType string) (n int) {
	for _, c := range m.Content {
		if c != nil && c.contentType() == contentType {
			n++
		}
	}
	return n
}

// Spec: schema SamplingMessageContentBlock.
func checkSampled(c ContentBlock) error {
	switch c := c.(type) {
	case *TextContent, *ImageContent, *AudioContent:
		return nil
	case *ToolUseContent:
		if c.ID == "" || c.Name == "" || jsonscan.Kind(c.Input) != '{' {
			return errors.New("a tool use has an id, a name and an object as input")
		}
		return nil
	case *ToolResultContent:
		if c.ToolUseID == "" {
			return errors.New("a tool result names no tool use")
		}
		return nil
	case nil:
		return errors.New("content is nil")
	}
	return fmt.Errorf("invalid content: sampling does not allow type %q", c.contentType())
}
