package catalogue

import (
	"bytes"
	"encoding/json"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
	"github.com/patchbay-mcp/patchbay/internal/wire"
)

// MapResult returns a valid result of a server with public URIs: the URIs of the contents of
// resources/read, and of the resources and resource links in results of tools/call, tasks/result
// and prompts/get. All other bytes stay. It returns the result itself without changes.
func (c *Catalogue) MapResult(server, method string, result json.RawMessage) json.RawMessage {
	s := c.byName[server]
	if s == nil || c.options.Single || len(c.servers) == 1 || !mayHaveURI(result) {
		return result
	}
	m := resultMapper{c, s, matchBudget}
	switch method {
	case wire.MethodResourcesRead:
		return at(result, "contents", func(v []byte) []byte {
			return each(v, m.member)
		})
	case wire.MethodToolsCall, wire.MethodTasksResult:
		return at(result, "content", m.content)
	case wire.MethodPromptsGet:
		return at(result, "messages", func(v []byte) []byte {
			return each(v, func(v []byte) []byte {
				return at(v, "content", m.content)
			})
		})
	}
	return result
}

// mayHaveURI reports whether a result may contain a member uri, as text or escaped. Most results do
// not.
func mayHaveURI(result []byte) bool {
	return bytes.Contains(result, []byte(`"uri"`)) || bytes.Contains(result, []byte(`\u`))
}

// at applies f to a member of an object.
func at(obj []byte, key string, f func([]byte) []byte) []byte {
	return rewrite(obj, func(k string, value []byte) []byte {
		if k == key {
			return f(value)
		}
		return value
	})
}

// each applies f to the elements of an array, or to a value that is not an array.
func each(array []byte, f func([]byte) []byte) []byte {
	d := jsonscan.Descend(array)
	if !d.Into('[') {
		return f(array)
	}
	var out []byte
	copied := 0
	for d.More() {
		start := d.At()
		value := d.Value()
		if value == nil {
			return array // not valid
		}
		if text := f(value); !same(text, value) {
			out = append(append(out, array[copied:start]...), text...)
			copied = start + len(value)
		}
	}
	if copied == 0 {
		return array
	}
	return append(out, array[copied:]...)
}

// A resultMapper maps the URIs of a result.
type resultMapper struct {
	catalogue *Catalogue
	server    *member
	budget    int // see matchBudget
}

// member maps the member uri of an object.
func (m *resultMapper) member(obj []byte) []byte {
	return at(obj, "uri", func(raw []byte) []byte {
		uri, err := jsonscan.Unquote(raw)
		if err != nil {
			return raw
		}
		public := m.catalogue.publicURI(m.server, uri, &m.budget)
		if public == uri {
			return raw
		}
		return jsonscan.AppendQuote(nil, public)
	})
}

// content maps the URIs of a content block, or of an array of them.
func (m *resultMapper) content(content []byte) []byte {
	return each(content, func(block []byte) []byte {
		kind, _ := jsonscan.Get(block, "type")
		switch name, _ := jsonscan.Unquote(kind); name {
		case "resource_link":
			return m.member(block)
		case "resource":
			return at(block, "resource", m.member)
		}
		return block
	})
}
