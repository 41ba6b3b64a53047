package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/mcp"
)

// output is standard output. It has data only. The first error is kept.
type output struct {
	w        io.Writer
	terminal bool
	width    func() int // of the terminal, in columns; 0 if it is unknown
	colored  func() bool
	headed   bool // heading was called
	err      error
}

func (o *output) write(text string) {
	if o.err == nil {
		_, o.err = io.WriteString(o.w, text)
	}
}

// printf writes a line. Text of a server in it must be clean.
func (o *output) printf(format string, args ...any) { o.write(fmt.Sprintf(format, args...) + "\n") }

// columns writes rows of clean cells. On a terminal, it aligns the cells below a header with the words of
// header; otherwise tabs separate the cells.
func (o *output) columns(header string, rows [][]string) {
	if o.terminal && len(rows) > 0 {
		rows = slices.Insert(slices.Clone(rows), 0, strings.Fields(header))
		o.write(aligned(rows, columnWidths(rows), make([]bool, len(rows[0]))) + "\n")
		return
	}
	for _, row := range rows {
		o.write(strings.Join(row, "\t") + "\n")
	}
}

// heading writes the header of a table whose rows are written one by one. Later calls write nothing.
func (o *output) heading(text string) {
	if !o.headed {
		o.write(text + "\n")
	}
	o.headed = true
}

// wrapped writes clean lines, on a terminal wrapped at its width. New lines begin with hang.
func (o *output) wrapped(text, hang string) {
	if o.terminal {
		text = wrap(text, o.width(), hang)
	}
	o.write(text + "\n")
}

// named is wrapped for an item of a list: text that begins, after white space, with a name to
// emphasize.
func (o *output) named(indentation, name, rest string) {
	const hang = "      "
	text := indentation + name + rest
	if o.terminal {
		text = wrap(text, o.width(), hang)
	}
	if after, whole := strings.CutPrefix(text, indentation+name); whole && o.colored() {
		text = indentation + paint(styleName, name) + after
	}
	o.write(text + "\n")
}

// text writes text of a server; on a terminal it is cleaned.
func (o *output) text(text string) {
	if o.terminal {
		text = clean(text)
	}
	o.write(text)
}

// println is text with a line break at the end.
func (o *output) println(text string) {
	o.text(strings.TrimSuffix(text, "\n") + "\n")
}

// field writes a name and a value of a server, unless the value is empty.
func (o *output) field(width int, name, value string) {
	if value != "" {
		o.println(fmt.Sprintf("%-*s %s", width, name, cleanLine(value)))
	}
}

// raw writes JSON: indented on a terminal, else on one line. The order of members is kept.
func (o *output) raw(text []byte) {
	v := jsontext.Value(append([]byte(nil), text...))
	var err error
	if o.terminal {
		err = v.Indent(jsontext.WithIndent("  "))
	} else {
		err = v.Compact()
	}
	if err != nil {
		o.err = fmt.Errorf("invalid JSON from the server: %w", err)
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

// result writes a result in the format of the newest revision.
func (o *output) result(r mcp.Result) {
	var req mcp.Request
	text, err := req.EncodeResult(r)
	if err != nil {
		o.err = err
		return
	}
	o.raw(text)
}
