package mcp

import (
	"encoding/json"
	"fmt"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A Result is the answer to a request. This package's result types are Results, an extension may add its own.
//
// A Result encodes to a JSON object without the members resultType and _meta: these two are added when the answer is
// written, from the two methods and from what the server says of itself.
//
// Spec: basic (2026-07-28), Responses.
type Result interface {
	// ResultType is "complete", "input_required" or a value that an extension defines.
	ResultType() string
	// ResultMeta is the `_meta` of the result; nil for none.
	ResultMeta() Meta
}

// Result types of the core protocol. Spec: basic (2026-07-28), Responses.
const (
	ResultComplete      = "complete"
	ResultInputRequired = "input_required"
)

// Meta is the `_meta` object of a message or of a piece of data: anything, under keys whose prefixes are reverse DNS
// names. Keys whose second label is "mcp" or "modelcontextprotocol" belong to the protocol.
//
// Spec: basic (2026-07-28), _meta.
type Meta map[string]any

// ResultMeta returns m. Result types embed a Meta.
func (m Meta) ResultMeta() Meta { return m }

// complete is embedded in the results of type "complete".
type complete struct{}

func (complete) ResultType() string { return ResultComplete }

// A RawResult is a whole result object in JSON, passed on as it is.
type RawResult json.RawMessage

// ResultType is the resultType member of the object, "complete" when it has none.
func (r RawResult) ResultType() string {
	if v, ok := jsonscan.Get(r, "resultType"); ok {
		if string(v) == `"`+ResultComplete+`"` {
			return ResultComplete
		}
		if s, err := jsonscan.Unquote(v); err == nil {
			return s
		}
	}
	return ResultComplete
}

// ResultMeta is nil: a raw result's `_meta` stays within it.
func (RawResult) ResultMeta() Meta { return nil }

// An EmptyResult says that a request was carried out, and nothing else.
type EmptyResult struct {
	Meta `json:"-"`
	complete
}

// fieldAppender is a Result that writes its own members, without braces and on one line.
type fieldAppender interface {
	appendFields(dst []byte) ([]byte, error)
}

// deterministic makes two encodings of one value equal, which clients' caches rely on.
var deterministic = jsonv2.Deterministic(true)

// encodeResult writes the members that every result has in front, so that a reader knows early what it reads. What is
// written is one line: the encoder makes one of all that it is given, and only what passes it by has to be made one.
func encodeResult(dst []byte, res Result, frame []byte) ([]byte, error) {
	if raw, ok := res.(RawResult); ok {
		if err := jsonscan.Valid(raw, jsonscan.Limits{}); err != nil || jsonscan.Kind(raw) != '{' {
			return nil, fmt.Errorf("a raw result is no JSON object: %.20q", []byte(raw))
		}
		from := len(dst)
		dst = appendRaw(dst, raw)
		jsonscan.OneLine(dst[from:])
		return dst, nil
	}
	dst = append(dst, `{"resultType":`...)
	dst = jsonscan.AppendQuote(dst, res.ResultType())
	var err error
	if dst, err = appendMeta(dst, res.ResultMeta(), frame); err != nil {
		return nil, err
	}
	dst = append(dst, ',')
	mark := len(dst)
	switch r := res.(type) {
	case *ToolResult, *PromptResult, *ReadResult, *InputRequired, *ListToolsResult, *ListPromptsResult,
		*ListResourcesResult, *ListResourceTemplatesResult: // these types exactly: a type that embeds one has more members
		dst, err = r.(fieldAppender).appendFields(dst)
	default:
		dst, err = appendMembers(dst, res)
	}
	if r, ok := res.(cacheableResult); ok && err == nil {
		if len(dst) > mark {
			dst = append(dst, ',')
		}
		dst, err = appendCache(dst, r.cacheHints())
	}
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", res, err)
	}
	if len(dst) == mark {
		dst = dst[:mark-1]
	}
	return append(dst, '}'), nil
}

// appendRaw passes a result on. One without a result type is that of an older server: every result of ours has one.
func appendRaw(dst []byte, raw RawResult) []byte {
	if _, ok := jsonscan.Get(raw, "resultType"); ok {
		return append(dst, raw...)
	}
	dst = append(dst, `{"resultType":"`+ResultComplete+`"`...)
	for key, value := range jsonscan.Members(raw) {
		dst = append(jsonscan.AppendQuote(append(dst, ','), string(key)), ':')
		dst = append(dst, value...)
	}
	return append(dst, '}')
}

// appendMeta writes the `_meta` member with a leading comma, if it holds anything.
func appendMeta(dst []byte, meta Meta, frame []byte) ([]byte, error) {
	if len(meta) == 0 && len(frame) == 0 {
		return dst, nil
	}
	if _, own := meta[wire.MetaServerInfo]; own {
		frame = nil
	}
	dst = append(dst, `,"_meta":{`...)
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
	return append(dst, '}'), nil
}

// appendMembers writes the members of v, which encodes to an object, without its braces.
func appendMembers(dst []byte, v any) ([]byte, error) {
	b, err := jsonv2.Marshal(v, deterministic)
	if err != nil {
		return nil, err
	}
	if len(b) < 2 || b[0] != '{' {
		return nil, fmt.Errorf("encodes to %.20q, want an object", b)
	}
	return append(dst, b[1:len(b)-1]...), nil
}
