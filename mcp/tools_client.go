package mcp

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// Tools returns the tools of the server, page after page as they are needed. An error is the last thing given. Tools whose
// definition is broken or too large are left out, with a warning in the log.
//
// Spec: server/tools, Listing Tools.
func (c *Client) Tools(ctx context.Context) iter.Seq2[*Tool, error] {
	return func(yield func(*Tool, error) bool) {
		for t, err := range items(ctx, c, toolList) {
			if err == nil {
				if err := c.note(t); err != nil {
					c.opts.Logger.WarnContext(ctx, "mcp: tool left out", "tool", shorten(t.Name), "reason", err)
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
	if t.Name == "" {
		return errors.New("it has no name")
	}
	return checkSchemas(t)
}}

// A toolIndex is what the client knows of the tools that it has listed.
type toolIndex struct {
	mu    sync.Mutex
	tools map[string]*knownTool
	bytes int // of their output schemas
}

// A knownTool is a tool as it was listed last.
type knownTool struct {
	mirror []HeaderParam
	raw    json.RawMessage // output schema, nil for none
	output func() (*schema.Schema, error)
}

func (c *Client) knownTool(name string) *knownTool {
	c.known.mu.Lock()
	defer c.known.mu.Unlock()
	return c.known.tools[name]
}

// note keeps what calls of the tool need to know. The error says why the tool cannot be called.
//
// Spec: basic/transports/streamable-http (2026-07-28), Custom Headers from Tool Parameters.
func (c *Client) note(t *Tool) error {
	k := &knownTool{raw: t.OutputSchema}
	if old := c.knownTool(t.Name); old != nil && bytes.Equal(old.raw, t.OutputSchema) {
		k.output = old.output // what is compiled stays so
	} else {
		k.output = sync.OnceValues(func() (*schema.Schema, error) { return schema.Compile(k.raw) })
	}
	if _, mirrors := c.transport.(headerParamTransport); mirrors && bytes.Contains(t.InputSchema, []byte("x-mcp-header")) {
		compiled, err := schema.Compile(t.InputSchema)
		if err != nil {
			return err
		}
		headers, err := compiled.Headers()
		if err != nil {
			return err
		}
		for _, h := range headers {
			k.mirror = append(k.mirror, HeaderParam{Header: h.Name, Path: h.Path, Type: h.Type})
		}
	}
	c.known.mu.Lock()
	defer c.known.mu.Unlock()
	c.known.add(t.Name, k)
	return nil
}

// add keeps a tool. The names of a server that never gives the same ones twice are forgotten, all at once.
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

// checkSchemas holds the schemas of a tool to what a client takes.
func checkSchemas(t *Tool) error {
	if jsonscan.Kind(t.InputSchema) != '{' {
		return errors.New("its inputSchema is no object")
	}
	for _, raw := range []json.RawMessage{t.InputSchema, t.OutputSchema} {
		if len(raw) > schema.MaxBytes {
			return fmt.Errorf("a schema has %d bytes, at most %d are taken", len(raw), schema.MaxBytes)
		}
		nodes := 0
		if err := countSchema(raw, &nodes); err != nil {
			return err
		}
	}
	return nil
}

// countSchema counts the objects of a schema and the elements of its arrays.
func countSchema(raw []byte, nodes *int) error {
	switch jsonscan.Kind(raw) {
	case '{':
		if *nodes++; *nodes > schema.MaxNodes {
			return fmt.Errorf("a schema has more than %d parts", schema.MaxNodes)
		}
		for _, value := range jsonscan.Members(raw) {
			if err := countSchema(value, nodes); err != nil {
				return err
			}
		}
	case '[':
		n := 0
		for value := range jsonscan.Elements(raw) {
			if n++; n > schema.MaxEnum {
				return fmt.Errorf("a list in a schema has more than %d values", schema.MaxEnum)
			}
			if err := countSchema(value, nodes); err != nil {
				return err
			}
		}
	}
	return nil
}

// CallTool calls a tool. args encodes to a JSON object, or is nil for none. That the tool failed is a result, with
// IsError set; see [Call] for the other way. A structured result is checked against the output schema, if the tool was
// listed before; one that does not fit is an [ErrInvalidResult].
//
// Spec: server/tools, Calling Tools.
func (c *Client) CallTool(ctx context.Context, name string, args any) (*ToolResult, error) {
	members, err := appendCall(nil, name, args)
	if err != nil {
		return nil, err
	}
	known := c.knownTool(name)
	raw, err := c.callTool(ctx, known, members)
	if e := asError(err); e != nil && e.Code == CodeHeaderMismatch && e.Remote() {
		if known, err2 := c.refresh(ctx, name); err2 == nil {
			raw, err = c.callTool(ctx, known, members)
		}
	}
	if err != nil {
		return nil, err
	}
	res, err := decodeToolResult(raw)
	if err == nil {
		err = c.checkOutput(c.knownTool(name), res)
	}
	if err != nil {
		return nil, c.invalid(wire.MethodToolsCall, fmt.Errorf("tool %.128q: %w", name, err))
	}
	return res, nil
}

func (c *Client) callTool(ctx context.Context, known *knownTool, members []byte) (RawResult, error) {
	k := &ask{method: wire.MethodToolsCall, members: members}
	if known != nil {
		k.mirror = known.mirror
	}
	return c.do(ctx, k)
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
		if raw, err = jsonv2.Marshal(args, deterministic); err != nil {
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

// refresh lists the tools again, because the server has other headers in mind for one of them. The call has not run.
//
// Spec: basic/transports/streamable-http (2026-07-28), Client Behavior.
func (c *Client) refresh(ctx context.Context, name string) (*knownTool, error) {
	if _, mirrors := c.transport.(headerParamTransport); !mirrors {
		return nil, errors.New("the transport has no headers")
	}
	o := *callOptionsFrom(ctx)
	o.NoCache = true
	for _, err := range c.Tools(WithCallOptions(ctx, o)) {
		if err != nil {
			return nil, err
		}
	}
	return c.knownTool(name), nil
}

// UnmarshalJSON decodes a result that came another way than as the answer to a call: a stored one, or that of a task. It is
// not checked against the output schema of a tool. StructuredContent is a jsonv2.RawMessage then.
func (r *ToolResult) UnmarshalJSON(raw []byte) error {
	if jsonscan.Kind(raw) != '{' {
		return errors.New("mcp: a tool result is an object")
	}
	decoded, err := decodeToolResult(bytes.Clone(raw))
	if err != nil {
		return fmt.Errorf("mcp: tool result: %w", err)
	}
	*r = *decoded
	return nil
}

// decodeToolResult reads a result, one of a single text in one piece of memory: most are that. Revisions and servers differ
// in what they leave out.
func decodeToolResult(raw RawResult) (*ToolResult, error) {
	r := &struct {
		ToolResult
		list [1]Content
		text TextContent
	}{}
	r.Content = r.list[:0]
	d := jsonscan.Descend(raw)
	d.Into('{')
	for key, ok := d.Key(); ok; key, ok = d.Key() {
		var err error
		switch string(key) {
		case "content":
			r.Content, err = decodeContents(r.list[:0], &r.text, &d)
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
	return &r.ToolResult, nil
}

// decodeMeta reads the `_meta` of a result, without what the server says of itself: that is the client's to tell.
func decodeMeta(d *jsonscan.Descent) (Meta, error) {
	if !d.Into('{') {
		return nil, errors.New("want an object")
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
		if meta == nil {
			meta = Meta{}
		}
		meta[string(key)] = v
	}
	return meta, nil
}

// decodeContents appends what a list holds. There is room for its first text.
func decodeContents(list []Content, first *TextContent, d *jsonscan.Descent) ([]Content, error) {
	if !d.Into('[') {
		return nil, errors.New("want an array")
	}
	for d.More() {
		piece, err := nextContent(d, first)
		if err != nil {
			return nil, err
		}
		if piece == Content(first) {
			first = nil
		}
		list = append(list, piece)
	}
	return list, nil
}

// checkOutput holds a structured result to the schema that the tool was listed with.
//
// Spec: server/tools, Output Schema.
func (c *Client) checkOutput(known *knownTool, r *ToolResult) error {
	if known == nil || known.raw == nil || r.IsError {
		return nil
	}
	compiled, err := known.output()
	if err != nil {
		c.opts.Logger.Debug("mcp: output schema cannot be used", "error", err)
		return nil
	}
	raw, ok := r.StructuredContent.(json.RawMessage)
	if !ok {
		return errors.New("it has an output schema, and the result no structured content")
	}
	if err := compiled.Validate(raw); err != nil {
		return fmt.Errorf("the structured content does not fit the output schema: %w", err)
	}
	return nil
}

// A ToolError says that a tool has failed: Result, whose content is for the model to read.
type ToolError struct {
	Tool   string
	Result *ToolResult
}

// Error returns the text of the result.
func (e *ToolError) Error() string {
	if text := e.Result.Text(); text != "" {
		return fmt.Sprintf("tool %q failed: %s", e.Tool, text)
	}
	return fmt.Sprintf("tool %q failed", e.Tool)
}

// Text returns the text of the result; other content is left out.
func (r *ToolResult) Text() string {
	if len(r.Content) == 1 {
		if text, ok := r.Content[0].(*TextContent); ok {
			return text.Text
		}
	}
	var b strings.Builder
	for _, c := range r.Content {
		if text, ok := c.(*TextContent); ok {
			if b.Len() > 0 {
				b.WriteByte('\n')
			}
			b.WriteString(text.Text)
		}
	}
	return b.String()
}

// Call calls a tool, as [Client.CallTool] does, and decodes what it gives: *[ToolResult] as it is, []Content, a string
// from the text, and everything else from the structured content, or from the text if there is none. A tool that failed
// is a [*ToolError].
func Call[Out any](ctx context.Context, c *Client, tool string, args any) (Out, error) {
	var out Out
	r, err := c.CallTool(ctx, tool, args)
	if err != nil {
		return out, err
	}
	if r.IsError {
		return out, &ToolError{Tool: tool, Result: r}
	}
	switch p := any(&out).(type) {
	case **ToolResult:
		*p = r
		return out, nil
	case *[]Content:
		*p = r.Content
		return out, nil
	case *string:
		if r.StructuredContent != nil {
			if text, err := decodeOutput[string](r); err == nil {
				*p = text
				return out, nil
			}
		}
		*p = r.Text()
		return out, nil
	}
	out, err = decodeOutput[Out](r)
	if err != nil {
		return out, c.invalid(wire.MethodToolsCall, fmt.Errorf("tool %.128q: the result does not decode into %T: %w", tool, out, err))
	}
	return out, nil
}

// decodeOutput decodes the structured content of a result, or the text if there is none.
func decodeOutput[Out any](r *ToolResult) (Out, error) {
	var out Out
	raw, ok := r.StructuredContent.(json.RawMessage)
	if !ok {
		raw = json.RawMessage(r.Text())
	}
	err := jsonv2.Unmarshal(raw, &out)
	return out, err
}

// shorten cuts a stranger's text for a log.
func shorten(text string) string { return text[:min(len(text), 128)] }
