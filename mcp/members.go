package mcp

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// A memberBuffer is where members of params are put together, each behind a comma. They are copied into the request.
type memberBuffer struct {
	text bytes.Buffer
	any  any // what is encoded: a map behind a pointer to an interface is encoded without reflection
}

var memberBuffers = sync.Pool{New: func() any { return new(memberBuffer) }}

// newMembers gives an empty buffer. Whoever has one frees it when the request is over.
func newMembers() *memberBuffer { return memberBuffers.Get().(*memberBuffer) }

// free gives the buffer to others, unless it has grown too large to be kept.
func (b *memberBuffer) free() {
	const most = 64 << 10
	if b.text.Cap() > most {
		return
	}
	b.text.Reset()
	memberBuffers.Put(b)
}

func (b *memberBuffer) bytes() []byte { return b.text.Bytes() }

// putString adds a member that is a string.
func (b *memberBuffer) putString(name, value string) {
	b.text.Grow(len(`,"":""`) + len(name) + len(value))
	dst := append(jsonscan.AppendQuote(append(b.text.AvailableBuffer(), ','), name), ':')
	b.text.Write(jsonscan.AppendQuote(dst, value))
}

// putArguments adds the member that holds the arguments of a tool or prompt.
func (b *memberBuffer) putArguments(args any) error {
	b.text.WriteString(`,"arguments":`)
	switch args := args.(type) {
	case nil:
		b.text.WriteString(`{}`)
		return nil
	case stdjson.RawMessage:
		if len(args) == 0 {
			b.text.WriteString(`{}`)
			return nil
		}
		if err := jsonscan.Valid(args, jsonscan.Limits{}); err != nil || jsonscan.Kind(args) != '{' {
			return fmt.Errorf("mcp: the arguments are no JSON object: %.64q", []byte(args))
		}
		b.text.Write(args)
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
		b.any = m
		v = &b.any
		defer func() { b.any = nil }()
	}
	return json.MarshalWrite(&b.text, v, deterministic)
}
