package term

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// Output is standard output. It must contain data only, and keeps the first error.
type Output struct {
	W        io.Writer
	Terminal bool
	Width    func() int // of the terminal, in columns; 0 if it is unknown
	Colored  func() bool
	headed   bool // heading was called
	Err      error
}

// Write writes text.
func (o *Output) Write(text string) {
	if o.Err == nil {
		_, o.Err = io.WriteString(o.W, text)
	}
}

// Printf writes a line. Text of a server in it must be clean.
func (o *Output) Printf(format string, args ...any) { o.Write(fmt.Sprintf(format, args...) + "\n") }

// Columns writes rows of clean cells. On a terminal, it aligns the cells below a header with the words of
// header; otherwise tabs separate the cells.
func (o *Output) Columns(header string, rows [][]string) {
	if o.Terminal && len(rows) > 0 {
		rows = slices.Insert(slices.Clone(rows), 0, strings.Fields(header))
		o.Write(aligned(rows, columnWidths(rows), make([]bool, len(rows[0]))) + "\n")
		return
	}
	for _, row := range rows {
		o.Write(strings.Join(row, "\t") + "\n")
	}
}

// Heading writes the header of a table whose rows are written singly. Later calls do nothing.
func (o *Output) Heading(text string) {
	if !o.headed {
		o.Write(text + "\n")
	}
	o.headed = true
}

// Wrapped writes clean lines, on a terminal wrapped at its width. New lines begin with hang.
func (o *Output) Wrapped(text, hang string) {
	if o.Terminal {
		text = Wrap(text, o.Width(), hang)
	}
	o.Write(text + "\n")
}

// Named is Wrapped for an item of a list, which begins with a name to emphasize.
func (o *Output) Named(indentation, name, rest string) {
	const hang = "      "
	text := indentation + name + rest
	if o.Terminal {
		text = Wrap(text, o.Width(), hang)
	}
	if after, whole := strings.CutPrefix(text, indentation+name); whole && o.Colored() {
		text = indentation + paint(styleName, name) + after
	}
	o.Write(text + "\n")
}

// Text writes text of a server; on a terminal it is cleaned.
func (o *Output) Text(text string) {
	if o.Terminal {
		text = Clean(text)
	}
	o.Write(text)
}

// Println is text with a line break at the end.
func (o *Output) Println(text string) {
	o.Text(strings.TrimSuffix(text, "\n") + "\n")
}

// Field writes a name and a value of a server, unless the value is empty.
func (o *Output) Field(width int, name, value string) {
	if value != "" {
		o.Println(fmt.Sprintf("%-*s %s", width, name, CleanLine(value)))
	}
}

// Raw writes JSON, indented on a terminal, else on a single line, with members in their order.
func (o *Output) Raw(text []byte) {
	v := jsontext.Value(append([]byte(nil), text...))
	var err error
	if o.Terminal {
		err = v.Indent(jsontext.WithIndent("  "))
	} else {
		err = v.Compact()
	}
	if err != nil {
		o.Err = fmt.Errorf("invalid JSON from the server: %w", err)
		return
	}
	if o.Terminal {
		o.Write(CleanJSON(string(v)) + "\n")
		return
	}
	o.Write(string(v) + "\n")
}

// Value writes a value as JSON.
func (o *Output) Value(v any) {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		o.Err = err
		return
	}
	o.Raw(text)
}

// Result writes a result in the format of the newest revision.
func (o *Output) Result(r mcp.Result) {
	var req mcp.Request
	text, err := req.EncodeResult(r)
	if err != nil {
		o.Err = err
		return
	}
	o.Raw(text)
}
