package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"reflect"
	"strings"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// Tools returns the tools of the server. It requests pages as they are needed. An error is the last
// value. Tools whose definition is invalid or too large are left out, with a warning in the log.
//
// Spec: server/tools, Listing Tools.
func (c *Client) Tools(ctx context.Context) iter.Seq2[*Tool, error] {
	return func(yield func(*Tool, error) bool) {
		for t, err := range items(ctx, c, toolList) {
			if err == nil {
				if err := c.known.learn(t, c.mirrors()); err != nil {
					c.opts.Logger.WarnContext(ctx, "mcp: invalid tool ignored", "tool", shorten(t.Name), "reason", err)
					continue
				}
			}
			if !yield(t, err) {
				return
			}
		}
	}
}

var toolList = list[Tool]{wire.MethodToolsList, "tools", func(t *Tool) error {
	switch {
	case t.Name == "":
		return errors.New("missing name")
	case jsonscan.Kind(t.InputSchema) != '{':
		return errors.New("invalid inputSchema: must be an object")
	}
	return cmp.Or(schema.CheckSize(t.InputSchema), schema.CheckSize(t.OutputSchema))
}}

type toolIndex struct {
	mu    sync.Mutex // guards the fields below
	tools map[string]*knownTool
	bytes int // of their output schemas
}

// A knownTool holds the part of a tool's definition that calls need.
type knownTool struct {
	mirror []driver.HeaderParam
	raw    json.RawMessage // output schema; may be nil
	output func() (*schema.Schema, error)
}

// get returns a tool, or nil if it was not listed.
func (x *toolIndex) get(name string) *knownTool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.tools[name]
}

// learn adds a listed tool to the index, with its header parameters if the transport mirrors them. It
// returns an error if the tool cannot be called. Spec: basic/transports/streamable-http (2026-07-28),
// Custom Headers from Tool Parameters.
func (x *toolIndex) learn(t *Tool, mirrors bool) error {
	k := &knownTool{raw: t.OutputSchema}
	if old := x.get(t.Name); old != nil && bytes.Equal(old.raw, t.OutputSchema) {
		k.output = old.output // may be compiled already
	} else {
		k.output = sync.OnceValues(func() (*schema.Schema, error) { return schema.Compile(k.raw) })
	}
	if mirrors {
		var err error
		if k.mirror, err = driver.HeaderParamsOf(t.InputSchema); err != nil {
			return err
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.add(t.Name, k)
	return nil
}

// add adds a tool. If the index is full, which only a server with changing names causes, it is
// cleared.
func (x *toolIndex) add(name string, k *knownTool) {
	if old := x.tools[name]; old != nil {
		x.bytes -= len(old.raw)
		delete(x.tools, name)
	}
	if len(x.tools) >= maxListed || x.bytes+len(k.raw) > maxListedBytes {
		clear(x.tools)
		x.bytes = 0
	}
	put(&x.tools, name, k)
	x.bytes += len(k.raw)
}

func (x *toolIndex) clear() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tools, x.bytes = nil, 0
}

// CallTool calls a tool. args must encode to a JSON object or be nil; otherwise the call fails
// before anything is sent. StructuredContent of the result is a json.RawMessage. If the tool fails,
// CallTool returns a result with IsError set; the function [CallTool] returns an error instead. If
// the tool was listed before, structured content is validated against its output schema; if it is
// invalid, the error wraps [ErrInvalidResult].
//
// Spec: server/tools, Calling Tools.
func (c *Client) CallTool(ctx context.Context, name string, args any) (*CallToolResult, error) {
	members, err := appendCall(make([]byte, 0, typicalSize), name, args)
	if err != nil {
		return nil, err
	}
	raw, err := c.callTool(ctx, name, &clientRequest{method: wire.MethodToolsCall, members: members})
	if err != nil {
		return nil, err
	}
	res, err := decodeToolResult(raw)
	if err == nil {
		err = c.known.get(name).checkOutput(c.opts.Logger, res)
	}
	if err != nil {
		return nil, invalidResult(wire.MethodToolsCall, fmt.Errorf("tool %.128q: %w", name, err))
	}
	return res, nil
}

func (c *Client) callTool(ctx context.Context, name string, k *clientRequest) (RawResult, error) {
	if known := c.known.get(name); known != nil {
		k.mirror = known.mirror
	}
	raw, err := c.do(ctx, k)
	if e := asError(err); e != nil && e.Code == wire.CodeHeaderMismatch && e.Remote() {
		if known, err2 := c.refresh(ctx, name); err2 == nil {
			k.mirror, k.input = nil, nil
			if known != nil {
				k.mirror = known.mirror
			}
			raw, err = c.do(ctx, k)
		}
	}
	return raw, err
}

// appendCall appends the members name and arguments of the params, each after a comma.
func appendCall(dst []byte, name string, args any) ([]byte, error) {
	dst = jsonscan.AppendQuote(append(dst, `,"name":`...), name)
	dst = append(dst, `,"arguments":`...)
	raw, ok := args.(json.RawMessage)
	if ok && len(raw) > 0 {
		if err := jsonscan.Valid(raw, jsonscan.Limits{}); err != nil {
			return nil, fmt.Errorf("mcp: arguments %.64q: %w", []byte(raw), err)
		}
		raw = bytes.Trim(raw, " \t\r\n")
	} else if !ok && args != nil {
		var err error
		if raw, err = schema.Encode(args); err != nil {
			return nil, fmt.Errorf("mcp: encode arguments: %w", err)
		}
	}
	switch {
	case len(raw) == 0, !ok && string(raw) == "null":
		return append(dst, `{}`...), nil
	case jsonscan.Kind(raw) != '{':
		return nil, fmt.Errorf("mcp: invalid arguments %.64q: must be a JSON object", []byte(raw))
	}
	return append(dst, raw...), nil
}

// mirrors reports whether the transport repeats header parameters of tools.
func (c *Client) mirrors() bool {
	_, ok := c.connector.transport.(headerParamTransport)
	return ok
}

// refresh lists the tools again after the server refused a call, which therefore did not run,
// because of its headers. Spec: basic/transports/streamable-http (2026-07-28), Client Behavior.
func (c *Client) refresh(ctx context.Context, name string) (*knownTool, error) {
	if !c.mirrors() {
		return nil, errors.New("the transport does not support headers")
	}
	o := *callOptionsFrom(ctx)
	o.NoCache = true
	for _, err := range c.Tools(WithCallOptions(ctx, o)) {
		if err != nil {
			return nil, err
		}
	}
	return c.known.get(name), nil
}

// UnmarshalJSON decodes a result that was stored, or that belongs to a task. It is not checked
// against the output schema of a tool. StructuredContent is a json.RawMessage then.
func (r *CallToolResult) UnmarshalJSON(raw []byte) error {
	if jsonscan.Kind(raw) != '{' {
		return errors.New("mcp: invalid tool result: must be an object")
	}
	decoded, err := decodeToolResult(bytes.Clone(raw))
	if err != nil {
		return fmt.Errorf("mcp: invalid tool result: %w", err)
	}
	*r = *decoded
	return nil
}

// decodeToolResult decodes a result. All members are optional, because servers omit different
// members.
func decodeToolResult(raw RawResult) (*CallToolResult, error) {
	r := &CallToolResult{Content: []ContentBlock{}}
	d := jsonscan.Descend(raw)
	d.Into('{')
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		var err error
		switch string(key) {
		case "content":
			r.Content, err = decodeContents(&d)
		case "structuredContent":
			r.StructuredContent = json.RawMessage(d.Value())
		case "isError":
			err = jsonv2.Unmarshal(d.Value(), &r.IsError)
		case "_meta":
			r.Meta, err = decodeMeta(&d)
		default:
			d.Value()
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
	}
	return r, nil
}

// decodeMeta decodes the `_meta` of a result without the server info, which the client returns
// itself.
func decodeMeta(d *jsonscan.Descent) (Meta, error) {
	if !d.Into('{') {
		return nil, errors.New("must be an object")
	}
	var meta Meta
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		value := d.Value()
		if string(key) == wire.MetaServerInfo {
			continue
		}
		var v any
		if err := jsonv2.Unmarshal(value, &v); err != nil {
			return nil, err
		}
		put((*map[string]any)(&meta), string(key), v)
	}
	return meta, nil
}

func decodeContents(d *jsonscan.Descent) ([]ContentBlock, error) {
	if !d.Into('[') {
		return nil, errors.New("must be an array")
	}
	list := []ContentBlock{}
	for d.More() {
		block, err := nextContent(d)
		if err != nil {
			return nil, err
		}
		list = append(list, block)
	}
	return list, nil
}

// checkOutput validates structured content against the output schema of the tool. Spec:
// server/tools, Output Schema.
func (k *knownTool) checkOutput(log *slog.Logger, r *CallToolResult) error {
	if k == nil || k.raw == nil || r.IsError {
		return nil
	}
	compiled, err := k.output()
	if err != nil {
		log.Debug("mcp: invalid output schema ignored", "error", err)
		return nil
	}
	raw, ok := r.StructuredContent.(json.RawMessage)
	if !ok {
		return errors.New("missing structuredContent: the tool has an output schema")
	}
	if err := compiled.Validate(raw); err != nil {
		return fmt.Errorf("structuredContent does not match the output schema: %w", err)
	}
	return nil
}

// A ToolError reports that a tool failed. The content of Result is meant for the model.
type ToolError struct {
	Tool   string
	Result *CallToolResult
}

// Error returns the name of the tool and the text of the result; Result.Text returns the text
// alone.
func (e *ToolError) Error() string {
	if text := e.Result.Text(); text != "" {
		return fmt.Sprintf("tool %q failed: %s", e.Tool, text)
	}
	return fmt.Sprintf("tool %q failed", e.Tool)
}

// Text returns the text content of the result, each block on a line. Other content is left out.
func (r *CallToolResult) Text() string {
	var texts []string
	for _, c := range r.Content {
		if text, ok := c.(*TextContent); ok {
			texts = append(texts, text.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// CallTool calls a tool like [Client.CallTool] and decodes the result into Out: a *[CallToolResult]
// is the whole result, a [][ContentBlock] its content, a string its text, a [Structured] its value,
// content and meta. Any other type is decoded from the structured content, or from the text if it
// is missing, with names in any case, as package encoding/json does. It is an error if no member of
// an object is a field of Out. If decoding fails, the tool did run. If the tool fails, the error is
// a [*ToolError].
func CallTool[Out any](ctx context.Context, c *Client, tool string, args any) (Out, error) {
	var out Out
	r, err := c.CallTool(ctx, tool, args)
	if err != nil {
		return out, err
	}
	if text, ok := any(&out).(*string); ok && !r.IsError && r.StructuredContent == nil {
		*text = r.Text() // without the allocation below
		return out, nil
	}
	decoded := new(Out)
	err = r.decode(tool, decoded)
	return *decoded, err
}

// decode decodes the result of a tool into v, a pointer.
func (r *CallToolResult) decode(tool string, v any) error {
	if r.IsError {
		return &ToolError{Tool: tool, Result: r}
	}
	raw, isStructured := r.StructuredContent.(json.RawMessage)
	switch p := v.(type) {
	case **CallToolResult:
		*p = r
		return nil
	case *[]ContentBlock:
		*p = r.Content
		return nil
	case *string:
		if !isStructured || decodeValue(raw, p) != nil {
			*p = r.Text()
		}
		return nil
	case structuredOutput:
		value, content, meta := p.parts()
		*content, *meta, v = r.Content, r.Meta, value
	}
	if !isStructured {
		raw = json.RawMessage(r.Text())
	}
	if err := decodeValue(raw, v); err != nil {
		return fmt.Errorf("mcp: decode the result of tool %.128q into %s: %w", tool, reflect.TypeOf(v).Elem(), err)
	}
	return nil
}

// decodeValue decodes raw into v, a pointer. An object must contain a member that is a field of v,
// as far as its first members show.
func decodeValue(raw json.RawMessage, v any) error {
	const maxMembers = 32
	if err := schema.DecodeAnyCase(raw, v); err != nil {
		return err
	}
	out := reflect.Indirect(reflect.ValueOf(v).Elem())
	if out.Kind() != reflect.Struct || out.NumField() == 0 || !out.IsZero() {
		return nil
	}
	var names []string
	for name, value := range jsonscan.Members(raw) {
		one := jsonscan.WithMember([]byte("{}"), string(name), value)
		err := schema.DecodeAnyCase(one, reflect.New(out.Type()).Interface(), jsonv2.RejectUnknownMembers(true))
		if !errors.Is(err, jsonv2.ErrUnknownName) || len(names) == maxMembers {
			return nil
		}
		names = append(names, shorten(string(name)))
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("no member of the object %q is a field", names)
}

func shorten(text string) string { return text[:min(len(text), 128)] }
