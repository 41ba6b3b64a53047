package mcp

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"reflect"

	"github.com/patchbay-mcp/patchbay/internal/schema"
)

// A boundTool is a typed function as a tool that the server can list and call.
type boundTool struct {
	tool  *Tool // a copy of the caller's, with its schemas filled in
	entry toolEntry
}

// bindTool makes a tool of a typed function.
func bindTool[In, Out any](t *Tool, f func(context.Context, In) (Out, error)) (*boundTool, error) {
	b := &boundTool{entry: toolEntry{name: t.Name}}
	copied := *t
	b.tool = &copied
	if err := b.inferInput(reflect.TypeFor[In]()); err != nil {
		return nil, fmt.Errorf("input: %w", err)
	}
	give, err := bindOutput[Out](b)
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	if b.tool.OutputSchema != nil && !mayBeStructured[Out]() {
		return nil, fmt.Errorf("output: %s is no structured content, which OutputSchema promises", reflect.TypeFor[Out]())
	}
	decoder := schema.NewDecoder(reflect.TypeFor[In]())
	b.entry.call = func(ctx context.Context, args stdjson.RawMessage) (*ToolResult, error) {
		var in In
		if err := decodeArguments(decoder, args, &in); err != nil {
			return nil, &argumentError{err}
		}
		out, err := f(ctx, in)
		if err != nil {
			return nil, err
		}
		res, err := give(out)
		if err != nil {
			return nil, &outputError{err}
		}
		return res, nil
	}
	b.entry, err = prepareTool(b.tool, b.entry)
	return b, err
}

// argumentError marks arguments that pass the schema but not the decoder of their Go type, such as a number that is too
// large for its field.
type argumentError struct{ err error }

func (e *argumentError) Error() string { return e.err.Error() }
func (e *argumentError) Unwrap() error { return e.err }

// outputError marks what a function gave and no client can get: a mistake of the program, not a failure of the tool.
type outputError struct{ err error }

func (e *outputError) Error() string { return e.err.Error() }
func (e *outputError) Unwrap() error { return e.err }

// decodeArguments fills v, a pointer to what the function takes.
func decodeArguments(d *schema.Decoder, args stdjson.RawMessage, v any) error {
	if raw, ok := v.(*stdjson.RawMessage); ok {
		*raw = append(stdjson.RawMessage(nil), args...) // the request's bytes end with the call, the function's need not
		return nil
	}
	return d.Decode(args, v)
}

// inferInput derives the input schema from the type unless one was given by hand.
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

// bindOutput returns the function that makes a result of what the tool's function returned.
func bindOutput[Out any](b *boundTool) (func(Out) (*ToolResult, error), error) {
	var out Out
	switch any(&out).(type) {
	case *string:
		return func(v Out) (*ToolResult, error) {
			return textResult(any(v).(string)), nil
		}, nil
	case *Content:
		return contentResult[Out], nil
	case *[]Content:
		return func(v Out) (*ToolResult, error) { return &ToolResult{Content: any(v).([]Content)}, nil }, nil
	case **ToolResult:
		return func(v Out) (*ToolResult, error) {
			if res := any(v).(*ToolResult); res != nil {
				return res, nil
			}
			return nil, fmt.Errorf("the tool gave no result")
		}, nil
	}
	if reflect.TypeFor[Out]().Implements(reflect.TypeFor[Content]()) {
		return contentResult[Out], nil
	}
	if err := b.inferOutput(reflect.TypeFor[Out]()); err != nil {
		return nil, err
	}
	declared := b.entry.output
	return func(v Out) (*ToolResult, error) { return structured(v, declared) }, nil
}

// mayBeStructured reports whether a tool that gives Out can have structured content.
func mayBeStructured[Out any]() bool {
	var out Out
	switch any(&out).(type) {
	case *string, *Content, *[]Content:
		return false
	}
	return !reflect.TypeFor[Out]().Implements(reflect.TypeFor[Content]())
}

// contentResult makes a result of one piece of content.
func contentResult[Out any](v Out) (*ToolResult, error) {
	c, ok := any(v).(Content)
	if !ok {
		return nil, fmt.Errorf("the tool gave no content")
	}
	return &ToolResult{Content: []Content{c}}, nil
}

// inferOutput derives the output schema from the type unless one was given by hand. A type that can be anything
// promises nothing.
func (b *boundTool) inferOutput(out reflect.Type) error {
	if b.tool.OutputSchema != nil || out.Kind() == reflect.Interface || out == reflect.TypeFor[stdjson.RawMessage]() {
		return nil
	}
	s, err := schema.For(out)
	if err != nil {
		return err
	}
	b.tool.OutputSchema, b.entry.output = s.JSON(), s
	return nil
}

// structured makes a result of a value: for programs, and as text for everyone else. Optional parts that are nil are left
// out, as the schema that was derived from the type has them; nil for none.
//
// Spec: server/tools, Structured Content.
func structured(v any, derived *schema.Schema) (*ToolResult, error) {
	raw, err := schema.Encode(v)
	if err != nil {
		return nil, fmt.Errorf("encode the tool's result: %w", err)
	}
	if derived != nil {
		raw = derived.DropNulls(raw)
	}
	res := textResult(string(raw))
	res.StructuredContent, res.checked = stdjson.RawMessage(raw), raw
	return res, nil
}
