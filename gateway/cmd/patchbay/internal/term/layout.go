package term

import (
	stdjson "encoding/json"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxTableColumns bounds the columns of a table. Others do not fit a terminal.
	maxTableColumns = 40
	// maxKeyWidth bounds the columns of keys to which values are aligned.
	maxKeyWidth = 30
	// ColumnGap is the distance of the columns of a table.
	ColumnGap = "  "
)

// LaidOut returns the lines that show structured content on a terminal: keys and values for an
// object, a table for an array of flat objects that fits the width, and indented JSON for others.
func LaidOut(value []byte, width int) string {
	switch {
	case rawjson.Kind(value) == '{':
		return laidOutObject(value, width)
	case isTable(value):
		return table(value, width)
	}
	return indentedJSON(value)
}

func laidOutObject(object []byte, width int) string {
	columns, empty := 0, true
	for key, value := range rawjson.Members(object) {
		empty = false
		if isFlat(value) {
			columns = max(columns, min(TextWidth(cellText(key)), maxKeyWidth))
		}
	}
	if empty {
		return "{}"
	}
	var b strings.Builder
	for key, value := range rawjson.Members(object) {
		name := cellText(key) + ":"
		switch {
		case isFlat(value):
			name = Padded(name, columns+1, false) + " "
			text := valueText(value)
			if strings.Contains(text, "\n") {
				name, text = strings.TrimRight(name, " ")+"\n", Indent(text, "  ")
			}
			b.WriteString(Wrap(name+text, width, "  ") + "\n")
		case isTable(value):
			b.WriteString(name + "\n" + Indent(table(value, width-len(ColumnGap)), "  ") + "\n")
		default:
			b.WriteString(name + "\n" + Indent(indentedJSON(value), "  ") + "\n")
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// isFlat reports whether a value is neither an object nor an array.
func isFlat(value []byte) bool {
	kind := rawjson.Kind(value)
	return kind != '{' && kind != '['
}

// isTable reports whether a value is an array of objects that contain flat values only.
func isTable(value []byte) bool {
	rows := 0
	for row := range rawjson.Elements(value) {
		if rawjson.Kind(row) != '{' {
			return false
		}
		for _, cell := range rawjson.Members(row) {
			if !isFlat(cell) {
				return false
			}
		}
		rows++
	}
	return rows > 0
}

// table formats an array of flat objects as a table, or as records if it would be too wide.
func table(array []byte, width int) string {
	var header []string
	index := map[string]int{}
	for row := range rawjson.Elements(array) {
		for key := range rawjson.Members(row) {
			if _, has := index[string(key)]; !has && len(header) < maxTableColumns+1 {
				index[string(key)] = len(header)
				header = append(header, cellText(key))
			}
		}
	}
	if len(header) == 0 || len(header) > maxTableColumns {
		return records(array, width)
	}
	rows, numeric := [][]string{header}, slices.Repeat([]bool{true}, len(header))
	for row := range rawjson.Elements(array) {
		cells := make([]string, len(header))
		for key, value := range rawjson.Members(row) {
			at := index[string(key)]
			cells[at] = cellText([]byte(valueText(value)))
			numeric[at] = numeric[at] && (rawjson.Kind(value) == '0' || rawjson.Kind(value) == 'n')
		}
		rows = append(rows, cells)
	}
	widths, total := columnWidths(rows), 0
	for _, w := range widths {
		total += w + len(ColumnGap)
	}
	if width >= minWrapped && total-len(ColumnGap) > width {
		return records(array, width)
	}
	return aligned(rows, widths, numeric)
}

func columnWidths(rows [][]string) []int {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], TextWidth(cell))
		}
	}
	return widths
}

func aligned(rows [][]string, widths []int, numeric []bool) string {
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString(ColumnGap)
			}
			line.WriteString(Padded(cell, widths[i], numeric[i]))
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// records formats objects as blocks, each below the previous block.
func records(array []byte, width int) string {
	var all []string
	for row := range rawjson.Elements(array) {
		all = append(all, laidOutObject(row, width))
	}
	return strings.Join(all, "\n\n")
}

// Padded fills a text with spaces, on the left if it is a number.
func Padded(text string, columns int, number bool) string {
	space := strings.Repeat(" ", max(columns-TextWidth(text), 0))
	if number {
		return space + text
	}
	return text + space
}

// valueText formats a simple value: a string as its text, other values as JSON. An empty or blank
// string is shown as JSON, because a reader could not see it otherwise.
func valueText(value []byte) string {
	text, err := rawjson.Unquote(value)
	if err != nil || strings.TrimSpace(text) != text || text == "" {
		return CleanJSON(string(value))
	}
	return Clean(text)
}

// cellText formats a text as a single line. Line breaks or tabs make it JSON.
func cellText(text []byte) string {
	if strings.ContainsAny(string(text), "\n\t") {
		return CleanJSON(string(rawjson.AppendQuote(nil, string(text))))
	}
	return Clean(string(text))
}

func indentedJSON(value []byte) string {
	v := jsontext.Value(slices.Clone(value))
	if err := v.Indent(jsontext.WithIndent("  ")); err != nil {
		return CleanJSON(string(value))
	}
	return CleanJSON(string(v))
}

// Structured returns the structured content of a result if it says all that the content says:
// servers repeat it as text for older clients.
func Structured(r *mcp.CallToolResult) []byte {
	raw, _ := r.StructuredContent.(stdjson.RawMessage)
	switch {
	case rawjson.Valid(raw) != nil:
		return nil
	case len(r.Content) == 0:
		return raw
	}
	text, isText := r.Content[0].(*mcp.TextContent)
	if len(r.Content) > 1 || !isText {
		return nil
	}
	a, b := jsontext.Value(text.Text), jsontext.Value(slices.Clone(raw))
	if a.Canonicalize() != nil || b.Canonicalize() != nil || string(a) != string(b) {
		return nil
	}
	return raw
}
