package mcp

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A toolFunc calls a tool with validated arguments.
type toolFunc func(ctx context.Context, args json.RawMessage, e *toolEntry) (*CallToolResult, error)

type toolEntry struct {
	name         string
	call         toolFunc
	decoder      *schema.Decoder
	content      bool // the function returns a ContentBlock
	input        *schema.Schema
	output       *schema.Schema // nil when the tool declares no structured result
	headerParams []driver.HeaderParam
}

// AddTool registers a function as a tool and returns its [Registration].
//
// In is a struct, or a pointer to a struct, whose fields are the arguments; struct{} for a tool
// without arguments. Their JSON Schema is derived from the type: names and optional fields from
// `json` tags, and descriptions, enums, ranges and defaults from `jsonschema` tags; see the package
// documentation. In may also be any, for any arguments, or a map. If Tool.InputSchema is set, it
// takes precedence, and In may also be json.RawMessage. The arguments are validated and completed
// by defaults before the function is called. Invalid arguments become a tool error that the model
// can correct; clients of 2025-06-18 and before receive the error -32602.
//
// Out is the result: a string becomes text; [ContentBlock], []ContentBlock and [*CallToolResult]
// are unchanged; any other type becomes structured content with an output schema, and its JSON as
// text. [Structured] replaces that text. A server whose tool may return or once returned an
// [*EmbeddedResource] declares the resources capability, even without other resources.
//
// An error of the function becomes a tool error: the model sees its whole text, which must not
// contain secrets or internal details. An [*Error], also a wrapped one, becomes a protocol error:
// the client sees its code, message and data, but not the text that wraps it. A panic is logged and
// becomes "internal error". The context ends when the client cancels or disconnects.
//
// AddTool panics if the tool is invalid: a bad name, a type without a schema, or a name that is in
// use. See [SetTool] for tools that are not known when the program is written.
//
// Spec: server/tools.
func AddTool[In, Out any](s *Server, t *Tool, f func(context.Context, In) (Out, error)) *Registration[Tool] {
	return must(s.addTool(t, bindTool(f), refuseTaken))
}

// SetTool registers a function as a tool like [AddTool], but returns an error where AddTool panics,
// and replaces an existing tool of that name. It is for tools from a file, an API description or
// another server: Tool.InputSchema is given, In is json.RawMessage and Out is [*CallToolResult].
// [Registered] finds the tool by its name again. An invalid tool is not registered and leaves the
// existing tool in place. Calls of a replaced tool continue; its [Registration] no longer applies.
func SetTool[In, Out any](s *Server, t *Tool, f func(context.Context, In) (Out, error)) (*Registration[Tool], error) {
	return s.addTool(t, bindTool(f), replaceTaken)
}

// bindTool is compiled for every tool, so it is short.
func bindTool[In, Out any](f func(context.Context, In) (Out, error)) binding[toolFunc] {
	call := func(ctx context.Context, args json.RawMessage, e *toolEntry) (*CallToolResult, error) {
		var in In
		if err := e.decode(args, &in); err != nil {
			return nil, err
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		switch p := any(&out).(type) {
		case *string:
			return textResult(*p), nil
		case *[]ContentBlock:
			return &CallToolResult{Content: *p}, nil
		case **CallToolResult:
			return *p, nil
		}
		returned := out // only this copy is allocated
		return e.result(&returned)
	}
	return binding[toolFunc]{reflect.TypeFor[In](), reflect.TypeFor[Out](), f == nil, call}
}

func (s *Server) addTool(given *Tool, b binding[toolFunc], taken ifTaken) (*Registration[Tool], error) {
	if given == nil || b.missing {
		return nil, errors.New("mcp: the tool or its function is nil")
	}
	t := *given
	entry := toolEntry{name: t.Name, call: b.call, decoder: schema.NewDecoder(b.in)}
	if err := entry.infer(&t, b.in, b.out); err != nil {
		return nil, fmt.Errorf("mcp: tool %.128q: %w", t.Name, err)
	}
	r, err := register(&s.tools, t.Name, &t, entry, prepareTool, taken)
	if err == nil && b.out == reflect.TypeFor[*EmbeddedResource]() {
		s.resources.ever.Store(true)
	}
	return r, err
}

// infer derives the schemas that are not set from the types of the function. It leaves the output
// schema empty if the result can be of any type.
func (e *toolEntry) infer(t *Tool, in, out reflect.Type) (err error) {
	if t.InputSchema == nil {
		if e.input, err = inputSchema(in); err != nil {
			return fmt.Errorf("input: %w", err)
		}
		t.InputSchema = e.input.JSON()
	}
	e.content = out.Implements(reflect.TypeFor[ContentBlock]())
	if e.content || out == reflect.TypeFor[string]() || out == reflect.TypeFor[[]ContentBlock]() {
		if t.OutputSchema != nil {
			return fmt.Errorf("output: type %s cannot be structured content, which OutputSchema requires", out)
		}
		return nil
	}
	if o, ok := reflect.New(out).Interface().(structuredOutput); ok {
		value, _, _ := o.parts()
		out = reflect.TypeOf(value).Elem()
	}
	switch {
	case t.OutputSchema != nil, out.Kind() == reflect.Interface,
		out == reflect.TypeFor[json.RawMessage](), out == reflect.TypeFor[*CallToolResult]():
		return nil
	}
	if e.output, err = schema.For(out); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	t.OutputSchema = e.output.JSON()
	return nil
}

func inputSchema(in reflect.Type) (*schema.Schema, error) {
	switch {
	case isStruct(in), in.Kind() == reflect.Map:
		return schema.For(in)
	case in == reflect.TypeFor[any]():
		return schema.Compile(json.RawMessage(`{"type":"object"}`))
	}
	return nil, fmt.Errorf("%s: want a struct, a map or any, or a Tool.InputSchema", in)
}

// isStruct reports whether a type is a struct or a pointer to a struct.
func isStruct(t reflect.Type) bool {
	return t.Kind() == reflect.Struct || t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}

func prepareTool(t *Tool, entry *toolEntry) error {
	if t.Name != entry.name {
		return fmt.Errorf("the name cannot become %q", t.Name)
	}
	if err := cmp.Or(checkToolName(t.Name), checkMetaKeys(t.Meta)); err != nil {
		return err
	}
	var err error
	if entry.input, err = recompile(entry.input, t.InputSchema); err != nil {
		return fmt.Errorf("input schema: %w", err)
	}
	if entry.input.RootType() != "object" {
		return fmt.Errorf(`input schema: its type is %q, want "object"`, entry.input.RootType())
	}
	if entry.headerParams, err = entry.input.Headers(); err != nil {
		return fmt.Errorf("input schema: %w", err)
	}
	if t.OutputSchema == nil {
		entry.output = nil
	} else if entry.output, err = recompile(entry.output, t.OutputSchema); err != nil {
		return fmt.Errorf("output schema: %w", err)
	}
	return nil
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
	res, err := e.extra.call(ctx, args, e.extra)
	switch {
	case err != nil:
		return toolFailure(c, ofHandler(err))
	case res == nil:
		return nil, errors.New("the tool returned a nil result")
	}
	if !s.offersResources() && embedsResource(res.Content) {
		s.resources.ever.Store(true)
	}
	if e.extra.output != nil && !res.IsError {
		return checkStructured(c, e, res)
	}
	return res, nil
}

// embedsResource reports whether the content contains an embedded resource. Servers with such tools
// must declare the capability. Spec: server/tools, Embedded Resources.
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
// define it so, a protocol error in older revisions. Spec: server/tools (2025-11-25, 2026-07-28),
// Error Handling.
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
func checkStructured(c *call, e *featureEntry[*Tool, *toolEntry], res *CallToolResult) (Result, error) {
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

// A callError is an error before or after the tool's function: arguments that match the schema but
// cannot be decoded, such as a number that overflows its field, or a result that cannot be sent.
type callError struct {
	error
	ofArguments bool
}

// decode decodes arguments into v, a pointer to the function's input.
func (e *toolEntry) decode(args json.RawMessage, v any) error {
	if raw, ok := v.(*json.RawMessage); ok {
		*raw = append(json.RawMessage(nil), args...) // the bytes of the request are valid during the call only
		return nil
	}
	if err := e.decoder.Decode(args, v); err != nil {
		return &callError{err, true}
	}
	return nil
}

// result returns the result for an output of the tool's function: a block of content, or structured
// content and, unless there is other content, its JSON as text. Members that are null and not
// allowed by the output schema are dropped. out is a pointer. Spec: server/tools, Structured
// Content.
func (e *toolEntry) result(out any) (*CallToolResult, error) {
	if e.content {
		if c, ok := reflect.ValueOf(out).Elem().Interface().(ContentBlock); ok {
			return &CallToolResult{Content: []ContentBlock{c}}, nil
		}
		return nil, &callError{errors.New("the tool returned nil content"), false}
	}
	var content []ContentBlock
	var meta Meta
	if o, ok := out.(structuredOutput); ok {
		value, c, m := o.parts()
		out, content, meta = value, *c, *m
	}
	raw, err := schema.Encode(out)
	if err != nil {
		return nil, &callError{fmt.Errorf("encode the tool's result: %w", err), false}
	}
	if e.output != nil {
		raw = e.output.DropNulls(raw)
	}
	res := &CallToolResult{Content: content}
	if content == nil {
		res = textResult(string(raw))
	}
	res.StructuredContent, res.Meta = json.RawMessage(raw), meta
	return res, nil
}
