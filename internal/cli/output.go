package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// output is standard output: data, and nothing else. Its first error is kept for the end.
type output struct {
	w        io.Writer
	terminal bool
	err      error
}

func (o *output) write(text string) {
	if o.err == nil {
		_, o.err = io.WriteString(o.w, text)
	}
}

// printf writes lines that hold no text of a server that is not clean.
func (o *output) printf(format string, args ...any) { o.write(fmt.Sprintf(format, args...) + "\n") }

// text writes a text of a server as it is; on a terminal, so that it is harmless.
func (o *output) text(text string) {
	if o.terminal {
		text = clean(text)
	}
	o.write(text)
}

// line is text that ends with a line's end.
func (o *output) line(text string) {
	o.text(strings.TrimSuffix(text, "\n") + "\n")
}

// raw writes JSON: laid out on a terminal, on one line elsewhere. The members keep their order.
func (o *output) raw(text []byte) {
	v := jsontext.Value(append([]byte(nil), text...))
	var err error
	if o.terminal {
		err = v.Indent(jsontext.WithIndent("  "))
	} else {
		err = v.Compact()
	}
	if err != nil {
		o.err = fmt.Errorf("what the server sent is no JSON: %w", err)
		return
	}
	if o.terminal {
		o.write(cleanJSON(string(v)) + "\n")
		return
	}
	o.write(string(v) + "\n")
}

// value writes a value as JSON.
func (o *output) value(v any) {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		o.err = err
		return
	}
	o.raw(text)
}

// result writes a result as the newest revision has it on the wire.
func (o *output) result(r mcp.Result) {
	var req mcp.Request
	text, err := req.EncodeResult(r)
	if err != nil {
		o.err = err
		return
	}
	o.raw(text)
}
