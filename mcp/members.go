package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync"
	"unicode/utf8"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A memberBuffer is where members of params are put together, each behind a comma. They are copied into the request.
type memberBuffer struct {
	text bytes.Buffer
	any  any // what is encoded: a map behind a pointer to an interface is encoded without reflection

	name, arguments wire.Span // where they stand
	unchecked       bool      // it may hold more than a reader takes: objects that are too deep or too large
}

var memberBuffers = sync.Pool{New: func() any { return new(memberBuffer) }}

// newMembers returns an empty buffer. Whoever has one frees it when the request is over.
func newMembers() *memberBuffer { return memberBuffers.Get().(*memberBuffer) }

// free returns the buffer to others, unless it has grown too large to be kept.
func (b *memberBuffer) free() {
	const most = 64 << 10
	if b.text.Cap() > most {
		return
	}
	b.text.Reset()
	b.name, b.arguments, b.unchecked = wire.Span{}, wire.Span{}, false
	memberBuffers.Put(b)
}

func (b *memberBuffer) bytes() []byte { return b.text.Bytes() }

// putName adds the name of a tool or prompt.
func (b *memberBuffer) putName(name string) {
	b.text.WriteString(`,"name":`)
	defer b.mark(&b.name, b.text.Len())
	b.text.Grow(len(`""`) + len(name))
	b.text.Write(jsonscan.AppendQuote(b.text.AvailableBuffer(), name))
}

// mark notes a value that has begun at an offset and is at its end.
func (b *memberBuffer) mark(s *wire.Span, at int) {
	*s = wire.Span{At: uint32(at), End: uint32(b.text.Len())}
}

// putArguments adds the arguments of a tool or prompt.
func (b *memberBuffer) putArguments(args any) error {
	b.text.WriteString(`,"arguments":`)
	defer b.mark(&b.arguments, b.text.Len())
	switch args := args.(type) {
	case nil:
		b.text.WriteString(`{}`)
		return nil
	case json.RawMessage:
		if len(args) == 0 {
			b.text.WriteString(`{}`)
			return nil
		}
		if err := jsonscan.Valid(args, jsonscan.Limits{}); err != nil || jsonscan.Kind(args) != '{' {
			return fmt.Errorf("mcp: the arguments are no JSON object: %.64q", []byte(args))
		}
		b.text.Write(bytes.Trim(args, " \t\r\n")) // where it stands is noted, and the space is not its own
		return nil
	}
	mark := b.text.Len()
	if err := b.encode(args); err != nil {
		return fmt.Errorf("mcp: encode arguments: %w", err)
	}
	switch raw := b.text.Bytes()[mark:]; jsonscan.Kind(raw) {
	case '{':
	case 'n':
		b.text.Truncate(mark)
		b.text.WriteString(`{}`)
	default:
		return fmt.Errorf("mcp: the arguments encode to %.64q, want an object", raw)
	}
	return nil
}

// encode appends the JSON of a value.
func (b *memberBuffer) encode(v any) error {
	if m, ok := v.(map[string]any); ok {
		if plain, ok := appendPlain(b.text.AvailableBuffer(), m, 1); ok {
			b.text.Write(plain)
			return nil
		}
		b.any = m
		v = &b.any
		defer func() { b.any = nil }()
	}
	b.unchecked = true
	return jsonv2.MarshalWrite(&b.text, v, deterministic)
}

const (
	plainDepth = 16 // well below what every reader takes
	plainKeys  = 16
)

// appendPlain appends what a model's arguments mostly are, without reflection and as the JSON package would, but that ends
// of lines outside ASCII are escaped. It reports false for everything else, which is left to that.
func appendPlain(dst []byte, v any, depth int) (out []byte, ok bool) {
	switch v := v.(type) {
	case nil:
		return append(dst, "null"...), true
	case bool:
		return strconv.AppendBool(dst, v), true
	case string:
		return jsonscan.AppendQuote(dst, v), utf8.ValidString(v)
	case int:
		return strconv.AppendInt(dst, int64(v), 10), true
	case float64:
		abs := math.Abs(v)
		return strconv.AppendFloat(dst, v, 'f', -1, 64), abs == 0 || 1e-6 <= abs && abs < 1e21
	case map[string]any:
		return appendPlainObject(dst, v, depth)
	case []any:
		return appendPlainArray(dst, v, depth)
	}
	return nil, false
}

func appendPlainObject(dst []byte, object map[string]any, depth int) (out []byte, ok bool) {
	if depth > plainDepth || len(object) > plainKeys {
		return nil, false
	}
	var room [plainKeys]string
	keys := room[:0]
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	dst = append(dst, '{')
	for i, key := range keys {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsonscan.AppendQuote(dst, key), ':')
		if dst, ok = appendPlain(dst, object[key], depth+1); !ok || !utf8.ValidString(key) {
			return nil, false
		}
	}
	return append(dst, '}'), true
}

func appendPlainArray(dst []byte, array []any, depth int) (out []byte, ok bool) {
	if depth > plainDepth {
		return nil, false
	}
	dst = append(dst, '[')
	for i, value := range array {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, ok = appendPlain(dst, value, depth+1); !ok {
			return nil, false
		}
	}
	return append(dst, ']'), true
}
