package mcp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A toolFunc calls a tool with validated arguments.
type toolFunc func(ctx context.Context, args json.RawMessage) (*CallToolResult, error)

type toolEntry struct {
	name         string
	call         toolFunc
	input        *schema.Schema
	output       *schema.Schema // nil when the tool declares no structured result
	headerParams []HeaderParam
}

// AddTool registers a function as a tool and returns its [Registration].
//
// In is a struct whose fields are the arguments; struct{} for a tool without any. Their JSON Schema
// is derived from the type: names and optional fields from `json` tags, and descriptions, enums,
// ranges and defaults from `jsonschema` tags; see the package documentation. If Tool.InputSchema is
// set, it takes precedence, and In may also be a map or json.RawMessage. The arguments are
// validated and completed by defaults before the function is called. Invalid arguments become a
// tool error that the model can correct; clients of 2025-06-18 and before get the error -32602.
//
// Out is the result: a string becomes text; [ContentBlock], []ContentBlock and [*CallToolResult]
// are unchanged; any other type becomes structured content with an output schema, and its JSON as
// text. A server whose tool returns or has returned an [*EmbeddedResource] declares the resources
// capability, also if it has no other resources.
//
// An error of the function becomes a tool error: the model sees its whole text, which must not
// contain secrets or internal details. An [*Error], also a wrapped one, becomes a protocol error,
// of which the client sees code, message and data, and nothing that wraps them. A panic is logged
// and becomes "internal error". The context ends when the client cancels or disconnects.
//
// AddTool panics if the tool is invalid: a bad name, a type without a schema, or a name that is in
// use.
//
// Spec: server/tools.
func AddTool[In, Out any](s *Server, t *Tool, f func(context.Context, In) (Out, error)) *Registration[Tool] {
	if t == nil || f == nil {
		panic("mcp: AddTool: the tool or its function is nil")
	}
	bound, err := bindTool(t, f)
	if err != nil {
		panic(fmt.Sprintf("mcp: AddTool %q: %v", t.Name, err))
	}
	if reflect.TypeFor[Out]() == reflect.TypeFor[*EmbeddedResource]() {
		s.resources.ever.Store(true)
	}
	return register(&s.tools, t.Name, bound.tool, bound.entry, prepareTool)
}

func prepareTool(t *Tool, entry toolEntry) (toolEntry, error) {
	if t.Name != entry.name {
		return entry, fmt.Errorf("the name cannot become %q", t.Name)
	}
	if err := checkToolName(t.Name); err != nil {
		return entry, err
	}
	var err error
	if entry.input, err = recompile(entry.input, t.InputSchema); err != nil {
		return entry, fmt.Errorf("input schema: %w", err)
	}
	if entry.input.RootType() != "object" {
		return entry, fmt.Errorf(`input schema: its type is %q, want "object"`, entry.input.RootType())
	}
	if entry.headerParams, err = headerParams(entry.input); err != nil {
		return entry, fmt.Errorf("input schema: %w", err)
	}
	if t.OutputSchema == nil {
		entry.output = nil
	} else if entry.output, err = recompile(entry.output, t.OutputSchema); err != nil {
		return entry, fmt.Errorf("output schema: %w", err)
	}
	return entry, nil
}

// recompile compiles a schema unless old is its compiled form.
func recompile(old *schema.Schema, raw json.RawMessage) (*schema.Schema, error) {
	if old != nil && string(old.JSON()) == string(raw) {
		return old, nil
	}
	return schema.Compile(raw)
}

// checkToolName validates a name by the rules of all revisions. Spec: server/tools (2025-11-25,
// 2026-07-28), Tool Names.
func checkToolName(name string) error {
	const maxLen = 128
	if name == "" || len(name) > maxLen {
		return fmt.Errorf("the name has %d characters, want 1 to %d", len(name), maxLen)
	}
	for _, c := range []byte(name) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '_', c == '-', c == '.':
		default:
			return fmt.Errorf("the name holds %q, want only A-Z a-z 0-9 _ - and dot", c)
		}
	}
	return nil
}

func headerParams(s *schema.Schema) ([]HeaderParam, error) {
	headers, err := s.Headers()
	if err != nil {
		return nil, err
	}
	var params []HeaderParam
	for _, h := range headers {
		params = append(params, HeaderParam{Header: h.Name, Path: h.Path, Type: h.Type})
	}
	return params, nil
}

func (s *Server) listTools(ctx context.Context, req *Request) (Result, error) {
	if !s.tools.ever.Load() {
		return nil, methodNotFound(req.Method)
	}
	page, next, err := paginate(ctx, s, &s.tools, req)
	if err != nil {
		return nil, err
	}
	tools := page.itemsFor(s, req)
	if !req.has(wire.ToolExecution) {
		tools = withoutExecution(tools)
	}
	return &ListToolsResult{Tools: tools, NextCursor: next, page: page, Cache: s.opts.Cache}, nil
}

// withoutExecution returns tools without their execution, which the revision of the request does
// not define. It does not change its argument.
func withoutExecution(tools []*Tool) []*Tool {
	hasExecution := func(t *Tool) bool { return t.Execution != nil }
	if !slices.ContainsFunc(tools, hasExecution) {
		return tools
	}
	tools = slices.Clone(tools)
	for i, t := range tools {
		if hasExecution(t) {
			copied := *t
			copied.Execution = nil
			tools[i] = &copied
		}
	}
	return tools
}

func (s *Server) callTool(ctx context.Context, c *call, name string, args json.RawMessage) (Result, error) {
	if !s.tools.ever.Load() {
		return nil, methodNotFound(c.req.Method)
	}
	e, ok := s.tools.lookup(name)
	if !ok || !s.Visible(ctx, toolFeature(e.value)) {
		return nil, Errorf(CodeInvalidParams, "unknown tool %.128q", name)
	}
	if args == nil {
		args = json.RawMessage("{}")
	}
	args, err := completeArguments(e.extra.input, args)
	if err != nil {
		return badArguments(c, err)
	}
	res, err := e.extra.call(ctx, args)
	if err != nil {
		return toolFailure(c, ofHandler(err))
	}
	if !s.offersResources() && embedsResource(res.Content) {
		s.resources.ever.Store(true)
	}
	if e.extra.output != nil && !res.IsError {
		return s.checkStructured(c, e, res)
	}
	return res, nil
}

// embedsResource reports whether the content has an embedded resource. Servers with such tools
// declare the capability. Spec: server/tools, Embedded Resources.
func embedsResource(content []ContentBlock) bool {
	return slices.ContainsFunc(content, func(c ContentBlock) bool { _, ok := c.(*EmbeddedResource); return ok })
}

// completeArguments adds defaults to arguments and validates them. Models send null for optional
// arguments: if the validation fails, nulls that the schema does not allow are dropped.
func completeArguments(s *schema.Schema, args json.RawMessage) (json.RawMessage, error) {
	completed := s.ApplyDefaults(args)
	err := s.Validate(completed)
	if err == nil {
		return completed, nil
	}
	given := s.DropNulls(args)
	if len(given) == len(args) {
		return completed, err
	}
	completed = s.ApplyDefaults(given)
	return completed, s.Validate(completed)
}

// badArguments returns the result of a call with invalid arguments: a tool error in revisions that
// define it so, a protocol error in older ones. Spec: server/tools (2025-11-25, 2026-07-28), Error
// Handling.
func badArguments(c *call, err error) (Result, error) {
	if c.req.has(wire.ToolArgumentErrors) {
		return failedTool(err), nil
	}
	return nil, &Error{Code: CodeInvalidParams, Message: err.Error()}
}

func toolFailure(c *call, err error) (Result, error) {
	if asError(err) != nil || cancelled(c, err) {
		return nil, err
	}
	if bad, ok := err.(*callError); ok {
		if bad.ofArguments {
			return badArguments(c, bad.error)
		}
		return nil, bad.error
	}
	return failedTool(err), nil
}

func failedTool(err error) *CallToolResult {
	res := textResult(err.Error())
	res.IsError = true
	return res
}

// checkStructured validates a result by the tool's output schema; an error is the server's. Spec:
// server/tools, Output Schema.
func (s *Server) checkStructured(c *call, e *featureEntry[*Tool, *toolEntry], res *CallToolResult) (Result, error) {
	if res.StructuredContent == nil {
		if c.asked() {
			return res, nil // the run was not completed
		}
		return nil, fmt.Errorf("tool %q: no structured content, which its output schema requires", e.name)
	}
	raw, ok := res.StructuredContent.(json.RawMessage)
	if !ok {
		var err error
		if raw, err = schema.Encode(res.StructuredContent); err != nil {
			return nil, fmt.Errorf("tool %q: encode structured content: %w", e.name, err)
		}
		copied := *res
		copied.StructuredContent = raw
		res = &copied
	}
	if err := e.extra.output.Validate(raw); err != nil {
		return nil, fmt.Errorf("tool %q: structured content against the output schema: %w", e.name, err)
	}
	return res, nil
}

type boundTool struct {
	tool  *Tool // a copy of the caller's, with its schemas filled in
	entry toolEntry
}

func bindTool[In, Out any](t *Tool, f func(context.Context, In) (Out, error)) (*boundTool, error) {
	copied := *t
	b := &boundTool{tool: &copied, entry: toolEntry{name: t.Name}}
	if err := b.inferInput(reflect.TypeFor[In]()); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	convert, err := bindOutput[Out](b)
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	if b.tool.OutputSchema != nil && !mayBeStructured[Out]() {
		return nil, fmt.Errorf("output: type %s cannot be structured content, which OutputSchema requires",
			reflect.TypeFor[Out]())
	}
	decoder := schema.NewDecoder(reflect.TypeFor[In]())
	b.entry.call = func(ctx context.Context, args json.RawMessage) (*CallToolResult, error) {
		var in In
		if err := decodeArguments(decoder, args, &in); err != nil {
			return nil, &callError{err, true}
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		res, err := convert(out)
		if err != nil {
			return nil, &callError{err, false}
		}
		return res, nil
	}
	return b, nil
}

// A callError is an error before or after the tool's function: arguments that match the schema but
// cannot be decoded, such as a number that overflows its field, or a result that cannot be sent.
type callError struct {
	error
	ofArguments bool
}

// decodeArguments decodes arguments into v, a pointer to the function's input.
func decodeArguments(d *schema.Decoder, args json.RawMessage, v any) error {
	if raw, ok := v.(*json.RawMessage); ok {
		*raw = append(json.RawMessage(nil), args...) // the bytes of the request are valid during the call only
		return nil
	}
	return d.Decode(args, v)
}

// inferInput derives the input schema from the type unless one is set.
func (b *boundTool) inferInput(in reflect.Type) error {
	if b.tool.InputSchema != nil {
		return nil
	}
	if in.Kind() != reflect.Struct && in.Kind() != reflect.Map {
		return fmt.Errorf("%s: want a struct or a map, or a Tool.InputSchema", in)
	}
	s, err := schema.For(in)
	if err != nil {
		return err
	}
	b.tool.InputSchema, b.entry.input = s.JSON(), s
	return nil
}

// bindOutput returns the function that converts the output of the tool's function to a result.
func bindOutput[Out any](b *boundTool) (func(Out) (*CallToolResult, error), error) {
	var out Out
	switch any(&out).(type) {
	case *string:
		return func(v Out) (*CallToolResult, error) { return textResult(any(v).(string)), nil }, nil
	case *ContentBlock:
		return contentResult[Out], nil
	case *[]ContentBlock:
		return func(v Out) (*CallToolResult, error) {
			return &CallToolResult{Content: any(v).([]ContentBlock)}, nil
		}, nil
	case **CallToolResult:
		return func(v Out) (*CallToolResult, error) {
			if res := any(v).(*CallToolResult); res != nil {
				return res, nil
			}
			return nil, errors.New("the tool returned a nil result")
		}, nil
	}
	if reflect.TypeFor[Out]().Implements(reflect.TypeFor[ContentBlock]()) {
		return contentResult[Out], nil
	}
	if err := b.inferOutput(reflect.TypeFor[Out]()); err != nil {
		return nil, err
	}
	declared := b.entry.output
	return func(v Out) (*CallToolResult, error) { return structured(v, declared) }, nil
}

func mayBeStructured[Out any]() bool {
	var out Out
	switch any(&out).(type) {
	case *string, *ContentBlock, *[]ContentBlock:
		return false
	}
	return !reflect.TypeFor[Out]().Implements(reflect.TypeFor[ContentBlock]())
}

func contentResult[Out any](v Out) (*CallToolResult, error) {
	c, ok := any(v).(ContentBlock)
	if !ok {
		return nil, errors.New("the tool returned nil content")
	}
	return &CallToolResult{Content: []ContentBlock{c}}, nil
}

// inferOutput derives the output schema unless one is set. A type that can be anything has none.
func (b *boundTool) inferOutput(out reflect.Type) error {
	if b.tool.OutputSchema != nil || out.Kind() == reflect.Interface || out == reflect.TypeFor[json.RawMessage]() {
		return nil
	}
	s, err := schema.For(out)
	if err != nil {
		return err
	}
	b.tool.OutputSchema, b.entry.output = s.JSON(), s
	return nil
}

// structured returns a result with structured content, and its JSON as text. Members that are null
// and not allowed by the derived schema, which may be nil, are dropped. Spec: server/tools,
// Structured Content.
func structured(v any, derived *schema.Schema) (*CallToolResult, error) {
	raw, err := schema.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("encode the tool's result: %w", err)
	}
	if derived != nil {
		raw = derived.DropNulls(raw)
	}
	res := textResult(string(raw))
	res.StructuredContent = json.RawMessage(raw)
	return res, nil
}
