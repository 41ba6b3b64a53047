package explore

import (
	stdjson "encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/console/page"
	"github.com/patchbay-mcp/patchbay/gateway/cmd/patchbay/internal/term"
	"github.com/patchbay-mcp/patchbay/gateway/internal/rawjson"
	"github.com/patchbay-mcp/patchbay/jsonschema"
	"github.com/patchbay-mcp/patchbay/mcp"
)

const (
	// maxShown bounds the text of a part of a result in the page, in bytes. The whole text is
	// downloaded.
	maxShown = 256 << 10
	// maxRows bounds the rows of a table, and maxColumns its columns.
	maxRows    = 500
	maxColumns = 20
)

// A result is a result in parts, as the page shows it. It is immutable.
type result struct {
	Description string // of a prompt
	Blocks      []*block
	Table       *table // structured content
	Structured  string // structured content, indented
	IsError     bool   // the tool failed
	JSON        string // the whole result, indented
	Bytes       int
	Checked     bool     // structured content was checked against the output schema
	Problems    []string // of structured content, or of the whole result
}

// A block is a part of a result: text, an image, audio, a resource or a link to a resource.
type block struct {
	Index int
	Role  string // of a message of a prompt
	Kind  string // text, json, source, image, audio, binary or link
	Title string // URI or name
	Type  string // media type: as the server states it, or for binary data as the data shows
	Note  string // about a wrong type
	Text  string
	Cut   bool // Text is the beginning only
	data  []byte
}

// Size returns the length of the data in words.
func (b *block) Size() string { return term.FormatBytes(len(b.data)) }

// newResult returns the parts of a result.
func newResult(of *item, raw stdjson.RawMessage) *result {
	r := &result{JSON: page.Indent(raw), Bytes: len(raw)}
	switch of.Kind {
	case kindTools:
		r.tool(of, raw)
	case kindMethods:
		b := &block{}
		b.text("json", string(raw))
		r.Blocks = append(r.Blocks, b)
	case kindPrompts:
		var p mcp.GetPromptResult
		if err := stdjson.Unmarshal(raw, &p); err != nil {
			r.Problems = append(r.Problems, err.Error())
		}
		r.Description = p.Description
		for _, m := range p.Messages {
			r.add(string(m.Role), m.Content)
		}
	default:
		var p mcp.ReadResourceResult
		if err := stdjson.Unmarshal(raw, &p); err != nil {
			r.Problems = append(r.Problems, err.Error())
		}
		for _, c := range p.Contents {
			r.add("", &mcp.EmbeddedResource{Resource: c})
		}
	}
	return r
}

// tool adds the content and the structured content of a tool's result, which is checked against the
// output schema of the tool.
func (r *result) tool(of *item, raw stdjson.RawMessage) {
	var t mcp.CallToolResult
	if err := t.UnmarshalJSON(raw); err != nil {
		r.Problems = append(r.Problems, err.Error())
		return
	}
	r.IsError = t.IsError
	for _, c := range t.Content {
		r.add("", c)
	}
	structured, _ := t.StructuredContent.(stdjson.RawMessage)
	if structured != nil {
		r.Structured, r.Table = page.Indent(structured), newTable(structured)
	}
	if of.Output == nil || t.IsError {
		return
	}
	r.Checked = true
	if structured == nil {
		r.Problems = append(r.Problems, "the tool declares an output schema, and the result has no structured content")
		return
	}
	schema, err := jsonschema.Compile(of.Output)
	if err == nil {
		err = schema.Validate(structured)
	}
	if invalid, ok := errors.AsType[*jsonschema.ValidationError](err); ok {
		for _, p := range invalid.Problems {
			r.Problems = append(r.Problems, strings.TrimPrefix(p.Path+": "+p.Text, ": "))
		}
	} else if err != nil {
		r.Problems = append(r.Problems, "the output schema is invalid: "+err.Error())
	}
}

// add adds a part.
func (r *result) add(role string, c mcp.ContentBlock) {
	b := &block{Index: len(r.Blocks), Role: role}
	switch c := c.(type) {
	case *mcp.TextContent:
		b.text("text", c.Text)
	case *mcp.ImageContent:
		b.binary(c.MIMEType, c.Data)
	case *mcp.AudioContent:
		b.binary(c.MIMEType, c.Data)
	case *mcp.ResourceLink:
		b.Kind, b.Title, b.Type, b.Text = "link", c.URI, c.MIMEType, c.Name
	case *mcp.EmbeddedResource:
		if c.Resource == nil {
			b.text("text", "")
			break
		}
		b.Title, b.Type = c.Resource.URI, c.Resource.MIMEType
		if c.Resource.Blob != nil {
			b.binary(c.Resource.MIMEType, c.Resource.Blob)
		} else {
			b.text("text", c.Resource.Text)
		}
	default:
		text, err := stdjson.Marshal(c)
		if err != nil {
			text = []byte(err.Error())
		}
		b.text("json", string(text))
	}
	r.Blocks = append(r.Blocks, b)
}

// text sets the text of a part. JSON is indented; HTML, SVG and Markdown stay source.
func (b *block) text(kind, text string) {
	b.Kind, b.data = kind, []byte(text)
	if k := rawjson.Kind(b.data); (k == '{' || k == '[') && len(text) <= maxShown && rawjson.Valid(b.data) == nil {
		b.Kind, text = "json", page.Indent(b.data)
	}
	kindOf, _, _ := strings.Cut(b.Type, ";")
	if slices.Contains([]string{"text/html", "image/svg+xml", "text/markdown", "application/xhtml+xml"}, kindOf) {
		b.Kind = "source"
	}
	b.Text, b.Cut = cutText(text)
}

// binary sets the data of a part. Only data of a safe type that the data itself shows is an image
// or audio; a server's word is not enough.
func (b *block) binary(claimed string, data []byte) {
	b.data = data
	sniffed, _, _ := strings.Cut(http.DetectContentType(data), ";")
	b.Kind, b.Type = "binary", sniffed
	switch {
	case safeTypes[sniffed] != "":
		b.Kind = safeTypes[sniffed]
	case strings.HasPrefix(sniffed, "text/"):
		b.Kind = "source"
		b.Text, b.Cut = cutText(strings.ToValidUTF8(string(data), "\uFFFD"))
	}
	if claimed, _, _ = strings.Cut(claimed, ";"); claimed != "" && claimed != sniffed && b.Kind != "audio" {
		b.Note = "the server states " + claimed
	}
}

// safeTypes are the types that the page embeds. SVG is not among them: it can contain scripts and
// links.
var safeTypes = map[string]string{
	"image/png": "image", "image/jpeg": "image", "image/gif": "image", "image/webp": "image", "image/bmp": "image",
	"audio/wave": "audio", "audio/mpeg": "audio", "application/ogg": "audio", "audio/aiff": "audio",
	"audio/basic": "audio", "video/webm": "audio",
}

func cutText(text string) (string, bool) {
	if len(text) <= maxShown {
		return text, false
	}
	return strings.ToValidUTF8(text[:maxShown], ""), true
}

// A table shows structured content: a list of objects, or the members of an object.
type table struct {
	Columns []string
	Rows    [][]string
	More    int // rows that are not shown
}

// newTable returns a table for a list of objects, for an object with only such a list, and for
// another object. For other values it returns nil.
func newTable(raw []byte) *table {
	if rawjson.Kind(raw) == '{' {
		var only []byte
		members := 0
		t := &table{Columns: []string{"member", "value"}}
		for key, value := range rawjson.Members(raw) {
			only, members = value, members+1
			t.row(string(key), cell(value))
		}
		if inner := newTable(only); members == 1 && rawjson.Kind(only) == '[' && inner != nil {
			return inner
		}
		if members == 0 {
			return nil
		}
		return t
	}
	t := &table{}
	for element := range rawjson.Elements(raw) {
		if rawjson.Kind(element) != '{' {
			return nil
		}
		for key := range rawjson.Members(element) {
			if !slices.Contains(t.Columns, string(key)) && len(t.Columns) < maxColumns {
				t.Columns = append(t.Columns, string(key))
			}
		}
	}
	if t.Columns == nil {
		return nil
	}
	for element := range rawjson.Elements(raw) {
		var cells []string
		for _, name := range t.Columns {
			value, _ := rawjson.Get(element, name)
			cells = append(cells, cell(value))
		}
		t.row(cells...)
	}
	return t
}

func (t *table) row(cells ...string) {
	if len(t.Rows) == maxRows {
		t.More++
		return
	}
	t.Rows = append(t.Rows, cells)
}

// cell returns a value as a cell of a table shows it.
func cell(raw []byte) string {
	const longest = 500
	if s, err := rawjson.Unquote(raw); err == nil {
		return term.Shorten(s, longest)
	}
	return term.Shorten(string(raw), longest)
}
