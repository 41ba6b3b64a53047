package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sync"

	jsonv2 "github.com/go-json-experiment/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// A memberBuffer collects members of a request's params, each with a comma in front. They are copied into the request.
type memberBuffer struct {
	text bytes.Buffer

	name, arguments wire.Span // positions of these members' values
	unchecked       bool      // the text may exceed the limits of a reader: objects that are too deep or too large
}

var memberBuffers = sync.Pool{New: func() any { return new(memberBuffer) }}

// newMembers returns an empty buffer. The caller frees it when the request is done.
func newMembers() *memberBuffer { return memberBuffers.Get().(*memberBuffer) }

// free returns the buffer to the pool unless it has grown too large.
func (b *memberBuffer) free() {
	const maxPooled = 64 << 10
	if b.text.Cap() > maxPooled {
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

// mark records the position of a value that begins at the given offset and ends at the end of the text.
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
			return fmt.Errorf("mcp: invalid arguments %.64q: must be a JSON object", []byte(args))
		}
		b.text.Write(bytes.Trim(args, " \t\r\n")) // the span excludes white space
		return nil
	}
	mark := b.text.Len()
	b.unchecked = true
	if err := jsonv2.MarshalWrite(&b.text, args, deterministic); err != nil {
		return fmt.Errorf("mcp: encode arguments: %w", err)
	}
	switch raw := b.text.Bytes()[mark:]; jsonscan.Kind(raw) {
	case '{':
	case 'n':
		b.text.Truncate(mark)
		b.text.WriteString(`{}`)
	default:
		return fmt.Errorf("mcp: invalid arguments: they encode to %.64q, must encode to an object", raw)
	}
	return nil
}
