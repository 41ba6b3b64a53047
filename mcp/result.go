package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/schema"
	"github.com/patchbay-mcp/patchbay/internal/wire"
	"github.com/patchbay-mcp/patchbay/mcp/driver"
)

// A Result is the result of a request. The result types of this package implement it; an extension
// may define others.
//
// A Result encodes to a JSON object without the members resultType and _meta, which are added from
// the two methods and from the server's identity when the result is written.
//
// Spec: basic (2026-07-28), Responses.
type Result interface {
	// ResultType returns "complete", "input_required" or a value that an extension defines.
	ResultType() string
	// ResultMeta returns the `_meta` of the result, or nil.
	ResultMeta() Meta
}

// Meta is the `_meta` object of a message or of data: any values, under keys with reverse DNS
// prefixes. Keys whose second label is "mcp" or "modelcontextprotocol" are reserved for the
// protocol.
//
// Spec: basic (2026-07-28), _meta.
type Meta map[string]any

// ResultMeta returns m. Result types embed a Meta.
func (m Meta) ResultMeta() Meta { return m }

// complete is embedded in the results of type "complete".
type complete struct{}

func (complete) ResultType() string { return driver.ResultComplete }

// A RawResult is a complete result object in JSON, which is sent unchanged.
type RawResult json.RawMessage

// ResultType returns the member resultType, or "complete" if it is missing.
func (r RawResult) ResultType() string {
	if bytes.HasPrefix(r, []byte(`{"resultType":"`+driver.ResultComplete+`"`)) { // as servers of this package begin
		return driver.ResultComplete
	}
	v, ok := jsonscan.Get(r, "resultType")
	if !ok || string(v) == `"`+driver.ResultComplete+`"` {
		return driver.ResultComplete
	}
	if s, err := jsonscan.Unquote(v); err == nil {
		return s
	}
	return string(v) // not a string, so of no known type
}

// ResultMeta returns nil: the `_meta` of a raw result is part of the object.
func (RawResult) ResultMeta() Meta { return nil }

// An EmptyResult is a result without members.
type EmptyResult struct {
	Meta `json:"-"`
	complete
}

// A fieldAppender is a Result that encodes its own members, without braces and on one line.
type fieldAppender interface {
	appendFields(dst []byte) ([]byte, error)
}

// deterministic makes equal values encode to equal JSON, on which the caches of clients rely.
var deterministic = jsonv2.Deterministic(true)

// encodeResult appends the JSON of a result of the server s, which may be nil. Members that every
// result contains come first. The result is on a single line: the JSON library writes no line
// breaks, and raw JSON is converted. For a form that is not zero, see [Request.form], it omits the
// members that package legacy would remove from every result, and writes a list in that form. The
// carrier, which may be nil, writes long lists.
func encodeResult(dst []byte, res Result, s *Server, form wire.Revision, carrier wire.Splicer) ([]byte, error) {
	if raw, ok := res.(RawResult); ok {
		if err := jsonscan.Valid(raw, jsonscan.Limits{}); err != nil || jsonscan.Kind(raw) != '{' {
			return nil, fmt.Errorf("invalid raw result %.20q: must be a JSON object", []byte(raw))
		}
		return appendRaw(dst, raw, nil), nil
	}
	dst = append(dst, '{')
	empty := len(dst)
	plain := form != 0
	if typ := res.ResultType(); !plain || typ != driver.ResultComplete {
		dst = append(jsonscan.AppendQuote(append(dst, `"resultType":`...), typ), ',')
	}
	if plain {
		s = nil
	}
	dst, err := appendMeta(dst, res.ResultMeta(), s)
	if err != nil {
		return nil, err
	}
	own := len(dst)
	if !isListResult(res) {
		form = 0
	}
	switch r := res.(type) { // these types exactly: a type that embeds them has more members
	case *ListToolsResult:
		dst, err = r.page.appendList(dst, "tools", r.Tools, r.NextCursor, form, carrier)
	case *ListPromptsResult:
		dst, err = r.page.appendList(dst, "prompts", r.Prompts, r.NextCursor, form, carrier)
	case *ListResourcesResult:
		dst, err = r.page.appendList(dst, "resources", r.Resources, r.NextCursor, form, carrier)
	case *ListResourceTemplatesResult:
		dst, err = r.page.appendList(dst, "resourceTemplates", r.ResourceTemplates, r.NextCursor, form, carrier)
	case *CallToolResult, *GetPromptResult, *ReadResourceResult, *InputRequiredResult:
		dst, err = r.(fieldAppender).appendFields(dst)
	default:
		dst, err = appendMembers(dst, res)
	}
	if r, ok := res.(cacheableResult); ok && err == nil && !plain {
		if len(dst) > own {
			dst = append(dst, ',')
		}
		hints := r.cacheHints()
		if _, same := res.(*DiscoverResult); !same && s != nil && s.opts.Visible != nil {
			hints.Public = false // the result depends on the caller
		}
		dst = appendCache(dst, hints)
	}
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", res, err)
	}
	if len(dst) == own && own > empty {
		dst = dst[:own-1] // without the last comma
	}
	return append(dst, '}'), nil
}

// isListResult reports whether a result is a list without other members that depend on the revision.
func isListResult(res Result) bool {
	switch res.(type) {
	case *ListToolsResult, *ListPromptsResult, *ListResourcesResult, *ListResourceTemplatesResult:
		return len(res.ResultMeta()) == 0
	}
	return false
}

// appendRaw appends a raw result on one line, and adds resultType, which results of older servers
// lack. The carrier, which may be nil, writes a long result, which must never change.
func appendRaw(dst []byte, raw RawResult, carrier wire.Splicer) []byte {
	from := len(dst)
	if _, ok := jsonscan.Get(raw, "resultType"); ok {
		if carrier != nil && jsonscan.IsOneLine(raw) && carrier.Splice(dst, raw, false) {
			return dst
		}
		dst = append(dst, raw...)
		jsonscan.OneLine(dst[from:])
		return dst
	}
	dst = append(dst, `{"resultType":"`+driver.ResultComplete+`"`...)
	dst = jsonscan.AppendMembers(dst, raw, nil)
	jsonscan.OneLine(dst[from:])
	return append(dst, '}')
}

// appendMeta appends the member `_meta`, followed by a comma, if it is not empty.
func appendMeta(dst []byte, meta Meta, s *Server) ([]byte, error) {
	var frame []byte
	if _, own := meta[wire.MetaServerInfo]; s != nil && !own {
		frame = s.frame
	}
	if len(meta) == 0 && len(frame) == 0 {
		return dst, nil
	}
	dst = append(dst, `"_meta":{`...)
	dst = append(dst, frame...)
	if len(meta) > 0 {
		if len(frame) > 0 {
			dst = append(dst, ',')
		}
		var err error
		if dst, err = appendMembers(dst, meta); err != nil {
			return nil, fmt.Errorf("encode _meta: %w", err)
		}
	}
	return append(dst, "},"...), nil
}

// appendMembers appends the members of v, which encodes to an object, without braces.
func appendMembers(dst []byte, v any) ([]byte, error) {
	b, err := schema.Encode(v)
	if err != nil {
		return nil, err
	}
	if len(b) < 2 || b[0] != '{' {
		return nil, fmt.Errorf("encodes to %.20q, want an object", b)
	}
	return append(dst, b[1:len(b)-1]...), nil
}
