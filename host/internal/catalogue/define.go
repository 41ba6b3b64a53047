package catalogue

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/patchbay-mcp/patchbay/internal/jsonscan"
)

// An edit decides about a member of an object: it returns the new value, or the old value, or nil
// to remove the member.
type edit func(key string, value []byte) []byte

// rewrite applies an edit to each member of a valid object. It returns the object itself without
// changes. If the edit removes no member, all other bytes stay, including white space.
func rewrite(obj []byte, change edit) []byte {
	d := jsonscan.Descend(obj)
	if !d.Into('{') {
		return obj
	}
	var out []byte
	copied, members, removed := 0, 0, false // copied is the end of the part of obj that out contains
	for {
		comma := d.At()
		key, ok := d.Key()
		if !ok {
			break
		}
		start := d.At()
		value := d.Value()
		if value == nil {
			return obj // not valid
		}
		end := start + len(value)
		text := change(string(key), value)
		switch {
		case text == nil && members == 0: // with the comma behind it, which the next member skips
			out, removed = append(out, bytes.TrimRight(obj[copied:comma], " \t\r\n")...), true
			copied = end
		case text == nil:
			out, removed = append(out, obj[copied:comma]...), true
			copied = end
		default:
			if members == 0 && removed { // obj[comma] is a comma
				copied = comma + 1
			}
			if members++; !same(text, value) {
				out = append(append(out, obj[copied:start]...), text...)
				copied = end
			}
		}
	}
	if copied == 0 {
		return obj
	}
	return append(out, obj[copied:]...)
}

// same reports whether two slices are the same bytes or equal.
func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0] || bytes.Equal(a, b))
}

// define returns the public definition of an item, but with its original name or URI.
func (i *Item) define() json.RawMessage {
	var description string
	var hidden []string
	var described bool
	if i.Kind == Tools {
		description, described = i.options.Describe[i.Original]
		hidden = i.options.HideArgs[i.Original]
	}
	s := shapes[i.Kind]
	found := false
	out := rewrite(i.Raw, func(key string, value []byte) []byte {
		switch {
		case key == "description" && described:
			found = true
			return jsonscan.AppendQuote(nil, description)
		case key == "inputSchema" && i.Kind == Tools:
			return i.inputSchema(value, hidden)
		case key == "delivery" && i.Kind == Events:
			modes := `["` + Push + `","` + Poll + `"`
			if i.webhooks {
				modes += `,"` + Webhook + `"`
			}
			return []byte(modes + "]")
		case key == "_meta" && i.view != "":
			return withView(value, i.view)
		case !i.single:
			return s.withoutNull(key, value)
		}
		return value
	})
	if described && !found {
		out = jsonscan.WithMember(out, "description", jsonscan.AppendQuote(nil, description))
	}
	return out
}

// withoutNull returns the value of a member without its known members that are null, or nil if the
// value itself is null.
func (s *shape) withoutNull(key string, value []byte) []byte {
	if _, known := s.members[key]; known && jsonscan.Kind(value) == 'n' {
		return nil
	}
	if o := s.objects[key]; o != nil {
		return rewrite(value, o.withoutNull)
	}
	if e := s.elements[key]; e != nil {
		return each(value, func(v []byte) []byte { return rewrite(v, e.withoutNull) })
	}
	return value
}

// inputSchema returns an input schema without hidden arguments, and with the type that every
// revision requires and some servers omit.
func (i *Item) inputSchema(schema []byte, hidden []string) []byte {
	if _, ok := jsonscan.Get(schema, "type"); !ok && !i.single {
		schema = jsonscan.WithMember(schema, "type", []byte(`"object"`))
	}
	if len(hidden) == 0 {
		return schema
	}
	return rewrite(schema, func(key string, value []byte) []byte {
		switch key {
		case "properties":
			return rewrite(value, func(name string, value []byte) []byte {
				if slices.Contains(hidden, name) {
					return nil
				}
				return value
			})
		case "required":
			return withoutNames(value, hidden)
		}
		return value
	})
}

// withoutNames returns an array of strings without some of them, or the array itself.
func withoutNames(array []byte, names []string) []byte {
	out := []byte{'['}
	removed := false
	for e := range jsonscan.Elements(array) {
		name, err := jsonscan.Unquote(e)
		if err == nil && slices.Contains(names, name) {
			removed = true
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	if !removed {
		return array
	}
	return append(out, ']')
}

// Members of a tool's _meta that name its view. Spec: extensions/apps.
const (
	metaUI      = "ui"
	metaView    = "resourceUri"    // of metaUI
	metaFlatUI  = "ui/resourceUri" // older, beside metaUI
	metaVisible = "visibility"     // of metaUI
)

// viewOf returns the URI of a tool's view, or "".
func viewOf(definition []byte) string {
	meta, _ := jsonscan.Get(definition, "_meta")
	ui, _ := jsonscan.Get(meta, metaUI)
	raw, ok := jsonscan.Get(ui, metaView)
	if !ok {
		raw, _ = jsonscan.Get(meta, metaFlatUI)
	}
	uri, _ := jsonscan.Unquote(raw)
	return uri
}

// withView returns a _meta object with another URI of the view.
func withView(meta []byte, uri string) []byte {
	replace := func(value []byte) []byte {
		if jsonscan.Kind(value) != '"' {
			return value
		}
		return jsonscan.AppendQuote(nil, uri)
	}
	return rewrite(meta, func(key string, value []byte) []byte {
		switch key {
		case metaFlatUI:
			return replace(value)
		case metaUI:
			return rewrite(value, func(key string, value []byte) []byte {
				if key == metaView {
					return replace(value)
				}
				return value
			})
		}
		return value
	})
}

// Modes of delivery of a type of events that a host translates into each other. Spec: SEP-3415, Delivery Modes.
const (
	Push    = "push"
	Poll    = "poll"
	Webhook = "webhook"
)

// Delivers reports whether the server of a type of events offers a mode of delivery.
func (i *Item) Delivers(mode string) bool {
	delivery, _ := jsonscan.Get(i.Raw, "delivery")
	return delivers(delivery, mode)
}

func delivers(delivery []byte, mode string) bool {
	for e := range jsonscan.Elements(delivery) {
		if name, err := jsonscan.Unquote(e); err == nil && name == mode {
			return true
		}
	}
	return false
}
