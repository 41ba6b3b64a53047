package legacy

import (
	"bytes"
	"cmp"
	"fmt"
	"sync"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// audioAsText appends a text block in place of an audio block.
func audioAsText(dst, block []byte) []byte {
	data, _ := jsonscan.Get(block, "data")
	size := max(0, len(data)-2) / 4 * 3 // base64, within quotes
	kind := cmp.Or(jsonscan.GetString(block, "mimeType"), "unknown type")
	line := fmt.Sprintf("[audio that this client cannot take: %s, about %d bytes]", kind, size)
	return appendTextBlock(dst, line, block)
}

// linkAsText appends a text block in place of a link to a resource.
func linkAsText(dst, block []byte) []byte {
	name := cmp.Or(jsonscan.GetString(block, "title"), jsonscan.GetString(block, "name"))
	line := "[resource " + name + ": " + jsonscan.GetString(block, "uri") + "]"
	if description := jsonscan.GetString(block, "description"); description != "" {
		line += " " + description
	}
	return appendTextBlock(dst, line, block)
}

// appendTextBlock appends a text block that replaces a block and keeps its annotations.
func appendTextBlock(dst []byte, s string, block []byte) []byte {
	dst = append(dst, `{"type":"text","text":`...)
	dst = append(jsonscan.AppendQuote(dst, s), ',')
	if value, _ := jsonscan.Get(block, annotations.key); jsonscan.Kind(value) == '{' {
		dst = firstAnnotations().append(dst, value)
	}
	return closeWith(dst, '}')
}

// firstAnnotations returns annotations as the first revision defines them.
var firstAnnotations = sync.OnceValue(func() *projectedField {
	return project(wire.November2024, &shape{fields: []field{annotations}}).find([]byte(annotations.key))
})

// addText adds a text block with the structured content as JSON to a tool result that lost its
// structured content, unless the result contains text already. Spec:
// server/tools#structured-content
func addText(dst []byte, start int, structured []byte) []byte {
	result := bytes.Clone(dst[start:])
	content, ok := jsonscan.Get(result, "content")
	if ok && jsonscan.Kind(content) != '[' || hasText(content) {
		return dst
	}
	dst = append(dst[:start], `{"content":[`...)
	for block := range jsonscan.Elements(content) {
		dst = append(append(dst, block...), ',')
	}
	dst = append(dst, `{"type":"text","text":`...)
	dst = jsonscan.AppendQuote(dst, string(structured))
	dst = append(dst, `}],`...)
	return closeWith(appendOthers(dst, result, "content"), '}')
}

func hasText(content []byte) bool {
	for block := range objects(content) {
		if typ, _ := jsonscan.Get(block, "type"); jsonscan.IsString(typ, "text") {
			return true
		}
	}
	return false
}

// viewMetaOnly keeps the members of a `_meta` that belong to MCP Apps, if there are any. Hosts
// declare the extension in any revision, and must know which tools the model may not see. The
// schemas of these revisions allow additional members. Spec: SEP-1865, Resource Discovery,
// Visibility.
func viewMetaOnly(dst []byte, key string, meta []byte) []byte {
	before := len(dst)
	dst = append(appendMember(dst, []byte(key), nil), '{')
	from := len(dst)
	for name, value := range jsonscan.Members(meta) {
		if string(name) == "ui" || string(name) == "ui/resourceUri" {
			dst = append(appendMember(dst, name, value), ',')
		}
	}
	if len(dst) == from {
		return dst[:before]
	}
	return closeWith(dst, '}')
}

func ifObject(dst []byte, key string, value []byte) []byte {
	if jsonscan.Kind(value) != '{' {
		return dst
	}
	return appendMember(dst, []byte(key), value)
}

// objectSchema keeps a schema with the type "object", in the form of [closedSchema].
func objectSchema(dst []byte, key string, schema []byte) []byte {
	if typ, _ := jsonscan.Get(schema, "type"); !jsonscan.IsString(typ, "object") {
		return dst
	}
	return closedSchema(dst, key, schema)
}

// closedSchema appends a schema in which the schema of each property is an object: older revisions
// do not allow boolean schemas there, and a strict client would reject the whole list of tools.
func closedSchema(dst []byte, key string, schema []byte) []byte {
	dst = appendMember(dst, []byte(key), nil)
	if jsonscan.Kind(schema) != '{' {
		return append(dst, schema...)
	}
	dst = append(dst, '{')
	for key, value := range jsonscan.Members(schema) {
		if string(key) == "properties" && jsonscan.Kind(value) == '{' {
			dst = appendMember(dst, key, nil)
			dst = appendMembers(dst, value, objectForm)
		} else {
			dst = appendMember(dst, key, value)
		}
		dst = append(dst, ',')
	}
	return closeWith(dst, '}')
}

// objectForm appends a boolean schema as an object, and any other as it is.
func objectForm(dst, schema []byte) []byte {
	switch jsonscan.Kind(schema) {
	case 't':
		return append(dst, `{}`...)
	case 'f':
		return append(dst, `{"not":{}}`...)
	}
	return append(dst, schema...)
}
